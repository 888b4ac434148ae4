//! The batch of one pass of a model that drafts.
//!
//! Neighbours: filled by `device_drafter.rs`; the arrays are those of `step_batch/`, so that a draft
//! pass runs as any other step.

use crate::sampling_rows::{NoisePurpose, RowPurpose, SamplingRow};
use crate::sequence::Sequence;
use crate::step_batch::{BatchSeq, CarriedToken, StepBatch};
use crate::{BlockTable, Grammar, Position, TokenId, Verification};

/// What a sequence runs in a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PassTokens<'a> {
    /// These.
    Known(&'a [TokenId]),
    /// The one that this row of the pass before decides.
    Carried(u32),
}

impl StepBatch {
    /// Adds tokens of a sequence from position `start` on, with the blocks of `tables`.
    pub(crate) fn push_pass(
        &mut self,
        sequence: &Sequence,
        tables: &[BlockTable],
        start: usize,
        tokens: PassTokens<'_>,
    ) {
        let index = self.seqs.len() as u32;
        match tokens {
            PassTokens::Known(tokens) => {
                self.token_ids.extend(tokens.iter().map(|token| token.0));
            }
            PassTokens::Carried(row) => {
                let token = self.token_ids.len() as u32;
                self.carried.push(CarriedToken { token, row });
                self.token_ids.push(0);
            }
        }
        let num_tokens = self.token_ids.len() - self.positions.len();
        let end = (start + num_tokens) as u32;
        self.seqs.push(BatchSeq {
            seq: sequence.id,
            generation: sequence.generation,
            request: sequence.request,
            planned: index,
        });
        self.positions.extend(start as u32..end);
        self.seq_of_token.resize(self.token_ids.len(), index);
        self.query_offsets.push(self.token_ids.len() as u32);
        self.context_lens.push(end);
        self.tail_bases.push(end);
        self.tail_offsets.push(0);
        for (group, table) in self.groups.iter_mut().zip(tables) {
            let slots = (start as u32..end).map(|place| table.slot_of(Position(place)).0);
            group.slot_mapping.extend(slots);
        }
    }

    /// The row of the sequence added last: it draws the guess behind `path`, which lies behind all
    /// committed tokens, from what the sequence's own chain leaves of the model's distribution.
    pub(crate) fn push_pass_row(
        &mut self,
        sequence: &Sequence,
        grammar: Option<&mut Box<dyn Grammar>>,
        path: &[TokenId],
        depth: usize,
    ) {
        let base = sequence.tokens.len();
        let mut failures = Vec::new();
        let is_masked = grammar.is_some();
        let row = self.processed_row(sequence, grammar, (path, base + depth), &mut failures);
        let is_shared = sequence.verification == Verification::SharedNoise;
        let row = SamplingRow {
            seed: (sequence.sampling.seed).wrapping_add(u64::from(sequence.sample)),
            purpose: if is_shared {
                NoisePurpose::Sample
            } else {
                NoisePurpose::Draft
            },
            anchor: base as u32 - 1,
            logprobs: None,
            carried_row: None,
            // A grammar that cannot go on masks everything: the guess is not finite, and ends it.
            mask: row.mask.filter(|_| is_masked),
            ..row
        };
        let index = self.seqs.len() as u32 - 1;
        let token = self.token_ids.len() as u32 - 1;
        let sample = sequence.sample;
        self.push_row(index, token, RowPurpose::Sample { sample }, row);
    }

    /// Writes the block tables, once all sequences are in.
    pub(crate) fn close_pass<'a>(
        &mut self,
        block_size: usize,
        tables: impl Iterator<Item = &'a [BlockTable]>,
    ) {
        let num_places = self.context_lens.iter().copied().max().unwrap_or(0) as usize;
        let blocks_per_seq = num_places.div_ceil(block_size);
        for tables in tables {
            self.push_block_tables(tables, blocks_per_seq);
        }
        for group in &mut self.groups {
            group.blocks_per_seq = blocks_per_seq;
        }
    }
}
