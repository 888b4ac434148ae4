//! What becomes of a step's verdicts: tokens, forks, ends, published blocks; and of a step that
//! failed.
//!
//! Neighbours: called by `engine.rs` for the oldest step in flight; drafts are walked in
//! `commit_draft.rs`; beams go on in `beam_step.rs`, ends in `finish.rs`.

use crate::in_flight::{Step, take_draft};
use crate::sampling_rows::RowPurpose;
use crate::scheduler::ScheduledSeq;
use crate::sequence::Draws;
use crate::{
    Engine, Executor, ExecutorError, FailureCause, FailureScope, FinishReason, RequestId, SeqId,
    StepPlan, Timestamp, TokenId, Verdict, Vocabulary,
};

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// Takes the oldest step's verdicts, if one is in flight.
    pub(crate) fn collect_oldest(&mut self, mut clock: impl FnMut() -> Timestamp) {
        let Some(step) = self.in_flight.pop_oldest() else {
            return;
        };
        self.output.clear();
        let collected = self.executor.collect(&mut self.output);
        // With a step behind it, it began when the one before had ended.
        let began_at = self.now.max(step.submitted_at);
        self.now = clock();
        self.pass_us = self.now.since(began_at);
        match collected {
            Ok(()) if self.output.verdicts().len() == step.batch.num_logit_rows() => {
                self.commit(&step);
                self.in_flight.recycle(step);
            }
            Ok(()) => {
                let (found, expected) = (self.output.verdicts().len(), step.batch.num_logit_rows());
                let message = format!("{found} verdicts came for {expected} logit rows");
                let scope = FailureScope::All;
                self.fail_step(step, &ExecutorError { scope, message });
            }
            Err(error) => self.fail_step(step, &error),
        }
    }

    /// Counts what a submitted step runs as computed, and its rows as tokens on their way.
    pub(crate) fn count_as_computed(&mut self, step: &mut Step) {
        for (planned, scheduled) in step.plan.scheduled.iter().enumerate() {
            let sequence = self.sequences.get_mut(scheduled.seq);
            // The row of an earlier step is of no use to the one after this.
            sequence.placeholder_row = None;
            if sequence.is_sampled_after(scheduled.num_scheduled) {
                sequence.num_placeholders += 1;
            }
            sequence.num_computed += scheduled.num_scheduled;
            sequence.num_drafts_in_flight = scheduled.num_drafts;
            take_draft(&mut step.drafts, planned, &mut sequence.draft);
        }
        for (row, purpose) in step.batch.purposes.iter().enumerate() {
            if matches!(purpose, RowPurpose::Sample { .. }) {
                let seq = step.batch.seqs[step.batch.logit_seqs[row] as usize].seq;
                self.sequences.get_mut(seq).placeholder_row = Some(row as u32);
            }
        }
    }

    /// Counts a step's tokens as verified, takes what was sampled, publishes full blocks, and frees
    /// those of whoever has ended.
    fn commit(&mut self, step: &Step) {
        for scheduled in &step.plan.scheduled {
            self.count_as_verified(scheduled);
        }
        self.num_emitted = 0;
        for row in 0..step.batch.num_logit_rows() {
            self.commit_row(step, row);
        }
        self.advance_beams(step);
        self.record_passes(step);
        for scheduled in &step.plan.scheduled {
            self.publish(scheduled);
        }
        self.record_step(&step.plan);
    }

    fn count_as_verified(&mut self, scheduled: &ScheduledSeq) {
        let current = self
            .sequences
            .get_current(scheduled.seq, scheduled.generation);
        if let Some(sequence) = current {
            let num_known = scheduled.num_scheduled - scheduled.num_drafts;
            sequence.num_verified = scheduled.num_computed + num_known;
            if scheduled.num_drafts > 0 {
                // What was accepted is added as it is committed; the rest is written over.
                sequence.num_computed = sequence.num_verified;
                sequence.num_drafts_in_flight = 0;
            }
            if sequence.num_verified >= sequence.tokens.len() {
                sequence.num_placeholders -= 1;
            }
            if scheduled.has_copies {
                sequence.has_copies_in_flight = false;
            }
            if let Some(scores) = &mut sequence.prompt_scores
                && scores.num_told == 0
            {
                // Nothing comes before the first token, so it has no score.
                scores.num_told = 1;
                let first = sequence.tokens[0];
                self.events.push_prompt_token(sequence.request, first, None);
            }
        }
    }

    /// Offers the blocks that are full and whose tokens are known to the prefix cache, then lets go
    /// of those that no later query sees: they can still be found.
    fn publish(&mut self, scheduled: &ScheduledSeq) {
        let current = self
            .sequences
            .get_current(scheduled.seq, scheduled.generation);
        if let Some(sequence) = current {
            self.blocks.publish(
                &mut sequence.tables,
                &mut sequence.chain,
                &sequence.tokens,
                sequence.num_verified,
            );
            self.blocks
                .release_outside_windows(&mut sequence.tables, sequence.num_verified);
        }
    }

    /// Takes the verdict of one logit row, unless its sequence has ended or was preempted since.
    fn commit_row(&mut self, step: &Step, row: usize) {
        let batch = &step.batch;
        let entry = batch.seqs[batch.logit_seqs[row] as usize];
        let Some(sequence) = self.sequences.get_current(entry.seq, entry.generation) else {
            return;
        };
        if matches!(batch.purposes[row], RowPurpose::Draft { .. }) {
            // Taken with the row of its anchor.
            return;
        }
        if self.output.verdicts()[row] == Verdict::NotFinite {
            let position = batch.positions[batch.logit_rows[row] as usize] as usize;
            let reason = FinishReason::Error(FailureCause::NotFinite { position });
            sequence.is_distrusted = true;
            return self.fail_row(entry.seq, batch.purposes[row], reason);
        }
        match batch.purposes[row] {
            RowPurpose::PromptScore { position } => {
                let scores = sequence.prompt_scores.as_mut();
                let scores = scores.expect("rows score prompts that asked for it");
                let position = position as usize;
                let request = sequence.request;
                scores.num_told = position + 1;
                let logprobs = self.output.logprobs(row);
                let token = sequence.tokens[position];
                self.events.push_prompt_token(request, token, logprobs);
            }
            RowPurpose::Sample { sample } => {
                self.note_decode_pass(step, row);
                if batch.sampling[row].num_drafts > 0 {
                    self.commit_draft(step, row);
                } else {
                    self.commit_sample(entry.seq, sample, row);
                }
            }
            RowPurpose::Draft { .. } => {}
            RowPurpose::Candidates => self.commit_candidates(entry.seq, row),
        }
    }

    /// Takes the candidates of a beam, which waits for those of its siblings then.
    fn commit_candidates(&mut self, seq: SeqId, row: usize) {
        let vocab_size = self.config.vocab_size;
        let sequence = self.sequences.get_mut(seq);
        let request = sequence.request;
        let logprobs = self.output.logprobs(row);
        let candidates = logprobs.map(|logprobs| logprobs.top).unwrap_or_default();
        let mut tokens = candidates.iter().map(|candidate| candidate.token);
        let cause = if candidates.is_empty() {
            let message = "no candidates came for a beam".to_owned();
            Some(FailureCause::Executor(message))
        } else {
            let outside = tokens.find(|token| token.0 as usize >= vocab_size);
            outside.map(|token| FailureCause::TokenOutOfVocabulary { token, vocab_size })
        };
        if let Some(cause) = cause {
            sequence.is_distrusted = true;
            return self.end_request(request, &FinishReason::Error(cause));
        }
        sequence.waits_for_siblings = true;
        let beam = self.requests.get_mut(request).beam.as_mut();
        let beam = beam.expect("beams have a search");
        beam.set_candidates(seq, candidates);
    }

    /// Appends a token to sample `sample`: the sequence's own, or one that forks from it now.
    fn commit_sample(&mut self, seq: SeqId, sample: u32, row: usize) {
        let sequence = self.sequences.get(seq);
        let seq = match sequence.draws {
            Draws::Fork(num_samples) if sample + 1 < num_samples => {
                // The sequence itself becomes the last sample, after all others took its state.
                let forked = self.fork(seq, sample);
                self.sequences.get_mut(seq).sample = sample + 1;
                forked
            }
            Draws::Fork(_) => {
                let sequence = self.sequences.get_mut(seq);
                sequence.draws = Draws::One;
                sequence.sample = sample;
                let request = self.requests.get_mut(sequence.request);
                request.has_forked = true;
                seq
            }
            Draws::One | Draws::Candidates(_) => seq,
        };
        if let Verdict::Token(token) = self.output.verdicts()[row] {
            self.commit_token(seq, token, row);
        }
    }

    /// Appends a token to a sequence. Says whether the sequence goes on.
    pub(crate) fn commit_token(&mut self, seq: SeqId, token: TokenId, row: usize) -> bool {
        let vocab_size = self.config.vocab_size;
        if token.0 as usize >= vocab_size {
            let cause = FailureCause::TokenOutOfVocabulary { token, vocab_size };
            self.sequences.get_mut(seq).is_distrusted = true;
            self.finish(seq, FinishReason::Error(cause));
            return false;
        }
        let sequence = self.sequences.get_mut(seq);
        let logprobs = self.output.logprobs(row);
        let reason = sequence.commit(token, logprobs, &self.vocabulary, &mut self.events);
        let request = self.requests.get_mut(sequence.request);
        request.facts.token(self.now);
        request.spec_report.emitted_tokens += u64::from(self.is_decoding);
        self.num_emitted += 1;
        match reason {
            Some(reason) => {
                self.finish(seq, reason);
                false
            }
            None => true,
        }
    }

    /// A row without a usable number ends what it was for: a sample, or the whole request.
    pub(crate) fn fail_row(&mut self, seq: SeqId, purpose: RowPurpose, reason: FinishReason) {
        let sequence = self.sequences.get(seq);
        let is_one_sample =
            matches!(purpose, RowPurpose::Sample { .. }) && sequence.draws == Draws::One;
        if is_one_sample {
            self.finish(seq, reason);
        } else {
            let request = sequence.request;
            self.end_request(request, &reason);
        }
    }

    /// A new sequence with the tokens and blocks of `parent`. Whose parent was preempted waits.
    pub(crate) fn fork(&mut self, parent: SeqId, sample: u32) -> SeqId {
        let tables = self.blocks.fork(&self.sequences.get(parent).tables);
        let is_running = self.scheduler.queues.is_running(self.sequences.get(parent));
        let name = self.sequences.reserve_name();
        let forked = self.sequences.get(parent).fork(name, sample, tables);
        let request = self.requests.get_mut(forked.request);
        request.live.push(name.id);
        let forked = self.sequences.put(forked);
        forked.reserve_capacity(self.config.block_size);
        if is_running {
            self.scheduler.queues.run(forked);
        } else {
            self.scheduler.queues.wait(forked);
        }
        name.id
    }

    /// A step that failed: nothing of it counts, nor of the step behind it, whose inputs it was to
    /// give. Only those named by `error` end; the others go back to what was collected. Whoever had
    /// blocks copied starts again, since nobody knows whether that was done.
    pub(crate) fn fail_step(&mut self, step: Step, error: &ExecutorError) {
        let mut failed = vec![step];
        while let Some(step) = self.in_flight.pop_oldest() {
            self.output.clear();
            // Its verdicts came from inputs that never were. Whether it fails too does not matter.
            let _ = self.executor.collect(&mut self.output);
            failed.push(step);
        }
        let is_named = |request: RequestId| match &error.scope {
            FailureScope::All => true,
            FailureScope::Requests(requests) => requests.contains(&request),
        };
        let seqs = &failed[0].batch.seqs;
        let names_nobody = !seqs.iter().any(|entry| is_named(entry.request));
        for entry in seqs {
            let is_here = self.requests.find(entry.request).is_some();
            if is_here && (names_nobody || is_named(entry.request)) {
                let cause = FailureCause::Executor(error.message.clone());
                self.end_request(entry.request, &FinishReason::Error(cause));
            }
        }
        for step in failed {
            for scheduled in &step.plan.scheduled {
                self.undo(scheduled);
            }
            self.in_flight.recycle(step);
        }
    }

    /// Takes a failed step's share back from a sequence that goes on.
    fn undo(&mut self, scheduled: &ScheduledSeq) {
        let generation = self.sequences.next_generation();
        let current = self
            .sequences
            .get_current(scheduled.seq, scheduled.generation);
        let Some(sequence) = current else { return };
        if sequence.has_copies_in_flight {
            let mut plan = StepPlan::default();
            self.preempt(scheduled.seq, &mut plan);
            self.note_plan(&plan);
        } else {
            sequence.rollback(generation);
        }
    }

    /// Ends the requests whose grammars gave no mask in the step just submitted.
    pub(crate) fn end_without_masks(&mut self) {
        while let Some(failure) = self.mask_failures.pop() {
            // Several of its sequences may have failed, or the step with it.
            if self.requests.find(failure.request).is_some() {
                let cause = FailureCause::Grammar(failure.error.message);
                self.end_request(failure.request, &FinishReason::Error(cause));
            }
        }
    }
}
