//! Bytes and kind of every token of a vocabulary, in one buffer.
//!
//! The bytes are those that a token adds to the text: the byte alphabet of byte-level BPE and the
//! U+2581 of SentencePiece are undone once, when the tokenizer is loaded.
//!
//! Neighbours: [`super::tokenizer`] and [`super::detokenizer`] (who read), the loaders of
//! tokenizers (who fill).

use forerun_engine::TokenId;

/// What a token of the vocabulary is, in the terms of SentencePiece and GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text that merging may produce.
    Normal,
    /// Stands for what the vocabulary cannot express.
    Unknown,
    /// Structure, not text: BOS, EOS, turn markers. Adds nothing to the text.
    Control,
    /// A piece of text that is matched whole, before merging.
    UserDefined,
    /// A piece that merging may pass through but that is split again in the result.
    Unused,
    /// One raw byte, for characters without a piece of their own.
    Byte,
}

impl TokenKind {
    /// Whether the token adds its bytes to the text.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Byte)
    }

    /// Whether the token is structure, which users must not be able to write.
    pub fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// The vocabulary: for each id its bytes and kind.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Token `i` has the bytes `[ends[i - 1], ends[i])` (from 0 for the first).
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
}

impl Pieces {
    pub(super) fn with_capacity(num_tokens: usize, num_bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(num_bytes),
            ends: Vec::with_capacity(num_tokens),
            kinds: Vec::with_capacity(num_tokens),
        }
    }

    /// Adds the next token, whose bytes `write` appends.
    pub(super) fn push_with(&mut self, kind: TokenKind, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len() as u32);
        self.kinds.push(kind);
    }

    pub(super) fn push(&mut self, kind: TokenKind, bytes: &[u8]) {
        self.push_with(kind, |all| all.extend_from_slice(bytes));
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of a token, of a control token those of its name; empty for ids out of the vocabulary.
    pub(super) fn bytes(&self, id: TokenId) -> &[u8] {
        let index = id.0 as usize;
        let Some(&end) = self.ends.get(index) else {
            return &[];
        };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start as usize..end as usize]
    }

    pub(super) fn kind(&self, id: TokenId) -> Option<TokenKind> {
        self.kinds.get(id.0 as usize).copied()
    }

    /// Bytes that a token adds to the text: none for control tokens and ids out of the vocabulary.
    pub(super) fn text_bytes(&self, id: TokenId) -> &[u8] {
        if self.kind(id).is_some_and(TokenKind::is_text) {
            self.bytes(id)
        } else {
            &[]
        }
    }

    /// Ids with their kinds, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TokenId, TokenKind)> + '_ {
        (0..).map(TokenId).zip(self.kinds.iter().copied())
    }
}
