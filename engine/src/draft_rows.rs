//! The logit rows of a sequence with a draft: one for its anchor, one for each draft token, every one
//! with the chain of its own path.
//!
//! Neighbours: called by `sampling_rows.rs`, which makes single rows; the tree is `spec/tree.rs`;
//! `commit_draft.rs` walks the verdicts.

use crate::sampling_rows::{RowPurpose, SamplingRow};
use crate::sequence::Sequence;
use crate::step_batch::{MaskFailure, StepBatch};
use crate::{DraftDraw, DraftTree, Grammar, TokenId};

impl StepBatch {
    /// Rows of a sequence whose draft tokens are the last that were pushed. Penalties count the
    /// tokens of each row's path, and grammars have taken them.
    pub(crate) fn push_drafted_rows(
        &mut self,
        index: u32,
        sequence: &mut Sequence,
        failures: &mut Vec<MaskFailure>,
    ) {
        let draft = std::mem::take(&mut sequence.draft);
        let mut grammar = sequence.grammar.take();
        let base = sequence.next_position();
        let anchor_token = (self.token_ids.len() - draft.len()) as u32 - 1;
        let anchor_row = self.logit_rows.len() as u32;
        let shared = SamplingRow {
            seed: (sequence.sampling.seed).wrapping_add(u64::from(sequence.sample)),
            verification: sequence.verification,
            anchor: base as u32 - 1,
            ..self.processed_row(sequence, grammar.as_mut(), (&[], base), failures)
        };
        let row = SamplingRow {
            num_drafts: draft.len() as u32,
            ..shared
        };
        let sample = sequence.sample;
        self.push_row(index, anchor_token, RowPurpose::Sample { sample }, row);
        let states = grammar.as_deref().map(|grammar| states(&draft, grammar));
        let mut states = states.unwrap_or_default();
        let mut path = Vec::new();
        let num_failures = failures.len();
        for (node, guess) in draft.nodes().iter().enumerate() {
            path.clear();
            let tokens = draft.path(node as u32);
            path.extend(tokens.map(|node| draft.nodes()[node as usize].token));
            path.reverse();
            let position = base + path.len();
            // What the grammar refuses is never reached.
            let state = states.get_mut(node).and_then(Option::as_mut);
            let chain = self.processed_row(sequence, state, (&path, position), failures);
            let token = anchor_token + 1 + node as u32;
            let entry = self.seq_of_token[token as usize];
            let row = SamplingRow {
                seed: shared.seed,
                verification: shared.verification,
                anchor: shared.anchor,
                parent_row: Some(anchor_row + guess.parent.map_or(0, |parent| parent + 1)),
                draft_row: match guess.draw {
                    DraftDraw::Deterministic => None,
                    DraftDraw::Sampled { row } => Some(row),
                },
                ..chain
            };
            // It may never come to that.
            let row_index = self.logit_rows.len() as u32;
            let dead_ends = failures.drain(num_failures..);
            self.dead_ends
                .extend(dead_ends.map(|failure| (row_index, failure.error)));
            let node = node as u32;
            self.push_row(entry, token, RowPurpose::Draft { node }, row);
        }
        sequence.grammar = grammar;
        sequence.draft = draft;
    }
}

/// The grammar behind each node; none behind tokens that it refuses, and behind those that end the
/// text.
fn states(draft: &DraftTree, grammar: &dyn Grammar) -> Vec<Option<Box<dyn Grammar>>> {
    let mut states: Vec<Option<Box<dyn Grammar>>> = Vec::with_capacity(draft.len());
    let take = |state: &dyn Grammar, token: TokenId| {
        let mut state = state.fork();
        let goes_on = state.accept(token).is_ok() && !state.is_finished();
        goes_on.then_some(state)
    };
    for node in draft.nodes() {
        let before = match node.parent {
            None => Some(grammar),
            Some(parent) => states[parent as usize].as_deref(),
        };
        states.push(before.and_then(|state| take(state, node.token)));
    }
    states
}
