//! Reading a packed step on the host.

use super::{GROUPS_MAX, SAMPLING_WORDS, SamplingRow, group_header, group_header_offset, header};

/// A packed step as the native kernels read it.
#[derive(Clone, Copy, Debug)]
pub struct StepView<'a> {
    words: &'a [u32],
}

impl<'a> StepView<'a> {
    /// Reads the words that [`super::StepInputs::words`] gave.
    pub fn new(words: &'a [u32]) -> Self {
        assert!(
            words.len() >= group_header_offset(GROUPS_MAX),
            "a step buffer has a header"
        );
        Self { words }
    }

    /// T.
    pub fn num_tokens(&self) -> usize {
        self.words[header::NUM_TOKENS] as usize
    }

    /// S.
    pub fn num_seqs(&self) -> usize {
        self.words[header::NUM_SEQS] as usize
    }

    /// R.
    pub fn num_logit_rows(&self) -> usize {
        self.words[header::NUM_LOGIT_ROWS] as usize
    }

    /// `[T]`.
    pub fn token_ids(&self) -> &'a [u32] {
        self.section(header::TOKEN_IDS, self.num_tokens())
    }

    /// `[T]`.
    pub fn positions(&self) -> &'a [u32] {
        self.section(header::POSITIONS, self.num_tokens())
    }

    /// `[T]`.
    pub fn seq_of_token(&self) -> &'a [u32] {
        self.section(header::SEQ_OF_TOKEN, self.num_tokens())
    }

    /// `[S + 1]`.
    pub fn query_offsets(&self) -> &'a [u32] {
        self.section(header::QUERY_OFFSETS, self.num_seqs() + 1)
    }

    /// `[S]`.
    pub fn context_lens(&self) -> &'a [u32] {
        self.section(header::CONTEXT_LENS, self.num_seqs())
    }

    /// `[R]`.
    pub fn logit_rows(&self) -> &'a [u32] {
        self.section(header::LOGIT_ROWS, self.num_logit_rows())
    }

    /// Sampling parameters of logit row `row`.
    pub fn sampling(&self, row: usize) -> SamplingRow {
        let all = self.section(header::SAMPLING, self.num_logit_rows() * SAMPLING_WORDS);
        let words = &all[row * SAMPLING_WORDS..(row + 1) * SAMPLING_WORDS];
        SamplingRow {
            temperature: f32::from_bits(words[0]),
            seed: u64::from(words[1]) | u64::from(words[2]) << 32,
            position: words[3],
        }
    }

    /// Block copies as source, destination.
    pub fn block_copies(&self) -> impl Iterator<Item = (u32, u32)> + 'a {
        let num_copies = self.words[header::NUM_COPIES] as usize;
        self.section(header::COPIES, 2 * num_copies)
            .chunks_exact(2)
            .map(|pair| (pair[0], pair[1]))
    }

    /// `[T]` slots of `group`.
    pub fn slot_mapping(&self, group: usize) -> &'a [u32] {
        self.section(
            group_header_offset(group) + group_header::SLOT_MAPPING,
            self.num_tokens(),
        )
    }

    /// The block table of sequence `seq` in `group`.
    pub fn block_table(&self, group: usize, seq: usize) -> &'a [u32] {
        let start = group_header_offset(group);
        let row_len = self.words[start + group_header::BLOCKS_PER_SEQ] as usize;
        let tables = self.section(
            start + group_header::BLOCK_TABLES,
            self.num_seqs() * row_len,
        );
        &tables[seq * row_len..(seq + 1) * row_len]
    }

    fn section(&self, offset_word: usize, len: usize) -> &'a [u32] {
        let start = self.words[offset_word] as usize;
        &self.words[start..start + len]
    }
}
