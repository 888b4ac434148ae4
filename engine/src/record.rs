//! What is counted of steps and requests while they run.
//!
//! Neighbours: called by `engine.rs` for plans and by `commit.rs` for verdicts; counts go to
//! `statistics/`, to each request's report, and to the controller of speculation.

use crate::in_flight::Step;
use crate::scheduler::ScheduledSeq;
use crate::statistics::StepFacts;
use crate::{Engine, Executor, StepPlan, Vocabulary};

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// Counts a pass that gives a sequence what follows one token, and not its prompt.
    pub(crate) fn note_decode_pass(&mut self, step: &Step, row: usize) {
        let entry = step.batch.seqs[step.batch.logit_seqs[row] as usize];
        let scheduled = &step.plan.scheduled[entry.planned as usize];
        self.is_decoding = scheduled.num_scheduled - scheduled.num_drafts == 1;
        let request = self.requests.get_mut(entry.request);
        request.spec_report.decode_passes += u64::from(self.is_decoding);
    }

    /// Notes who was preempted and admitted.
    pub(crate) fn note_plan(&mut self, plan: &StepPlan) {
        for &seq in &plan.preempted {
            let request = self.sequences.get(seq).request;
            self.requests.get_mut(request).facts.preempted();
        }
        for admission in &plan.admitted {
            let sequence = self.sequences.get(admission.seq);
            let request = self.requests.get_mut(sequence.request);
            let num_cached = admission.num_cached;
            if !request.was_admitted {
                request.was_admitted = true;
                request.usage.cached_tokens = num_cached.min(sequence.num_prompt);
            }
            request.facts.admitted(self.now, num_cached);
            self.statistics.record_prefix(
                admission.num_looked_up,
                num_cached,
                admission.miss.kind(),
            );
        }
    }

    /// What the step took, and whom it gave tokens.
    pub(crate) fn record_passes(&mut self, step: &Step) {
        let is_decode = |scheduled: &ScheduledSeq| {
            scheduled.num_scheduled - scheduled.num_drafts == 1 && !scheduled.has_copies
        };
        if step.plan.scheduled.iter().all(is_decode) && !step.has_model_drafts {
            let num_rows = step.plan.num_tokens;
            self.speculator.record_pass(num_rows, self.pass_us);
        }
    }

    pub(crate) fn record_step(&mut self, plan: &StepPlan) {
        let queues = &self.scheduler.queues;
        let groups = 0..self.blocks.num_groups();
        let blocks_used: usize = groups.clone().map(|g| self.blocks.num_referenced(g)).sum();
        let slots_allocated = blocks_used * self.config.block_size;
        // Every block is full but the last of each table.
        let num_empty = |seq| {
            let sequence = self.sequences.get(seq);
            let tables = sequence.tables.iter();
            let unfilled = tables.map(|t| t.capacity().saturating_sub(sequence.num_verified));
            unfilled.sum::<usize>()
        };
        let slots_empty: usize = queues.running().iter().map(|&(_, s)| num_empty(s)).sum();
        let facts = StepFacts {
            num_tokens: plan.num_tokens,
            num_seqs: plan.scheduled.len(),
            num_emitted: self.num_emitted,
            num_running: queues.running().len(),
            num_waiting: queues.num_waiting(),
            num_parked: queues.num_parked(),
            blocks_used,
            blocks_usable: groups.map(|g| self.blocks.num_usable(g)).sum(),
            slots_allocated,
            slots_filled: slots_allocated.saturating_sub(slots_empty),
            num_preempted: plan.preempted.len(),
        };
        self.statistics.record_step(&facts);
    }
}
