//! All integers of one step in one buffer, so that a step uploads once and a kernel binds one
//! storage buffer for them (wgpu allows few).
//!
//! ```text
//! word  0                16                 16 + 4 * MAX_GROUPS
//!       | header (16)    | group headers    | token_ids | positions | seq_of_token | query_offsets
//!       | context_lens | logit_rows | sampling (4 per row) | block_copies (2 per copy)
//!       | per group: slot_mapping | block_tables
//! ```
//!
//! Header and group headers hold the live counts and the offset of each section, so nothing that
//! changes from step to step is a kernel scalar or a tensor shape: the buffer's length depends on
//! the [`StepCapacity`] alone, which the runner picks from a few buckets.
//!
//! Neighbours: filled by the model runner from the engine's `StepBatch`; read by every kernel that
//! takes `step`.

use thiserror::Error;

mod check;
mod view;

pub use view::StepView;

/// Words of the fixed header.
pub const HEADER_WORDS: usize = 16;
/// Most KV groups one step can carry.
pub const GROUPS_MAX: usize = 8;
/// Words of one group header.
pub const GROUP_WORDS: usize = 4;
/// Words of one row of sampling parameters: temperature (f32 bits), seed (low, high), position.
pub const SAMPLING_WORDS: usize = 4;

/// Header words: the live count, or the word offset of a section.
pub mod header {
    /// Tokens in this step (T).
    pub const NUM_TOKENS: usize = 0;
    /// Sequences in this step (S).
    pub const NUM_SEQS: usize = 1;
    /// Rows whose logits are wanted (R).
    pub const NUM_LOGIT_ROWS: usize = 2;
    /// Block copies to make before anything is written.
    pub const NUM_COPIES: usize = 3;
    /// Section of token ids, one per token.
    pub const TOKEN_IDS: usize = 4;
    /// Section of positions, one per token.
    pub const POSITIONS: usize = 5;
    /// Section of sequence indices in `0..S`, one per token.
    pub const SEQ_OF_TOKEN: usize = 6;
    /// Section of prefix sums of scheduled tokens, S + 1 words.
    pub const QUERY_OFFSETS: usize = 7;
    /// Section of context lengths (computed + scheduled), one per sequence.
    pub const CONTEXT_LENS: usize = 8;
    /// Section of token indices in `0..T` whose logits are wanted.
    pub const LOGIT_ROWS: usize = 9;
    /// Section of sampling parameters, [`super::SAMPLING_WORDS`] per logit row.
    pub const SAMPLING: usize = 10;
    /// Section of block copies: source, destination.
    pub const COPIES: usize = 11;
}

/// Words of a group header, relative to its start.
pub mod group_header {
    /// Section of slots, one per token: where its K and V go.
    pub const SLOT_MAPPING: usize = 0;
    /// Section of block tables, row-major, one row per sequence.
    pub const BLOCK_TABLES: usize = 1;
    /// Words in one row of the block tables.
    pub const BLOCKS_PER_SEQ: usize = 2;
}

/// Word offset of the header of group `group`.
pub const fn group_header_offset(group: usize) -> usize {
    HEADER_WORDS + group * GROUP_WORDS
}

/// How much a step buffer can hold. Two steps of one capacity have buffers of one length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StepCapacity {
    /// Tokens.
    pub tokens: usize,
    /// Sequences.
    pub seqs: usize,
    /// Logit rows.
    pub logit_rows: usize,
    /// Block copies.
    pub copies: usize,
    /// Blocks per sequence, for each KV group.
    pub blocks_per_seq: Vec<usize>,
}

/// One KV group's part of a step.
#[derive(Clone, Copy, Debug)]
pub struct GroupArrays<'a> {
    /// `[T]` slots.
    pub slot_mapping: &'a [u32],
    /// `[S, blocks_per_seq]` block ids; entries past a sequence's context are 0.
    pub block_tables: &'a [u32],
    /// Row length of `block_tables`.
    pub blocks_per_seq: usize,
    /// Blocks in the pool and tokens per block, for checking.
    pub num_blocks: usize,
    /// Tokens per block.
    pub block_size: usize,
}

/// Sampling parameters of one logit row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingRow {
    /// 0 means greedy.
    pub temperature: f32,
    /// Seed of the request's noise.
    pub seed: u64,
    /// Position the sampled token will take; with the seed it selects the noise.
    pub position: u32,
}

/// The flat arrays of one step, borrowed from whoever planned it.
#[derive(Clone, Copy, Debug)]
pub struct StepArrays<'a> {
    /// `[T]`, each below the vocabulary size.
    pub token_ids: &'a [u32],
    /// `[T]`.
    pub positions: &'a [u32],
    /// `[T]`, each below S.
    pub seq_of_token: &'a [u32],
    /// `[S + 1]`, prefix sums, first 0, last T.
    pub query_offsets: &'a [u32],
    /// `[S]`.
    pub context_lens: &'a [u32],
    /// `[R]`, each below T.
    pub logit_rows: &'a [u32],
    /// `[R]`.
    pub sampling: &'a [SamplingRow],
    /// Block copies, source and destination.
    pub block_copies: &'a [(u32, u32)],
    /// One per KV group.
    pub groups: &'a [GroupArrays<'a>],
}

/// A step that must not reach a kernel: kernels read and write memory without checks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StepInputsError {
    /// An array does not have the length the step's counts demand.
    #[error("step array {array} has {found} entries, expected {expected}")]
    Length {
        /// Which array.
        array: &'static str,
        /// Entries found.
        found: usize,
        /// Entries expected.
        expected: usize,
    },
    /// An index points past what it indexes.
    #[error("step array {array}[{index}] is {value}, must be below {limit}")]
    Index {
        /// Which array.
        array: &'static str,
        /// Entry.
        index: usize,
        /// Its value.
        value: u32,
        /// Exclusive limit.
        limit: usize,
    },
    /// More than the buffer was made for.
    #[error("step has {found} {what}, the buffer holds {capacity}")]
    Capacity {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        found: usize,
        /// How much fits.
        capacity: usize,
    },
}

/// The packed buffer. Reused from step to step: filling it does not allocate.
#[derive(Clone, Debug)]
pub struct StepInputs {
    capacity: StepCapacity,
    words: Vec<u32>,
}

impl StepInputs {
    /// An empty buffer for steps up to `capacity`.
    pub fn new(capacity: StepCapacity) -> Self {
        assert!(
            capacity.blocks_per_seq.len() <= GROUPS_MAX,
            "{} KV groups, at most {GROUPS_MAX}",
            capacity.blocks_per_seq.len()
        );
        let words = vec![0; Offsets::of(&capacity).end];
        Self { capacity, words }
    }

    /// What fits.
    pub fn capacity(&self) -> &StepCapacity {
        &self.capacity
    }

    /// The words to upload.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Checks every index of `step` and packs it.
    ///
    /// Rows past the live counts are padding: token 0 at position 0 of sequence 0, written to
    /// slot 0, which lies in the null block.
    ///
    /// # Errors
    /// [`StepInputsError`] if an array has the wrong length, an index points outside, or the step
    /// is larger than the capacity. `vocab_size` bounds the token ids.
    pub fn fill(
        &mut self,
        step: &StepArrays<'_>,
        vocab_size: usize,
    ) -> Result<(), StepInputsError> {
        check::check(step, vocab_size)?;
        self.check_capacity(step)?;
        let offsets = Offsets::of(&self.capacity);
        self.words.fill(0);
        self.write_header(step, &offsets);
        self.put(offsets.token_ids, step.token_ids);
        self.put(offsets.positions, step.positions);
        self.put(offsets.seq_of_token, step.seq_of_token);
        self.put(offsets.query_starts, step.query_offsets);
        self.put(offsets.context_lens, step.context_lens);
        self.put(offsets.logit_rows, step.logit_rows);
        for (row, sampling) in step.sampling.iter().enumerate() {
            let words = [
                sampling.temperature.to_bits(),
                sampling.seed as u32,
                (sampling.seed >> 32) as u32,
                sampling.position,
            ];
            self.put(offsets.sampling + row * SAMPLING_WORDS, &words);
        }
        for (i, &(source, destination)) in step.block_copies.iter().enumerate() {
            self.put(offsets.copies + 2 * i, &[source, destination]);
        }
        for (group, arrays) in step.groups.iter().enumerate() {
            let (slots, tables) = offsets.groups[group];
            self.put(slots, arrays.slot_mapping);
            let row_len = self.capacity.blocks_per_seq[group];
            for (seq, row) in arrays
                .block_tables
                .chunks_exact(arrays.blocks_per_seq)
                .enumerate()
            {
                self.put(tables + seq * row_len, row);
            }
        }
        Ok(())
    }

    fn put(&mut self, offset: usize, values: &[u32]) {
        self.words[offset..offset + values.len()].copy_from_slice(values);
    }

    fn write_header(&mut self, step: &StepArrays<'_>, offsets: &Offsets) {
        let words = &mut self.words;
        words[header::NUM_TOKENS] = step.token_ids.len() as u32;
        words[header::NUM_SEQS] = step.context_lens.len() as u32;
        words[header::NUM_LOGIT_ROWS] = step.logit_rows.len() as u32;
        words[header::NUM_COPIES] = step.block_copies.len() as u32;
        words[header::TOKEN_IDS] = offsets.token_ids as u32;
        words[header::POSITIONS] = offsets.positions as u32;
        words[header::SEQ_OF_TOKEN] = offsets.seq_of_token as u32;
        words[header::QUERY_OFFSETS] = offsets.query_starts as u32;
        words[header::CONTEXT_LENS] = offsets.context_lens as u32;
        words[header::LOGIT_ROWS] = offsets.logit_rows as u32;
        words[header::SAMPLING] = offsets.sampling as u32;
        words[header::COPIES] = offsets.copies as u32;
        for (group, &(slots, tables)) in offsets.groups.iter().enumerate() {
            let start = group_header_offset(group);
            words[start + group_header::SLOT_MAPPING] = slots as u32;
            words[start + group_header::BLOCK_TABLES] = tables as u32;
            words[start + group_header::BLOCKS_PER_SEQ] =
                self.capacity.blocks_per_seq[group] as u32;
        }
    }

    fn check_capacity(&self, step: &StepArrays<'_>) -> Result<(), StepInputsError> {
        let fits = |what, found, capacity| {
            if found <= capacity {
                Ok(())
            } else {
                Err(StepInputsError::Capacity {
                    what,
                    found,
                    capacity,
                })
            }
        };
        fits("tokens", step.token_ids.len(), self.capacity.tokens)?;
        fits("sequences", step.context_lens.len(), self.capacity.seqs)?;
        fits(
            "logit rows",
            step.logit_rows.len(),
            self.capacity.logit_rows,
        )?;
        fits(
            "block copies",
            step.block_copies.len(),
            self.capacity.copies,
        )?;
        fits(
            "KV groups",
            step.groups.len(),
            self.capacity.blocks_per_seq.len(),
        )?;
        for (group, arrays) in step.groups.iter().enumerate() {
            fits(
                "blocks per sequence",
                arrays.blocks_per_seq,
                self.capacity.blocks_per_seq[group],
            )?;
        }
        Ok(())
    }
}

/// Where each section starts, in words.
struct Offsets {
    token_ids: usize,
    positions: usize,
    seq_of_token: usize,
    query_starts: usize,
    context_lens: usize,
    logit_rows: usize,
    sampling: usize,
    copies: usize,
    /// Slot mapping and block tables of each group.
    groups: Vec<(usize, usize)>,
    end: usize,
}

impl Offsets {
    fn of(capacity: &StepCapacity) -> Self {
        let mut next = group_header_offset(GROUPS_MAX);
        let mut section = |len: usize| {
            let start = next;
            next += len;
            start
        };
        Self {
            token_ids: section(capacity.tokens),
            positions: section(capacity.tokens),
            seq_of_token: section(capacity.tokens),
            query_starts: section(capacity.seqs + 1),
            context_lens: section(capacity.seqs),
            logit_rows: section(capacity.logit_rows),
            sampling: section(capacity.logit_rows * SAMPLING_WORDS),
            copies: section(capacity.copies * 2),
            groups: capacity
                .blocks_per_seq
                .iter()
                .map(|&blocks| (section(capacity.tokens), section(capacity.seqs * blocks)))
                .collect(),
            end: section(0),
        }
    }
}

#[cfg(test)]
mod tests;
