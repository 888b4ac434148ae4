//! One growing token stream of a request.
//!
//! Neighbours: lives in `sequence_store.rs`; `scheduler.rs` asks how much it has to run;
//! `step_batch/` reads its tokens and tables; `commit.rs` gives it verdicts.

mod ending;
mod integrity;
mod parts;

use std::sync::Arc;

use crate::executor::RowLogprobs;
use crate::output_log::OutputLog;
use crate::rank::Rank;
use crate::spec::{DrafterId, Shadow};
use crate::stop::StopConditions;
use crate::token_counts::TokenCounts;
use crate::{
    BlockTable, DraftTree, Events, FinishReason, Generation, Grammar, HashChain, LogprobsParams,
    RequestId, SamplingParams, SeqId, TokenId, Verification, Vocabulary,
};

use self::ending::end_reason;
pub(crate) use parts::{SequenceName, SequenceParts};

/// Prompt and generated tokens, how far they are computed, and where their keys and values lie.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: SeqId,
    pub(crate) generation: Generation,
    pub(crate) request: RequestId,
    /// Which of the request's samples it is. Before it has forked: the first that has not split off.
    pub(crate) sample: u32,
    pub(crate) rank: Rank,
    /// Step since which it waits, while it does, less the steps that it waited before: a preemption
    /// does not make it wait anew.
    pub(crate) waits_since: u64,
    /// Steps that it has waited, all its waits together.
    pub(crate) num_steps_waited: u64,
    pub(crate) sampling: Arc<SamplingParams>,
    /// Prompt, then generated tokens. All are known and, once here, final.
    pub(crate) tokens: Vec<TokenId>,
    /// The first so many tokens are the prompt, also after a preemption.
    pub(crate) num_prompt: usize,
    /// Tokens `[0, num_computed)` have their keys and values in the pool once every step in flight
    /// has run.
    pub(crate) num_computed: usize,
    /// Tokens `[0, num_verified)` have them there now: the steps that ran them were collected.
    pub(crate) num_verified: usize,
    /// Tokens that steps in flight will add: they have positions, but no ids yet.
    pub(crate) num_placeholders: usize,
    /// The row of the last submitted step that decides the placeholder, while there is one.
    pub(crate) placeholder_row: Option<u32>,
    /// Guesses to be run behind its tokens in the step that is being planned. In depth-first order
    /// once planned.
    pub(crate) draft: DraftTree,
    /// Who made it.
    pub(crate) drafter: DrafterId,
    /// A draft that is compared with what comes.
    pub(crate) shadow: Option<Shadow>,
    /// Steps since a draft of it was last verified.
    pub(crate) num_steps_undrafted: u32,
    /// Draft tokens that a step in flight runs.
    pub(crate) num_drafts_in_flight: usize,
    /// Whether its next step may begin before the host has seen its newest token.
    pub(crate) overlap: Overlap,
    pub(crate) verification: Verification,
    /// A step in flight copies blocks for it: until it is collected nobody knows what they hold.
    pub(crate) has_copies_in_flight: bool,
    /// What its blocks hold may be wrong: its logits were not finite. Nothing of it is published.
    pub(crate) is_distrusted: bool,
    /// One per KV group.
    pub(crate) tables: Vec<BlockTable>,
    /// Hashes of its full blocks, as far as they were needed.
    pub(crate) chain: HashChain,
    pub(crate) grammar: Option<Box<dyn Grammar>>,
    /// Distinct tokens, if penalties need them.
    pub(crate) counts: Option<TokenCounts>,
    /// What its next row is for.
    pub(crate) draws: Draws,
    /// A beam that has its candidates and waits for those of its siblings.
    pub(crate) waits_for_siblings: bool,
    /// Prompt tokens whose log-probabilities were told, and those still wanted.
    pub(crate) prompt_scores: Option<PromptScores>,
    /// Log-probabilities of its tokens that were asked for.
    pub(crate) logprobs: Option<LogprobsParams>,
    /// The same, kept where they are told at the end.
    pub(crate) log: Option<OutputLog>,
    stop: StopConditions,
}

/// Whether steps of a sequence overlap, where the executor takes two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// Its newest token may be known to the device alone.
    Allowed,
    /// It is to have a draft, which is made from its newest token on the host.
    AwaitsHost,
}

/// What the row after a sequence's last token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draws {
    /// The next token.
    One,
    /// The first tokens of so many samples: the sequence forks after its prompt.
    Fork(u32),
    /// So many of the likeliest tokens, for a beam search.
    Candidates(u32),
}

/// How far the log-probabilities of a prompt are told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptScores {
    /// So many of the likeliest at each position.
    pub(crate) num_top: u32,
    /// Prompt tokens told.
    pub(crate) num_told: usize,
}

impl Sequence {
    pub(crate) fn new(name: SequenceName, parts: SequenceParts) -> Self {
        let num_prompt = parts.prompt.len();
        let counts = parts
            .sampling
            .has_penalties()
            .then(|| TokenCounts::new(&parts.prompt, num_prompt));
        Self {
            id: name.id,
            generation: name.generation,
            request: parts.request,
            sample: 0,
            rank: parts.rank,
            waits_since: 0,
            num_steps_waited: 0,
            sampling: parts.sampling,
            tokens: parts.prompt,
            num_prompt,
            num_computed: 0,
            num_verified: 0,
            num_placeholders: 0,
            placeholder_row: None,
            draft: DraftTree::new(),
            drafter: DrafterId::default(),
            shadow: None,
            num_steps_undrafted: 0,
            num_drafts_in_flight: 0,
            overlap: Overlap::Allowed,
            verification: parts.verification,
            has_copies_in_flight: false,
            is_distrusted: false,
            tables: parts.tables,
            chain: parts.chain,
            grammar: None,
            counts,
            draws: parts.draws,
            waits_for_siblings: false,
            prompt_scores: parts.prompt_scores,
            logprobs: parts.logprobs,
            log: parts.is_logged.then(OutputLog::default),
            stop: parts.stop,
        }
    }

    /// A sibling with the same tokens, over `tables` that share this one's blocks.
    pub(crate) fn fork(&self, name: SequenceName, sample: u32, tables: Vec<BlockTable>) -> Self {
        Self {
            id: name.id,
            generation: name.generation,
            request: self.request,
            sample,
            rank: Rank {
                sibling: sample,
                ..self.rank
            },
            waits_since: 0,
            num_steps_waited: 0,
            sampling: Arc::clone(&self.sampling),
            tokens: self.tokens.clone(),
            num_prompt: self.num_prompt,
            num_computed: self.num_verified,
            num_verified: self.num_verified,
            num_placeholders: 0,
            placeholder_row: None,
            draft: DraftTree::new(),
            drafter: DrafterId::default(),
            shadow: None,
            num_steps_undrafted: 0,
            num_drafts_in_flight: 0,
            overlap: Overlap::Allowed,
            verification: self.verification,
            has_copies_in_flight: false,
            is_distrusted: false,
            tables,
            chain: self.chain.clone(),
            grammar: self.grammar.as_ref().map(|grammar| grammar.fork()),
            counts: self.counts.clone(),
            draws: match self.draws {
                Draws::Candidates(num_top) => Draws::Candidates(num_top),
                Draws::One | Draws::Fork(_) => Draws::One,
            },
            waits_for_siblings: false,
            prompt_scores: None,
            logprobs: self.logprobs,
            log: self.log.clone(),
            stop: self.stop.clone(),
        }
    }

    /// More of a prompt that comes in pieces, before anything ran.
    pub(crate) fn append_prompt(&mut self, tokens: &[TokenId], stop: StopConditions) {
        self.tokens.extend_from_slice(tokens);
        self.num_prompt = self.tokens.len();
        self.stop = stop;
        if self.counts.is_some() {
            self.counts = Some(TokenCounts::new(&self.tokens, self.num_prompt));
        }
    }

    /// Makes room for the longest this can get, so that decoding does not allocate. Only while it
    /// runs: waiting sequences stay small.
    pub(crate) fn reserve_capacity(&mut self, block_size: usize) {
        let num_tokens_max = self.stop.num_tokens_max();
        self.tokens
            .reserve_exact(num_tokens_max.saturating_sub(self.tokens.len()));
        self.chain.reserve(num_tokens_max);
        for table in &mut self.tables {
            let num_blocks = num_tokens_max.div_ceil(block_size);
            table.reserve_capacity(num_blocks);
        }
    }

    /// Tokens to run until nothing is left to compute: what prefill, decode and recomputation have
    /// in common, and the only thing the scheduler asks.
    ///
    /// The rule is known tokens + drafts + placeholders - computed tokens. Drafts (speculation) are
    /// added here and nowhere else. The last token a sequence can have is never run: nothing
    /// follows it.
    pub(crate) fn num_to_schedule(&self) -> usize {
        if self.waits_for_siblings {
            return 0;
        }
        let num_run_max = self.stop.num_tokens_max() - 1;
        let num_known = (self.tokens.len() + self.num_placeholders).min(num_run_max);
        num_known.saturating_sub(self.num_computed) + self.draft.len()
    }

    /// Most draft tokens that a sequence can use now: the token after them must still fit. None
    /// unless it is about to decode, and none where what follows is not one token.
    pub(crate) fn num_drafts_max(&self) -> usize {
        let is_decoding = self.num_to_schedule() == 1 && self.num_placeholders == 0;
        if is_decoding && self.draws == Draws::One && self.prompt_scores_are_told() {
            self.stop.num_tokens_max() - self.tokens.len() - 1
        } else {
            0
        }
    }

    fn prompt_scores_are_told(&self) -> bool {
        self.prompt_scores
            .is_none_or(|scores| scores.num_told >= self.num_prompt)
    }

    /// Whether its next inputs cannot be made before the host has seen the verdict in flight.
    pub(crate) fn waits_for_verdict(&self) -> bool {
        let needs_host = self.grammar.is_some()
            || self.draws != Draws::One
            || self.overlap == Overlap::AwaitsHost
            || self.num_drafts_in_flight > 0;
        needs_host && self.num_placeholders > 0
    }

    /// Whether the last of `num_scheduled` tokens is the last one known, so that its logits give
    /// the next.
    pub(crate) fn is_sampled_after(&self, num_scheduled: usize) -> bool {
        self.num_computed + num_scheduled
            == self.tokens.len() + self.num_placeholders + self.draft.len()
    }

    /// Position that the next sampled token takes.
    pub(crate) fn next_position(&self) -> usize {
        self.tokens.len() + self.num_placeholders
    }

    /// Tokens that must not come at `position`.
    pub(crate) fn banned(&self, position: usize) -> impl Iterator<Item = TokenId> + '_ {
        self.stop.banned(position)
    }

    /// Appends `token`, which the target chose. Tells `events` of it, unless the sequence logs its
    /// output. Returns why the sequence ends with it, if it does.
    ///
    /// Whoever commits several tokens (accepted drafts) stops at the first that ends the sequence:
    /// ids, text, log-probabilities and usage share this one cut.
    pub(crate) fn commit<V: Vocabulary + ?Sized>(
        &mut self,
        token: TokenId,
        logprobs: Option<RowLogprobs<'_>>,
        vocabulary: &V,
        events: &mut Events,
    ) -> Option<FinishReason> {
        self.tokens.push(token);
        if let Some(counts) = &mut self.counts {
            counts.push(token);
        }
        let num_tokens = self.tokens.len();
        let text_start = events.text_mut().len();
        let stopped = self
            .stop
            .push(token, num_tokens, vocabulary, events.text_mut());
        match &mut self.log {
            Some(log) => {
                events.text_mut().truncate(text_start);
                if let Some(logprobs) = logprobs {
                    log.push(logprobs);
                }
            }
            None => events.push_token((self.request, self.sample), token, logprobs),
        }
        end_reason(self.grammar.as_mut(), token, stopped)
    }

    /// Appends to `events` the text that was held back: nothing more comes.
    pub(crate) fn finish_text(&mut self, events: &mut Events) {
        if self.log.is_none() {
            self.stop.finish(events.text_mut());
        }
    }

    /// Most tokens it can generate.
    pub(crate) fn num_output_max(&self) -> usize {
        self.stop.num_tokens_max() - self.num_prompt
    }

    /// Tokens `[0, num_trusted)` have their keys and values in its blocks whatever becomes of the
    /// steps in flight.
    pub(crate) fn num_trusted(&self) -> usize {
        if self.has_copies_in_flight || self.is_distrusted {
            0
        } else {
            self.num_verified
        }
    }

    /// The tokens generated so far.
    pub(crate) fn output(&self) -> &[TokenId] {
        &self.tokens[self.num_prompt..]
    }

    /// Back to having computed nothing; the blocks must be released already. Tokens, text and stop
    /// conditions stay: what was generated is never generated, nor streamed, again. Results of
    /// steps in flight are of the old generation.
    pub(crate) fn restart(&mut self, generation: Generation) {
        self.rollback(generation);
        self.num_computed = 0;
        self.num_verified = 0;
    }

    /// Back to what was collected: steps in flight count for nothing. The keys and values that they
    /// write stay where they are and are overwritten; block tables do not change.
    pub(crate) fn rollback(&mut self, generation: Generation) {
        self.has_copies_in_flight = false;
        self.generation = generation;
        self.num_computed = self.num_verified;
        self.num_placeholders = 0;
        self.placeholder_row = None;
        self.draft.clear();
        self.num_drafts_in_flight = 0;
    }
}

#[cfg(test)]
pub(crate) mod tests;
