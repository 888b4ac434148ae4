//! All integers of one step in one buffer, so that a step uploads once and a kernel binds one
//! storage buffer for them (wgpu allows few).
//!
//! ```text
//! word  0             24              24 + 5 * GROUPS_MAX
//!       | header (24) | group headers | token_ids | positions | seq_of_token | query_offsets
//!       | context_lens | logit_rows | sampling (27 per row) | history (2 per entry)
//!       | bias (2 per entry) | masks (V / 32 per row) | carried (2 per token)
//!       | tail_bases | tail_offsets | tails
//!       | per group: slot_mapping | block_tables | block_copies (2 per copy)
//! ```
//!
//! # Trees of drafts
//! Keys and values of position p of a sequence lie at *place* p of its blocks: slot
//! `block_table[place / B] * B + place % B`. A sequence with a draft tree has an entry for each branch;
//! the tail of such an entry says at which places the positions from its tail base on lie: those of
//! the nodes on the way to its last token.
//!
//! Header and group headers hold the live counts and the offset of each section, so nothing that
//! changes from step to step is a kernel scalar or a tensor shape: the buffer's length depends on
//! the [`StepCapacity`] alone, which the runner picks from a few buckets.
//!
//! Neighbours: filled by the model runner from the engine's `StepBatch`; read by every kernel that
//! takes `step`. `layout` says where things lie, `sampling_row` how a row is sampled, `check` what is
//! refused, `view` reads it back.

use thiserror::Error;

mod check;
mod layout;
mod sampling_row;
mod view;

pub use layout::{
    BIAS_WORDS, CARRIED_WORDS, GROUP_WORDS, GROUPS_MAX, HEADER_WORDS, HISTORY_WORDS, IN_PROMPT,
    OUTPUT_COUNT_BITS, StepCapacity, group_header, group_header_offset, header, mask_row_words,
};
pub use sampling_row::{
    LOGPROBS_TOP_MAX, LogprobsKind, LogprobsRow, NoisePurpose, SAMPLING_WORDS, SamplingRow,
    TEMPERATURE_MIN, Verification, flag, word,
};
pub use view::StepView;

use layout::Offsets;

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
    /// Block copies, source and destination. Destinations are distinct and no source.
    pub block_copies: &'a [(u32, u32)],
}

/// What a row's sequence holds of a token. A row's entries are of distinct tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenCount {
    /// Token id.
    pub token: u32,
    /// How often it was generated, below 2^31.
    pub output_count: u32,
    /// Whether the prompt has it.
    pub in_prompt: bool,
}

/// A token of this step that the previous step, still running, decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CarriedToken {
    /// Which of this step's tokens, below T.
    pub token: u32,
    /// Row of the previous step's verdicts.
    pub row: u32,
}

/// The flat arrays of one step, borrowed from whoever planned it.
#[derive(Clone, Copy, Debug, Default)]
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
    /// What the rows' sequences hold, in the ranges that [`SamplingRow::history`] names.
    pub history: &'a [TokenCount],
    /// Token and what is added to its logit, in the ranges that [`SamplingRow::bias`] names: distinct
    /// tokens in a range. `-inf` bans a token; NaN and `+inf` make the row one that cannot be sampled.
    pub bias: &'a [(u32, f32)],
    /// Rows of [`mask_row_words`] words, token 0 in the lowest bit; a set bit allows a token.
    pub masks: &'a [u32],
    /// Tokens to be filled in by [`crate::advance`]; their `token_ids` are not read.
    pub carried: &'a [CarriedToken],
    /// Rows of the verdicts that the carried tokens come from.
    pub previous_rows: usize,
    /// `[S]`: positions from here on lie where the tail says; at most the context length. Empty where
    /// no entry has a tail.
    pub tail_bases: &'a [u32],
    /// `[S + 1]`: prefix sums of tail lengths, which are context length - tail base; or empty.
    pub tail_offsets: &'a [u32],
    /// Places, in order of position.
    pub tails: &'a [u32],
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
        assert!(
            capacity.blocks_per_seq.len() == capacity.copies.len(),
            "{} KV groups have tables, {} have copies",
            capacity.blocks_per_seq.len(),
            capacity.copies.len()
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
        self.put_sampling(step, &offsets);
        for (i, carried) in step.carried.iter().enumerate() {
            let words = [carried.token, carried.row];
            self.put(offsets.carried + CARRIED_WORDS * i, &words);
        }
        self.put_tails(step, &offsets);
        for (index, arrays) in step.groups.iter().enumerate() {
            let (group, row_len) = (offsets.groups[index], self.capacity.blocks_per_seq[index]);
            self.put(group.slot_mapping, arrays.slot_mapping);
            for (i, &(source, destination)) in arrays.block_copies.iter().enumerate() {
                self.put(group.copies + 2 * i, &[source, destination]);
            }
            let rows = arrays.block_tables.chunks_exact(arrays.blocks_per_seq);
            for (seq, row) in rows.enumerate() {
                self.put(group.block_tables + seq * row_len, row);
            }
        }
        Ok(())
    }

    /// Without tails every position lies in order.
    fn put_tails(&mut self, step: &StepArrays<'_>, offsets: &Offsets) {
        if step.tail_bases.is_empty() {
            self.put(offsets.tail_bases, step.context_lens);
        } else {
            self.put(offsets.tail_bases, step.tail_bases);
            self.put(offsets.tail_offsets, step.tail_offsets);
            self.put(offsets.tails, step.tails);
        }
    }

    /// Sampling parameters, and what they refer to.
    fn put_sampling(&mut self, step: &StepArrays<'_>, offsets: &Offsets) {
        for (row, sampling) in step.sampling.iter().enumerate() {
            self.put(offsets.sampling + row * SAMPLING_WORDS, &sampling.pack());
        }
        for (i, entry) in step.history.iter().enumerate() {
            let in_prompt = if entry.in_prompt { IN_PROMPT } else { 0 };
            let count = entry.output_count & OUTPUT_COUNT_BITS;
            let words = [entry.token, count | in_prompt];
            self.put(offsets.history + HISTORY_WORDS * i, &words);
        }
        for (i, &(token, bias)) in step.bias.iter().enumerate() {
            self.put(offsets.bias + BIAS_WORDS * i, &[token, bias.to_bits()]);
        }
        self.put(offsets.masks, step.masks);
    }

    fn put(&mut self, offset: usize, values: &[u32]) {
        self.words[offset..offset + values.len()].copy_from_slice(values);
    }

    fn write_header(&mut self, step: &StepArrays<'_>, offsets: &Offsets) {
        let words = &mut self.words;
        words[header::NUM_TOKENS] = step.token_ids.len() as u32;
        words[header::NUM_SEQS] = step.context_lens.len() as u32;
        words[header::NUM_LOGIT_ROWS] = step.logit_rows.len() as u32;
        words[header::NUM_CARRIED] = step.carried.len() as u32;
        words[header::TOKEN_IDS] = offsets.token_ids as u32;
        words[header::POSITIONS] = offsets.positions as u32;
        words[header::SEQ_OF_TOKEN] = offsets.seq_of_token as u32;
        words[header::QUERY_OFFSETS] = offsets.query_starts as u32;
        words[header::CONTEXT_LENS] = offsets.context_lens as u32;
        words[header::LOGIT_ROWS] = offsets.logit_rows as u32;
        words[header::SAMPLING] = offsets.sampling as u32;
        words[header::HISTORY] = offsets.history as u32;
        words[header::BIAS] = offsets.bias as u32;
        words[header::MASKS] = offsets.masks as u32;
        words[header::CARRIED] = offsets.carried as u32;
        words[header::TAIL_BASES] = offsets.tail_bases as u32;
        words[header::TAIL_OFFSETS] = offsets.tail_offsets as u32;
        words[header::TAILS] = offsets.tails as u32;
        for (group, sections) in offsets.groups.iter().enumerate() {
            let num_copies = step
                .groups
                .get(group)
                .map_or(0, |arrays| arrays.block_copies.len());
            let start = group_header_offset(group);
            words[start + group_header::SLOT_MAPPING] = sections.slot_mapping as u32;
            words[start + group_header::BLOCK_TABLES] = sections.block_tables as u32;
            words[start + group_header::BLOCKS_PER_SEQ] =
                self.capacity.blocks_per_seq[group] as u32;
            words[start + group_header::COPIES] = sections.copies as u32;
            words[start + group_header::NUM_COPIES] = num_copies as u32;
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
        let capacity = &self.capacity;
        fits("tokens", step.token_ids.len(), capacity.tokens)?;
        fits("sequences", step.context_lens.len(), capacity.seqs)?;
        fits("logit rows", step.logit_rows.len(), capacity.logit_rows)?;
        fits("history entries", step.history.len(), capacity.history)?;
        fits("biases", step.bias.len(), capacity.bias)?;
        fits("words of masks", step.masks.len(), capacity.mask_words)?;
        fits("carried tokens", step.carried.len(), capacity.carried)?;
        fits("places of tails", step.tails.len(), capacity.tails)?;
        fits(
            "KV groups",
            step.groups.len(),
            capacity.blocks_per_seq.len(),
        )?;
        for (group, arrays) in step.groups.iter().enumerate() {
            fits(
                "blocks per sequence",
                arrays.blocks_per_seq,
                capacity.blocks_per_seq[group],
            )?;
            fits(
                "block copies",
                arrays.block_copies.len(),
                capacity.copies[group],
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
