//! Where everything lies in a packed step: header words, capacities, offsets of sections.
//!
//! Neighbours: [`super`] fills the sections, [`super::view`] and the kernels read them.

use super::sampling_row::SAMPLING_WORDS;

/// Words of the fixed header.
pub const HEADER_WORDS: usize = 24;
/// Most KV groups one step can carry.
pub const GROUPS_MAX: usize = 8;
/// Words of one group header.
pub const GROUP_WORDS: usize = 5;
/// Words of one entry of the history: token id, then [`OUTPUT_COUNT_BITS`] and [`IN_PROMPT`].
pub const HISTORY_WORDS: usize = 2;
/// Words of one bias: token id, f32 bits.
pub const BIAS_WORDS: usize = 2;
/// Words of one carried token: index of the token, row of the previous verdicts.
pub const CARRIED_WORDS: usize = 2;
/// Bits of the second word of a history entry that hold the output count.
pub const OUTPUT_COUNT_BITS: u32 = 0x7fff_ffff;
/// Bit of the second word of a history entry that says whether the token is in the prompt.
pub const IN_PROMPT: u32 = 0x8000_0000;

/// Header words: the live count, or the word offset of a section.
pub mod header {
    /// Tokens in this step (T).
    pub const NUM_TOKENS: usize = 0;
    /// Sequences in this step (S).
    pub const NUM_SEQS: usize = 1;
    /// Rows whose logits are wanted (R).
    pub const NUM_LOGIT_ROWS: usize = 2;
    /// Tokens that come from the previous step's verdicts.
    pub const NUM_CARRIED: usize = 3;
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
    /// Section of histories, [`super::HISTORY_WORDS`] per entry.
    pub const HISTORY: usize = 11;
    /// Section of biases, [`super::BIAS_WORDS`] per entry.
    pub const BIAS: usize = 12;
    /// Section of grammar masks, [`super::mask_row_words`] per row.
    pub const MASKS: usize = 13;
    /// Section of carried tokens, [`super::CARRIED_WORDS`] each.
    pub const CARRIED: usize = 14;
    /// Section of tail bases, one per sequence: positions from there on lie where its tail says.
    pub const TAIL_BASES: usize = 15;
    /// Section of prefix sums of tail lengths, S + 1 words.
    pub const TAIL_OFFSETS: usize = 16;
    /// Section of places, one per position of a tail.
    pub const TAILS: usize = 17;
}

/// Words of a group header, relative to its start.
pub mod group_header {
    /// Section of slots, one per token: where its K and V go.
    pub const SLOT_MAPPING: usize = 0;
    /// Section of block tables, row-major, one row per sequence.
    pub const BLOCK_TABLES: usize = 1;
    /// Words in one row of the block tables.
    pub const BLOCKS_PER_SEQ: usize = 2;
    /// Section of block copies: source, destination.
    pub const COPIES: usize = 3;
    /// Block copies to make before anything is written.
    pub const NUM_COPIES: usize = 4;
}

/// Word offset of the header of group `group`.
pub const fn group_header_offset(group: usize) -> usize {
    HEADER_WORDS + group * GROUP_WORDS
}

/// Words of one grammar mask: a bit per token, token 0 lowest.
pub const fn mask_row_words(vocab_size: usize) -> usize {
    vocab_size.div_ceil(32)
}

/// How much a step buffer can hold. Two steps of one capacity have buffers of one length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StepCapacity {
    /// Tokens.
    pub tokens: usize,
    /// Sequences.
    pub seqs: usize,
    /// Logit rows.
    pub logit_rows: usize,
    /// Entries of [`super::StepArrays::history`], all rows together.
    pub history: usize,
    /// Entries of [`super::StepArrays::bias`], all rows together.
    pub bias: usize,
    /// Words of [`super::StepArrays::masks`]: rows times [`mask_row_words`].
    pub mask_words: usize,
    /// Carried tokens.
    pub carried: usize,
    /// Places of all tails together.
    pub tails: usize,
    /// Blocks per sequence, for each KV group.
    pub blocks_per_seq: Vec<usize>,
    /// Block copies, for each KV group.
    pub copies: Vec<usize>,
}

/// Where each section starts, in words.
#[expect(
    clippy::struct_field_names,
    reason = "fields are called like the arrays of a step"
)]
pub(super) struct Offsets {
    pub(super) token_ids: usize,
    pub(super) positions: usize,
    pub(super) seq_of_token: usize,
    pub(super) query_starts: usize,
    pub(super) context_lens: usize,
    pub(super) logit_rows: usize,
    pub(super) sampling: usize,
    pub(super) history: usize,
    pub(super) bias: usize,
    pub(super) masks: usize,
    pub(super) carried: usize,
    pub(super) tail_bases: usize,
    pub(super) tail_offsets: usize,
    pub(super) tails: usize,
    pub(super) groups: Vec<GroupOffsets>,
    pub(super) end: usize,
}

/// Where the sections of a group start, in words.
#[derive(Clone, Copy)]
pub(super) struct GroupOffsets {
    pub(super) slot_mapping: usize,
    pub(super) block_tables: usize,
    pub(super) copies: usize,
}

impl Offsets {
    pub(super) fn of(capacity: &StepCapacity) -> Self {
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
            history: section(capacity.history * HISTORY_WORDS),
            bias: section(capacity.bias * BIAS_WORDS),
            masks: section(capacity.mask_words),
            carried: section(capacity.carried * CARRIED_WORDS),
            tail_bases: section(capacity.seqs),
            tail_offsets: section(capacity.seqs + 1),
            tails: section(capacity.tails),
            groups: capacity
                .blocks_per_seq
                .iter()
                .zip(&capacity.copies)
                .map(|(&blocks, &copies)| GroupOffsets {
                    slot_mapping: section(capacity.tokens),
                    block_tables: section(capacity.seqs * blocks),
                    copies: section(copies * 2),
                })
                .collect(),
            end: section(0),
        }
    }
}
