//! Reading a packed step on the host.

use super::{
    BIAS_WORDS, CARRIED_WORDS, CarriedToken, GROUPS_MAX, HISTORY_WORDS, IN_PROMPT,
    OUTPUT_COUNT_BITS, SAMPLING_WORDS, SamplingRow, TokenCount, group_header, group_header_offset,
    header, mask_row_words, word,
};

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
        SamplingRow::unpack(self.sampling_words(row))
    }

    /// The token that [`crate::advance`] wrote for logit row `row`, if the row has a carried token.
    pub fn carried_token(&self, row: usize) -> Option<u32> {
        let carried = self.sampling(row).carried_row;
        carried.map(|_| self.sampling_words(row)[word::CARRIED_TOKEN])
    }

    fn sampling_words(&self, row: usize) -> &'a [u32] {
        let all = self.section(header::SAMPLING, self.num_logit_rows() * SAMPLING_WORDS);
        &all[row * SAMPLING_WORDS..(row + 1) * SAMPLING_WORDS]
    }

    /// A range of the history.
    pub fn history(&self, range: (u32, u32)) -> impl Iterator<Item = TokenCount> + 'a {
        self.entries(header::HISTORY, HISTORY_WORDS, range)
            .map(|words| TokenCount {
                token: words[0],
                output_count: words[1] & OUTPUT_COUNT_BITS,
                in_prompt: words[1] & IN_PROMPT != 0,
            })
    }

    /// A range of the biases.
    pub fn bias(&self, range: (u32, u32)) -> impl Iterator<Item = (u32, f32)> + 'a {
        self.entries(header::BIAS, BIAS_WORDS, range)
            .map(|words| (words[0], f32::from_bits(words[1])))
    }

    /// Row `row` of the masks.
    pub fn mask(&self, row: u32, vocab_size: usize) -> &'a [u32] {
        let len = mask_row_words(vocab_size);
        let start = self.words[header::MASKS] as usize + row as usize * len;
        &self.words[start..start + len]
    }

    /// Tokens that come from the previous step.
    pub fn carried(&self) -> impl Iterator<Item = CarriedToken> + 'a {
        let range = (0, self.words[header::NUM_CARRIED]);
        self.entries(header::CARRIED, CARRIED_WORDS, range)
            .map(|words| CarriedToken {
                token: words[0],
                row: words[1],
            })
    }

    /// Where the keys and values of a position of entry `seq` lie among its blocks' slots.
    pub fn place_of(&self, seq: usize, position: usize) -> usize {
        let base = self.section(header::TAIL_BASES, self.num_seqs())[seq] as usize;
        match position.checked_sub(base) {
            None => position,
            Some(offset) => {
                let offsets = self.section(header::TAIL_OFFSETS, self.num_seqs() + 1);
                let index = offsets[seq] as usize + offset;
                self.words[self.words[header::TAILS] as usize + index] as usize
            }
        }
    }

    /// First position of entry `seq` that does not lie in order; its context length if all do.
    pub fn tail_base(&self, seq: usize) -> usize {
        self.section(header::TAIL_BASES, self.num_seqs())[seq] as usize
    }

    /// Block copies of `group` as source, destination.
    pub fn block_copies(&self, group: usize) -> impl Iterator<Item = (u32, u32)> + 'a {
        let start = group_header_offset(group);
        let num_copies = self.words[start + group_header::NUM_COPIES] as usize;
        self.section(start + group_header::COPIES, 2 * num_copies)
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

    /// Entries `range` of a section, each of `entry_words` words.
    fn entries(
        &self,
        offset_word: usize,
        entry_words: usize,
        (start, end): (u32, u32),
    ) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        let section = self.words[offset_word] as usize;
        let (start, end) = (start as usize * entry_words, end as usize * entry_words);
        self.words[section + start..section + end].chunks_exact(entry_words)
    }

    fn section(&self, offset_word: usize, len: usize) -> &'a [u32] {
        let start = self.words[offset_word] as usize;
        &self.words[start..start + len]
    }
}
