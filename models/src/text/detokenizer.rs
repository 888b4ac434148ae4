//! Token ids to text, whole or as a stream.
//!
//! Text is a byte stream: each token adds its bytes, and bytes become text as soon as they are
//! whole characters. What is not UTF-8 becomes U+FFFD, one for each maximal ill-formed run (the
//! practice of the Unicode standard, and of [`String::from_utf8_lossy`]); so does a character cut
//! off at the end. The chunks of a stream, with [`Detokenizer::finish`], therefore join to exactly
//! the full decode, whatever the ids.
//!
//! **Deviation**, stated: where byte tokens do not form UTF-8, the `tokenizers` library replaces
//! every byte of the run, also those that would have been characters; a stream cannot (it has
//! emitted them), and does not.
//!
//! Neighbours: [`super::pieces`] (bytes of tokens), [`super::tokenizer`] (who makes these).

use std::sync::Arc;

use forerun_engine::TokenId;

use super::pieces::Pieces;

/// Whether control tokens appear in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlTokens {
    /// They add nothing.
    Skip,
    /// They add their names, such as `<bos>`.
    Show,
}

/// Where the ids begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStart {
    /// At the beginning of a text: the space that SentencePiece tokenizers put there is removed.
    Beginning,
    /// After other text, such as the answer after a prompt: nothing is removed.
    Continuation,
}

/// Text of a stream of tokens, as far as it is known.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    pieces: Arc<Pieces>,
    controls: ControlTokens,
    /// Whether a space is still to be removed, if one comes first.
    removes_space: bool,
    stream: Utf8Stream,
}

impl Detokenizer {
    pub(super) fn new(pieces: Arc<Pieces>, controls: ControlTokens, removes_space: bool) -> Self {
        Self {
            pieces,
            controls,
            removes_space,
            stream: Utf8Stream::default(),
        }
    }

    /// Takes a token and returns the text that is whole now, maybe none. Ids out of the vocabulary
    /// (padding rows of a model) add nothing.
    pub fn push(&mut self, token: TokenId) -> &str {
        let mut bytes = match self.controls {
            ControlTokens::Skip => self.pieces.text_bytes(token),
            ControlTokens::Show => self.pieces.bytes(token),
        };
        if self.removes_space && !bytes.is_empty() {
            self.removes_space = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.stream.push(bytes)
    }

    /// Ends the stream: U+FFFD if a character is cut off, else nothing.
    pub fn finish(&mut self) -> &str {
        self.stream.finish()
    }
}

/// Bytes to text, never half a character.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    /// Beginning of a character, up to three bytes; while pushing, also what follows.
    pending: Vec<u8>,
    /// The last chunk, kept so that its memory is reused.
    chunk: String,
}

impl Utf8Stream {
    /// Takes bytes and returns the text that is whole now.
    pub fn push(&mut self, bytes: &[u8]) -> &str {
        self.pending.extend_from_slice(bytes);
        self.chunk.clear();
        let mut rest = self.pending.as_slice();
        loop {
            let (valid, invalid_len) = longest_valid(rest);
            self.chunk.push_str(valid);
            rest = &rest[valid.len()..];
            let Some(len) = invalid_len else { break };
            self.chunk.push(char::REPLACEMENT_CHARACTER);
            rest = &rest[len..];
        }
        let num_done = self.pending.len() - rest.len();
        self.pending.drain(..num_done);
        &self.chunk
    }

    /// Ends the stream: U+FFFD if a character is cut off, else nothing.
    pub fn finish(&mut self) -> &str {
        self.chunk.clear();
        if !self.pending.is_empty() {
            self.pending.clear();
            self.chunk.push(char::REPLACEMENT_CHARACTER);
        }
        &self.chunk
    }
}

/// The longest prefix that is text, and the length of the ill-formed run after it, if it is certain
/// that no character begins there.
fn longest_valid(bytes: &[u8]) -> (&str, Option<usize>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let valid = &bytes[..error.valid_up_to()];
            (
                std::str::from_utf8(valid).unwrap_or_default(),
                error.error_len(),
            )
        }
    }
}
