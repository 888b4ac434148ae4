//! Decides which sequences run how many tokens in a step.
//!
//! Neighbours: called first by `engine.rs`; takes slots from `block_manager.rs`; its plan becomes
//! the arrays of `step_batch.rs`.
//!
//! There is no prefill or decode state: a sequence runs what it has not computed, as far as budget
//! and blocks reach.

use std::collections::VecDeque;

use crate::block_manager::BlockManager;
use crate::sequence_store::SequenceStore;
use crate::{EngineConfig, Generation, SeqId};

/// What one step runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// In batch order: running sequences by age, then those admitted in this step.
    pub scheduled: Vec<ScheduledSeq>,
    /// Sequences that gave up their blocks, newest first.
    pub preempted: Vec<SeqId>,
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
    /// Tokens it runs, at least 1.
    pub num_scheduled: usize,
}

/// The two queues: first come, first served. (A third, for sequences that wait on something
/// outside, and priorities come with issue 3.)
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    step_tokens_max: usize,
    step_seqs_max: usize,
    block_size: usize,
    waiting: VecDeque<SeqId>,
    /// By age: the oldest first. Preemption takes the newest, so the oldest always goes on.
    running: Vec<SeqId>,
}

impl Scheduler {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            step_tokens_max: config.step_tokens_max,
            step_seqs_max: config.step_seqs_max,
            block_size: config.block_size,
            waiting: VecDeque::new(),
            running: Vec::new(),
        }
    }

    /// A new sequence, at the end of the queue.
    pub(crate) fn enqueue(&mut self, seq: SeqId) {
        self.waiting.push_back(seq);
    }

    /// Takes sequences that have ended out of the queues.
    pub(crate) fn forget_finished(&mut self, sequences: &SequenceStore) {
        self.running.retain(|&seq| sequences.contains(seq));
        // Waiting ones end only when they are aborted, and there may be many.
        if self.num_queued() != sequences.len() {
            self.waiting.retain(|&seq| sequences.contains(seq));
        }
    }

    /// Sequences in all queues.
    pub(crate) fn num_queued(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = SeqId> + '_ {
        self.waiting.iter().copied()
    }

    pub(crate) fn running(&self) -> &[SeqId] {
        &self.running
    }

    /// Plans one step and reserves a slot for each of its tokens.
    ///
    /// # Panics
    /// If sequences exist and none can run: admission takes only what fits an empty pool, so the
    /// oldest always can.
    pub(crate) fn plan(
        &mut self,
        sequences: &mut SequenceStore,
        blocks: &mut BlockManager,
        plan: &mut StepPlan,
    ) {
        plan.scheduled.clear();
        plan.preempted.clear();
        plan.num_tokens = 0;
        self.plan_running(sequences, blocks, plan);
        // After a preemption this admits nobody: who gave up blocks stands at the head of the queue
        // and needs at least as many, of which some are taken.
        self.admit(sequences, blocks, plan);
        let is_idle = sequences.is_empty();
        assert!(
            is_idle || plan.num_tokens > 0,
            "{} sequences, none can run",
            sequences.len()
        );
    }

    /// Running sequences by age. Whoever finds no blocks takes those of the newest.
    fn plan_running(
        &mut self,
        sequences: &mut SequenceStore,
        blocks: &mut BlockManager,
        plan: &mut StepPlan,
    ) {
        let mut index = 0;
        while index < self.running.len() && plan.num_tokens < self.step_tokens_max {
            let seq = self.running[index];
            let sequence = sequences.get_mut(seq);
            let num_scheduled = self.num_within_budget(sequence.num_to_schedule(), plan);
            let num_tokens = sequence.num_computed + num_scheduled;
            if blocks
                .reserve(&mut sequence.tables, sequence.num_computed, num_tokens)
                .is_ok()
            {
                plan.push(ScheduledSeq {
                    seq,
                    generation: sequence.generation,
                    num_scheduled,
                });
                index += 1;
            } else {
                // Never one that is scheduled already: those are older, and at most this one goes.
                self.preempt_newest(sequences, blocks, plan);
            }
        }
    }

    /// Waiting sequences in order, as far as places, budget and blocks reach. The first that does
    /// not fit ends it: nobody overtakes.
    fn admit(
        &mut self,
        sequences: &mut SequenceStore,
        blocks: &mut BlockManager,
        plan: &mut StepPlan,
    ) {
        while self.running.len() < self.step_seqs_max && plan.num_tokens < self.step_tokens_max {
            let Some(&seq) = self.waiting.front() else {
                return;
            };
            let sequence = sequences.get_mut(seq);
            // Room for all known tokens, not only for this chunk: a sequence that could not finish
            // its prompt would be preempted again, its work lost.
            if blocks
                .check_room(&sequence.tables, None, sequence.tokens.len())
                .is_err()
            {
                return;
            }
            let num_scheduled = self.num_within_budget(sequence.num_to_schedule(), plan);
            let num_tokens = sequence.num_computed + num_scheduled;
            sequence.reserve_capacity(self.block_size);
            blocks
                .reserve(&mut sequence.tables, 0, num_tokens)
                .expect("there is room for all tokens");
            plan.push(ScheduledSeq {
                seq,
                generation: sequence.generation,
                num_scheduled,
            });
            self.running.push(seq);
            self.waiting.pop_front();
        }
    }

    /// Takes all blocks of the newest running sequence, which will compute its tokens again, and
    /// puts it at the head of the queue: it came before everybody there.
    fn preempt_newest(
        &mut self,
        sequences: &mut SequenceStore,
        blocks: &mut BlockManager,
        plan: &mut StepPlan,
    ) {
        let seq = self.running.pop().expect("somebody asked for blocks");
        let generation = sequences.next_generation();
        let sequence = sequences.get_mut(seq);
        blocks.release(&mut sequence.tables);
        sequence.restart(generation);
        self.waiting.push_front(seq);
        plan.preempted.push(seq);
    }

    /// The share of a sequence that has `num_to_schedule` tokens to run. A longer prompt is cut to
    /// what is left of the step (chunked prefill).
    fn num_within_budget(&self, num_to_schedule: usize, plan: &StepPlan) -> usize {
        num_to_schedule.min(self.step_tokens_max - plan.num_tokens)
    }
}

impl StepPlan {
    fn push(&mut self, scheduled: ScheduledSeq) {
        self.num_tokens += scheduled.num_scheduled;
        self.scheduled.push(scheduled);
    }
}
