//! Packs the integers of a step and sends them as one buffer.
//!
//! Neighbours: called by [`super::ModelRunner`]; the buffer's layout and checks are
//! `forerun_kernels::step_inputs`.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use forerun_engine::{LogprobsKind, NoisePurpose, StepBatch, Verification};
use forerun_kernels::step_inputs::{
    self, CarriedToken, GroupArrays, LogprobsRow, SamplingRow, StepArrays, StepCapacity,
    StepInputs, StepInputsError, TokenCount,
};

use crate::forward_context::ForwardContext;

/// How the row counts of a step are rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowPadding {
    /// Not at all: native kernels take any count.
    Exact,
    /// To powers of two, so that a device compiles and configures few different launches.
    PowersOfTwo,
}

/// What packing needs, and its buffers, which are used again.
#[derive(Debug)]
pub(super) struct Upload {
    device: Device,
    /// Of each KV group.
    num_blocks: Vec<usize>,
    block_size: usize,
    vocab_size: usize,
    padding: RowPadding,
    inputs: Option<StepInputs>,
    sampling: Vec<SamplingRow>,
    history: Vec<TokenCount>,
    bias: Vec<(u32, f32)>,
    carried: Vec<CarriedToken>,
    /// Of each KV group.
    copies: Vec<Vec<(u32, u32)>>,
}

impl Upload {
    pub(super) fn new(
        device: Device,
        num_blocks: Vec<usize>,
        block_size: usize,
        vocab_size: usize,
        padding: RowPadding,
    ) -> Self {
        Self {
            copies: vec![Vec::new(); num_blocks.len()],
            device,
            num_blocks,
            block_size,
            vocab_size,
            padding,
            inputs: None,
            sampling: Vec::new(),
            history: Vec::new(),
            bias: Vec::new(),
            carried: Vec::new(),
        }
    }

    /// Another for the same pools.
    pub(super) fn empty_copy(&self) -> Self {
        Self::new(
            self.device.clone(),
            self.num_blocks.clone(),
            self.block_size,
            self.vocab_size,
            self.padding,
        )
    }

    pub(super) fn padding(&self) -> RowPadding {
        self.padding
    }

    pub(super) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Checks and packs the step's integers and sends them. `previous_rows` are those of the step
    /// before, of which this one may take tokens.
    pub(super) fn upload(
        &mut self,
        batch: &StepBatch,
        previous_rows: usize,
    ) -> Result<ForwardContext, StepInputsError> {
        self.convert(batch);
        let groups: Vec<GroupArrays<'_>> = batch
            .groups
            .iter()
            .zip(&self.copies)
            .zip(&self.num_blocks)
            .map(|((group, copies), &num_blocks)| GroupArrays {
                slot_mapping: &group.slot_mapping,
                block_tables: &group.block_tables,
                blocks_per_seq: group.blocks_per_seq,
                num_blocks,
                block_size: self.block_size,
                block_copies: copies,
            })
            .collect();
        let step = StepArrays {
            token_ids: &batch.token_ids,
            positions: &batch.positions,
            seq_of_token: &batch.seq_of_token,
            query_offsets: &batch.query_offsets,
            context_lens: &batch.context_lens,
            logit_rows: &batch.logit_rows,
            sampling: &self.sampling,
            history: &self.history,
            bias: &self.bias,
            masks: &batch.masks,
            carried: &self.carried,
            previous_rows,
            tail_bases: &batch.tail_bases,
            tail_offsets: &batch.tail_offsets,
            tails: &batch.tails,
            groups: &groups,
        };
        let capacity = self.padding.capacity(batch);
        let inputs = match self.inputs.take() {
            Some(inputs) if *inputs.capacity() == capacity => self.inputs.insert(inputs),
            _ => self.inputs.insert(StepInputs::new(capacity)),
        };
        inputs.fill(&step, self.vocab_size)?;
        let words = inputs.words();
        let data = TensorData::new(words.to_vec(), [words.len()]);
        let buffer = Tensor::<1, Int>::from_data(data, (&self.device, DType::U32));
        let capacity = inputs.capacity();
        Ok(ForwardContext::new(
            buffer,
            capacity.tokens,
            capacity.logit_rows,
        ))
    }

    /// The engine's arrays in the kernels' types.
    fn convert(&mut self, batch: &StepBatch) {
        self.sampling.clear();
        self.sampling
            .extend(batch.sampling.iter().map(sampling_row));
        self.history.clear();
        self.history
            .extend(batch.history.iter().map(|count| TokenCount {
                token: count.token.0,
                output_count: count.num_output,
                in_prompt: count.is_in_prompt,
            }));
        self.bias.clear();
        self.bias
            .extend(batch.bias.iter().map(|bias| (bias.token.0, bias.bias)));
        self.carried.clear();
        self.carried
            .extend(batch.carried.iter().map(|carried| CarriedToken {
                token: carried.token,
                row: carried.row,
            }));
        for (copies, group) in self.copies.iter_mut().zip(&batch.groups) {
            copies.clear();
            copies.extend(group.block_copies.iter().map(|(from, to)| (from.0, to.0)));
        }
    }
}

/// Whether a step takes tokens from the verdicts of the one before.
pub(super) fn takes_tokens(batch: &StepBatch) -> bool {
    !batch.carried.is_empty() || batch.sampling.iter().any(|row| row.carried_row.is_some())
}

fn sampling_row(row: &forerun_engine::SamplingRow) -> SamplingRow {
    SamplingRow {
        temperature: row.temperature,
        seed: row.seed,
        position: row.position,
        top_k: row.top_k,
        top_p: row.top_p,
        min_p: row.min_p,
        typical_p: row.typical_p,
        repetition_penalty: row.repetition_penalty,
        presence_penalty: row.presence_penalty,
        frequency_penalty: row.frequency_penalty,
        history: row.history,
        bias: row.bias,
        mask: row.mask,
        carried_row: row.carried_row,
        target: row.target.map(|token| token.0),
        logprobs: row.logprobs.map(|logprobs| LogprobsRow {
            num_top: logprobs.num_top,
            kind: match logprobs.kind {
                LogprobsKind::Raw => step_inputs::LogprobsKind::Raw,
                LogprobsKind::Processed => step_inputs::LogprobsKind::Processed,
            },
        }),
        num_drafts: row.num_drafts,
        parent_row: row.parent_row,
        draft_row: row.draft_row,
        verification: match row.verification {
            Verification::SharedNoise => step_inputs::Verification::SharedNoise,
            Verification::Rejection => step_inputs::Verification::Rejection,
            Verification::Block => step_inputs::Verification::Block,
        },
        purpose: match row.purpose {
            NoisePurpose::Sample => step_inputs::NoisePurpose::Sample,
            NoisePurpose::Draft => step_inputs::NoisePurpose::Draft,
        },
        anchor: row.anchor,
    }
}

impl RowPadding {
    /// `count` rounded up.
    pub(super) fn round(self, count: usize) -> usize {
        match self {
            Self::Exact => count,
            Self::PowersOfTwo if count == 0 => 0,
            Self::PowersOfTwo => count.next_power_of_two(),
        }
    }

    /// The buffer a batch needs.
    fn capacity(self, batch: &StepBatch) -> StepCapacity {
        let of_groups = |count: fn(&forerun_engine::GroupBatch) -> usize| {
            let counts = batch.groups.iter().map(count);
            counts.map(|count| self.round(count)).collect()
        };
        StepCapacity {
            tokens: self.round(batch.num_tokens()),
            seqs: self.round(batch.num_seqs()),
            logit_rows: self.round(batch.num_logit_rows()),
            history: self.round(batch.history.len()),
            bias: self.round(batch.bias.len()),
            mask_words: self.round(batch.masks.len()),
            carried: self.round(batch.carried.len()),
            tails: self.round(batch.tails.len()),
            blocks_per_seq: of_groups(|group| group.blocks_per_seq),
            copies: of_groups(|group| group.block_copies.len()),
        }
    }
}
