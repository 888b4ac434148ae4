//! Decides which sequences run how many tokens in a step.
//!
//! Neighbours: called first by `engine.rs`; who waits and who runs is in `queues.rs`; takes slots
//! from `block_manager`; its plan becomes the arrays of `step_batch/`.
//!
//! There is no prefill or decode state: a sequence runs what it has not computed, as far as budget
//! and blocks reach. Those with one token to run come first, so that a long prompt never holds up
//! the others' next token.

use crate::block_manager::BlockManager;
use crate::queues::Queues;
use crate::request_store::RequestStore;
use crate::sequence::Sequence;
use crate::sequence_store::SequenceStore;
use crate::{EngineConfig, Generation, MissReason, PrefixHit, SeqId};

/// What one step runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// In batch order: running sequences with one token, other running ones, then those admitted in
    /// this step.
    pub scheduled: Vec<ScheduledSeq>,
    /// Sequences that gave up their blocks, in that order.
    pub preempted: Vec<SeqId>,
    /// Sequences that came out of the queue.
    pub admitted: Vec<Admission>,
    /// Sum of all `num_scheduled`.
    pub num_tokens: usize,
}

/// One sequence's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledSeq {
    /// The sequence.
    pub seq: SeqId,
    /// Its generation, without which the id means nothing later.
    pub generation: Generation,
    /// Tokens it has computed before this step.
    pub num_computed: usize,
    /// Tokens it runs, at least 1, drafts included.
    pub num_scheduled: usize,
    /// Draft tokens among them.
    pub num_drafts: usize,
    /// Blocks are copied for it in this step.
    pub has_copies: bool,
}

/// A sequence that came out of the queue, and what it found in the prefix cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The sequence.
    pub seq: SeqId,
    /// Tokens that might have been found.
    pub num_looked_up: usize,
    /// Tokens found.
    pub num_cached: usize,
    /// Why not more.
    pub miss: MissReason,
}

/// What planning reads and changes besides the queues.
#[derive(Debug)]
pub(crate) struct PlanContext<'a> {
    pub(crate) sequences: &'a mut SequenceStore,
    pub(crate) requests: &'a RequestStore,
    pub(crate) blocks: &'a mut BlockManager,
    /// Steps are in flight: whoever has nothing to run may wait for one of them.
    pub(crate) has_steps_in_flight: bool,
}

/// Plans steps.
#[derive(Debug)]
pub(crate) struct Scheduler {
    step_tokens_max: usize,
    step_seqs_max: usize,
    prefill_tokens_max: usize,
    block_size: usize,
    wait_steps_max: u64,
    pub(crate) queues: Queues,
}

/// Prompt positions of a sequence that are scored in one step: each has a row of logits.
const PROMPT_SCORES_MAX: usize = 32;

impl Scheduler {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let scheduling = &config.scheduling;
        Self {
            step_tokens_max: config.step_tokens_max,
            step_seqs_max: config.step_seqs_max,
            prefill_tokens_max: scheduling.prefill_tokens_max.unwrap_or(usize::MAX),
            block_size: config.block_size,
            wait_steps_max: scheduling.wait_steps_max,
            queues: Queues::default(),
        }
    }

    /// Plans one step and reserves a slot for each of its tokens. An empty plan means that there is
    /// nothing to do before a step in flight, or something outside, has come.
    ///
    /// # Panics
    /// If sequences wait, nothing is in flight and none can run: admission takes only what fits an
    /// empty pool, so the first always can.
    pub(crate) fn plan(&mut self, context: &mut PlanContext<'_>, plan: &mut StepPlan) {
        plan.clear();
        self.queues
            .begin_step(self.wait_steps_max, context.sequences);
        loop {
            // After a preemption this admits nobody: who gave up blocks is first in the queue, and
            // needs at least as many, of which some are taken.
            if !self.plan_running(context, plan) {
                self.admit(context, plan);
            }
            if plan.num_tokens > 0 || context.has_steps_in_flight {
                return;
            }
            if !self.make_room(context, plan) {
                let num_stuck = self.queues.num_waiting() + self.queues.running().len();
                assert!(num_stuck == 0, "{num_stuck} sequences, none can run");
                return;
            }
        }
    }

    /// Running sequences by rank, those with one token first. Says whether one lacked blocks.
    fn plan_running(&mut self, context: &mut PlanContext<'_>, plan: &mut StepPlan) -> bool {
        let mut lacked_blocks = false;
        for runs_one in [true, false] {
            let mut index = 0;
            let sequences = &context.sequences;
            let running = self.queues.running().iter();
            let mut num_left = running
                .filter(|&&(_, seq)| runs_now(sequences.get(seq), runs_one))
                .count();
            while index < self.queues.running().len() && plan.num_tokens < self.step_tokens_max {
                let (_, seq) = self.queues.running()[index];
                if runs_now(context.sequences.get(seq), runs_one) {
                    // Drafts never take the place of another sequence's next token.
                    num_left -= 1;
                    let kept = plan.num_tokens + if runs_one { num_left } else { 0 };
                    let room = self.step_tokens_max.saturating_sub(kept);
                    let room = room.min(self.prefill_tokens_max).max(1);
                    let sequence = context.sequences.get_mut(seq);
                    sequence.draft.truncate(room - 1);
                    sequence.draft.sort_depth_first();
                    lacked_blocks |= self.schedule_running(seq, context, plan);
                }
                // Those preempted meanwhile came after it.
                index += 1;
            }
        }
        lacked_blocks
    }

    /// Gives a running sequence its slots. Where blocks are short it takes those of the last in
    /// rank that are not scheduled in this step, and is left out itself if it is the last: then it
    /// keeps its blocks until somebody takes them. Says whether blocks were short.
    fn schedule_running(
        &mut self,
        seq: SeqId,
        context: &mut PlanContext<'_>,
        plan: &mut StepPlan,
    ) -> bool {
        let mut lacked_blocks = false;
        loop {
            let sequence = context.sequences.get_mut(seq);
            let num_scheduled = self.num_within_budget(sequence, plan);
            if reserve(sequence, num_scheduled, context.blocks, plan).is_ok() {
                return lacked_blocks;
            }
            if !sequence.draft.is_empty() {
                // Guesses are not worth anybody's blocks.
                sequence.draft.clear();
                continue;
            }
            lacked_blocks = true;
            let is_scheduled = |id| plan.scheduled.iter().any(|s: &ScheduledSeq| s.seq == id);
            let running = self.queues.running();
            let last = running.iter().rev().find(|&&(_, id)| !is_scheduled(id));
            let &(_, last) = last.expect("the one that asks is not scheduled yet");
            if last != seq {
                self.preempt(last, context, plan);
            } else if running.len() > 1 || !context.blocks.break_oldest_pin() {
                assert!(
                    running.len() > 1 || context.has_steps_in_flight,
                    "a sequence alone finds no blocks"
                );
                return lacked_blocks;
            }
        }
    }

    /// Waiting sequences in order of rank, as far as places, budget and blocks reach. The first that
    /// does not fit ends it: nobody overtakes.
    fn admit(&mut self, context: &mut PlanContext<'_>, plan: &mut StepPlan) {
        while plan.num_tokens < self.step_tokens_max {
            let Some(seq) = self.queues.first_waiting() else {
                return;
            };
            if !self.has_place(seq, context) {
                return;
            }
            let sequence = context.sequences.get_mut(seq);
            let Some(hit) = look_up_with_room(sequence, context.blocks) else {
                return;
            };
            let num_tokens = sequence.tokens.len();
            sequence.reserve_capacity(self.block_size);
            let has_copies = hit.has_copies();
            let num_cached = context
                .blocks
                .adopt(&mut sequence.tables, &hit)
                .expect("there is room for all tokens");
            sequence.num_computed = num_cached;
            sequence.num_verified = num_cached;
            let num_scheduled = self.num_within_budget(sequence, plan);
            reserve(sequence, num_scheduled, context.blocks, plan)
                .expect("there is room for all tokens");
            let scheduled = plan.scheduled.last_mut().expect("just pushed");
            scheduled.has_copies |= has_copies;
            sequence.has_copies_in_flight |= has_copies;
            plan.admitted.push(Admission {
                seq,
                num_looked_up: num_tokens - 1,
                num_cached,
                miss: hit.miss,
            });
            self.queues.run(context.sequences.get_mut(seq));
        }
    }

    /// Whether the running sequences leave a place for the request of `seq`, at its full width. A
    /// request that runs already has its places.
    fn has_place(&self, seq: SeqId, context: &PlanContext<'_>) -> bool {
        let running = self.queues.running();
        if running.len() >= self.step_seqs_max {
            return false;
        }
        let request = context.sequences.get(seq).request;
        let mut num_places = context.requests.get(request).num_places();
        let mut last = None;
        // A request's sequences are neighbours in rank.
        for (rank, _) in running {
            if rank.request == request {
                return true;
            }
            if last != Some(rank.request) {
                num_places += context.requests.get(rank.request).num_places();
                last = Some(rank.request);
            }
        }
        num_places <= self.step_seqs_max
    }

    /// Nothing could be scheduled and nothing is in flight: takes the blocks of the last running
    /// sequence, which waits for its siblings, or breaks a pin. Says whether there was something.
    fn make_room(&mut self, context: &mut PlanContext<'_>, plan: &mut StepPlan) -> bool {
        let is_waiting = self.queues.num_waiting() > 0;
        match self.queues.running().last() {
            Some(&(_, last)) if is_waiting || self.queues.running().len() > 1 => {
                self.preempt(last, context, plan);
                true
            }
            _ => is_waiting && context.blocks.break_oldest_pin(),
        }
    }

    /// Takes all blocks of a running sequence, which will compute its tokens again, as far as the
    /// prefix cache does not keep them.
    pub(crate) fn preempt(
        &mut self,
        seq: SeqId,
        context: &mut PlanContext<'_>,
        plan: &mut StepPlan,
    ) {
        let generation = context.sequences.next_generation();
        let sequence = context.sequences.get_mut(seq);
        let num_trusted = sequence.num_trusted();
        context.blocks.release_published(
            &mut sequence.tables,
            &mut sequence.chain,
            &sequence.tokens,
            num_trusted,
        );
        sequence.restart(generation);
        self.queues.stop_running(sequence);
        if sequence.waits_for_siblings {
            self.queues.park(sequence);
        } else {
            self.queues.wait(sequence);
        }
        plan.preempted.push(seq);
    }

    /// The share of a sequence. A longer prompt is cut to what is left of the step (chunked
    /// prefill), and to what one prompt may take of a step.
    fn num_within_budget(&self, sequence: &Sequence, plan: &StepPlan) -> usize {
        let by_scores = match sequence.prompt_scores {
            Some(scores) if scores.num_told < sequence.num_prompt => PROMPT_SCORES_MAX,
            _ => usize::MAX,
        };
        sequence
            .num_to_schedule()
            .min(self.step_tokens_max - plan.num_tokens)
            .min(self.prefill_tokens_max)
            .min(by_scores)
    }
}

/// Whether a running sequence runs in the pass over those that have one token to run, or the others.
/// Drafts do not count.
fn runs_now(sequence: &Sequence, runs_one: bool) -> bool {
    let num_known = sequence.num_to_schedule() - sequence.draft.len();
    num_known > 0 && (num_known == 1) == runs_one && !sequence.waits_for_verdict()
}

/// Slots for the next `num_scheduled` tokens of a sequence, and its entry in the plan.
fn reserve(
    sequence: &mut Sequence,
    num_scheduled: usize,
    blocks: &mut BlockManager,
    plan: &mut StepPlan,
) -> Result<(), crate::OutOfBlocks> {
    let num_computed = sequence.num_computed;
    let num_copies = blocks.num_copies();
    blocks.reserve(
        &mut sequence.tables,
        num_computed,
        num_computed + num_scheduled,
    )?;
    let has_copies = blocks.num_copies() > num_copies;
    sequence.has_copies_in_flight |= has_copies;
    plan.num_tokens += num_scheduled;
    plan.scheduled.push(ScheduledSeq {
        seq: sequence.id,
        generation: sequence.generation,
        num_computed,
        num_scheduled,
        num_drafts: sequence.draft.len(),
        has_copies,
    });
    Ok(())
}

/// What the cache has of a sequence, if there is room for all its known tokens, not only for the
/// next chunk: a sequence that could not finish its prompt would be preempted again, its work lost.
fn look_up_with_room(sequence: &mut Sequence, blocks: &BlockManager) -> Option<PrefixHit> {
    let hit = look_up(sequence, blocks);
    let num_tokens = sequence.tokens.len();
    let has_room = |hit: &PrefixHit| {
        let room = blocks.check_room(&sequence.tables, Some(hit), num_tokens);
        room.is_ok()
    };
    if has_room(&hit) {
        return Some(hit);
    }
    // A block to copy from is one more than the sequence needs: it must never keep it waiting.
    Some(hit.without_partial()).filter(has_room)
}

/// What the cache has of a sequence that computed nothing. Requests that want log-probabilities of
/// the prompt have to compute all of it.
fn look_up(sequence: &mut Sequence, blocks: &BlockManager) -> PrefixHit {
    let is_scored = sequence
        .prompt_scores
        .is_some_and(|scores| scores.num_told < sequence.num_prompt);
    let num_tokens_max = if is_scored {
        0
    } else {
        sequence.tokens.len() - 1
    };
    blocks.lookup(&mut sequence.chain, &sequence.tokens, num_tokens_max)
}

impl StepPlan {
    /// Becomes a copy of `other` without allocating, once it has grown.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.scheduled.clone_from(&other.scheduled);
        self.preempted.clone_from(&other.preempted);
        self.admitted.clone_from(&other.admitted);
        self.num_tokens = other.num_tokens;
    }

    fn clear(&mut self) {
        self.scheduled.clear();
        self.preempted.clear();
        self.admitted.clear();
        self.num_tokens = 0;
    }
}
