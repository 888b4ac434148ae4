//! What is noted while requests run, for the statistics: per request and per step.
//!
//! Neighbours: written by the engine and its scheduler; `mod.rs` takes them up when a step or a
//! request is over.

use serde::Serialize;

use crate::Timestamp;

/// How a request's tokens are chosen, as far as it changes what they cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SamplingKind {
    /// The most probable token each time.
    Greedy,
    /// Drawn at random.
    Sampled,
    /// Under a grammar, greedy or not.
    Structured,
    /// Beam search.
    Beam,
}

/// What is noted about one request while it lives. All its samples count together.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    pub(super) queued_at: Timestamp,
    pub(super) kind: SamplingKind,
    pub(super) prompt_tokens: usize,
    pub(super) tenant: Option<String>,
    /// Since when it has been ready to run: `queued_at`, or when it was last promoted.
    ready_at: Timestamp,
    /// Time spent parked, microseconds; nothing if it never was.
    pub(super) parked_us: Option<u64>,
    pub(super) admission: Option<Admission>,
    pub(super) recomputed_cached_tokens: usize,
    tokens: Option<TokenTimes>,
    pub(super) num_preemptions: usize,
}

/// What is noted when a request is first admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    /// Time that it was ready and waited, microseconds.
    pub(super) queue_us: u64,
    /// Tokens of its prompt found in the prefix cache.
    pub(super) cached_tokens: usize,
}

/// When a request's tokens came.
#[derive(Clone, Copy, Debug)]
struct TokenTimes {
    first: Timestamp,
    last: Timestamp,
    num_tokens: u64,
}

impl RequestFacts {
    /// A request of `prompt_tokens` tokens that enters the engine at `queued_at`.
    pub fn new(
        queued_at: Timestamp,
        kind: SamplingKind,
        prompt_tokens: usize,
        tenant: Option<String>,
    ) -> Self {
        Self {
            queued_at,
            kind,
            prompt_tokens,
            tenant,
            ready_at: queued_at,
            parked_us: None,
            admission: None,
            recomputed_cached_tokens: 0,
            tokens: None,
            num_preemptions: 0,
        }
    }

    /// It was parked until now, for something outside the engine. That time is not queue time: it
    /// is counted by itself. After the first admission there is no queue time left to keep clean,
    /// and nothing is noted.
    pub fn promoted(&mut self, now: Timestamp) {
        if self.admission.is_none() {
            let parked_us = now.since(self.ready_at);
            self.parked_us = Some(self.parked_us.unwrap_or(0) + parked_us);
            self.ready_at = now;
        }
    }

    /// It was admitted, with `cached_tokens` found in the prefix cache. The first admission settles
    /// queue time and cached tokens; what later ones find, after preemption, is counted by itself.
    pub fn admitted(&mut self, now: Timestamp, cached_tokens: usize) {
        if self.admission.is_some() {
            self.recomputed_cached_tokens += cached_tokens;
        } else {
            self.admission = Some(Admission {
                queue_us: now.since(self.ready_at),
                cached_tokens,
            });
        }
    }

    /// A token was generated, by any of its samples.
    pub fn token(&mut self, now: Timestamp) {
        let times = self.tokens.get_or_insert(TokenTimes {
            first: now,
            last: now,
            num_tokens: 0,
        });
        times.last = now;
        times.num_tokens += 1;
    }

    /// It lost its blocks and waits again.
    pub fn preempted(&mut self) {
        self.num_preemptions += 1;
    }

    /// Its prompt, which came in pieces, has so many tokens by now.
    pub fn set_prompt_tokens(&mut self, prompt_tokens: usize) {
        self.prompt_tokens = prompt_tokens;
    }

    /// It has a grammar.
    pub fn set_structured(&mut self) {
        self.kind = SamplingKind::Structured;
    }

    /// Time to the first token, parked time included, microseconds; nothing if none came.
    pub(super) fn ttft_us(&self) -> Option<u64> {
        self.tokens.map(|times| times.first.since(self.queued_at))
    }

    /// Mean time per token after the first, microseconds, rounded; nothing if fewer than two came.
    pub(super) fn tpot_us(&self) -> Option<u64> {
        let times = self.tokens.filter(|times| times.num_tokens >= 2)?;
        let num_intervals = times.num_tokens - 1;
        Some((times.last.since(times.first) + num_intervals / 2) / num_intervals)
    }
}

/// What one step did, and how full the engine was with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepFacts {
    /// Tokens that ran.
    pub num_tokens: usize,
    /// Sequences that ran.
    pub num_seqs: usize,
    /// Tokens added to outputs.
    pub num_emitted: usize,
    /// Sequences admitted and not finished.
    pub num_running: usize,
    /// Requests ready to run that wait for room.
    pub num_waiting: usize,
    /// Requests that wait for something outside the engine.
    pub num_parked: usize,
    /// Blocks that sequences hold, over all KV groups.
    pub blocks_used: usize,
    /// Blocks that can hold tokens, over all KV groups.
    pub blocks_usable: usize,
    /// Slots of the blocks that sequences hold.
    pub slots_allocated: usize,
    /// Those of `slots_allocated` that hold a token: the others are waste.
    pub slots_filled: usize,
    /// Sequences preempted.
    pub num_preempted: usize,
}

/// Why an admission found less than all of its prompt in the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissKind {
    /// It found everything.
    None,
    /// The prefix cache is off, or the request does not use it.
    Disabled,
    /// No block like the first missing one was ever seen.
    FirstSeen,
    /// Its tokens differ, from the first missing block on, from those that were cached.
    Tokens,
    /// The same tokens are cached for another tenant, whose blocks are not shared.
    OtherTenant,
    /// The block was cached and has been evicted.
    Evicted,
}
