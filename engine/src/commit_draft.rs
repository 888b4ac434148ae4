//! What becomes of a verified draft: the tokens it accepted, and the one that the target chose behind
//! them.
//!
//! Neighbours: called by `commit.rs` with the row of an anchor; rows were made by `draft_rows.rs`.
//!
//! A row's verdict is the token behind its path. Where a child has that token and was reached, it is
//! accepted and its row says what follows: all ways to verify a draft come down to this walk.

use crate::in_flight::Step;
use crate::sampling_rows::RowPurpose;
use crate::{Engine, Executor, FailureCause, FinishReason, Verdict, Vocabulary};

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// Commits what the draft whose anchor has row `anchor_row` brought. Stops at the first token that
    /// ends the sequence: ids, text, log-probabilities, usage and published blocks share this cut.
    pub(crate) fn commit_draft(&mut self, step: &Step, anchor_row: usize) {
        let batch = &step.batch;
        let entry = batch.seqs[batch.logit_seqs[anchor_row] as usize];
        let draft = &step.drafts[entry.planned as usize];
        let (mut row, mut node, mut num_accepted) = (anchor_row, None, 0);
        let mut path = std::mem::take(&mut self.draft_path);
        path.clear();
        path.push(row);
        while let Verdict::Token(token) = self.output.verdicts()[row] {
            let Some(child) = draft.child(node, token) else {
                break;
            };
            let child_row = anchor_row + 1 + child as usize;
            if self.output.verdicts()[child_row] == Verdict::Unreached {
                // A residual may draw the very token that was rejected.
                break;
            }
            node = Some(child);
            row = child_row;
            num_accepted += 1;
            path.push(row);
        }
        self.record_draft(step, entry.planned, num_accepted);
        for (index, &row) in path.iter().enumerate() {
            let mut dead_ends = batch.dead_ends.iter();
            if let Some((_, error)) = dead_ends.find(|&&(at, _)| at as usize == row) {
                let cause = FailureCause::Grammar(error.message.clone());
                self.end_request(entry.request, &FinishReason::Error(cause));
                break;
            }
            match self.output.verdicts()[row] {
                Verdict::Token(token) => {
                    if index < num_accepted {
                        // Its keys and values are there, in place.
                        let sequence = self.sequences.get_mut(entry.seq);
                        sequence.num_verified += 1;
                        sequence.num_computed += 1;
                    }
                    if !self.commit_token(entry.seq, token, row) {
                        break;
                    }
                }
                Verdict::NotFinite => {
                    let position = batch.positions[batch.logit_rows[row] as usize] as usize;
                    let reason = FinishReason::Error(FailureCause::NotFinite { position });
                    self.sequences.get_mut(entry.seq).is_distrusted = true;
                    let sample = self.sequences.get(entry.seq).sample;
                    self.fail_row(entry.seq, RowPurpose::Sample { sample }, reason);
                }
                Verdict::Unreached => unreachable!("the path leads along rows that were reached"),
            }
        }
        self.draft_path = path;
    }

    fn record_draft(&mut self, step: &Step, planned: u32, num_accepted: usize) {
        let scheduled = &step.plan.scheduled[planned as usize];
        let draft = &step.drafts[planned as usize];
        let sequence = self.sequences.get_mut(scheduled.seq);
        sequence.num_steps_undrafted = 0;
        let sample = (sequence.request, sequence.sample);
        if sequence.log.is_none() {
            self.events.push_draft(sample, draft.clone(), num_accepted);
        }
        let nodes = 0..draft.len() as u32;
        let depth = nodes.map(|node| draft.depth(node)).max().unwrap_or(0);
        let drafter = self.speculator.name(sequence.drafter);
        let request = self.requests.get_mut(sequence.request);
        let size = (draft.len(), depth);
        let report = &mut request.spec_report;
        report.record_draft(drafter, size, num_accepted);
        // Its share of the step, by rows.
        let share = self.pass_us * scheduled.num_scheduled as u64 / step.plan.num_tokens as u64;
        report.verify_us += share;
        report.draft_us += step.draft_us / step.plan.scheduled.len() as u64;
    }
}
