//! SentencePiece's BPE: characters join while the result is in the vocabulary, the best score
//! first; what stays without a piece is spelled in bytes.
//!
//! SentencePiece writes spaces as U+2581. Here the vocabulary is turned back into plain text when
//! it is loaded and a U+2581 in the text becomes a space, which comes to the same.
//!
//! Source: Kudo and Richardson 2018, "SentencePiece: A simple and language independent subword
//! tokenizer"; `bpe_model.cc` of its repository for the order of merging and the kinds of pieces
//! that may merge.
//! Neighbours: [`super::merge`], [`super::piece_index`], [`super`] (who reads the file).

use std::sync::Arc;

use forerun_engine::TokenId;

use super::super::error::TextError;
use super::super::pieces::{Pieces, TokenKind};
use super::merge::{MergeRule, Merger, Symbol};
use super::piece_index::PieceIndex;

/// Stands for a space in SentencePiece vocabularies.
pub(in super::super) const SPACE_MARK: &str = "\u{2581}";

/// A SentencePiece BPE model.
pub(in super::super) struct SentencePiece {
    pieces: Arc<Pieces>,
    index: PieceIndex,
    /// Order of merging, by id: greater merges first. Scores with their order as integers.
    ranks: Vec<i32>,
    byte_tokens: Box<[Option<TokenId>; 256]>,
    unknown: Option<TokenId>,
    space_prefix: SpacePrefix,
}

/// Whether a text gets a space in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum SpacePrefix {
    Add,
    None,
}

impl SentencePiece {
    pub(super) fn new(
        pieces: Arc<Pieces>,
        scores: &[f32],
        unknown: Option<TokenId>,
        space_prefix: SpacePrefix,
    ) -> Result<Self, TextError> {
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            let what = format!("score of token {id}");
            return Err(TextError::vocabulary(what, "a number", "NaN"));
        }
        let mut byte_tokens = Box::new([None; 256]);
        for (id, kind) in pieces.iter() {
            if let (TokenKind::Byte, [byte]) = (kind, pieces.bytes(id)) {
                byte_tokens[usize::from(*byte)].get_or_insert(id);
            }
        }
        let index = PieceIndex::new(&pieces, |kind| {
            matches!(
                kind,
                TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused
            )
        });
        let ranks = scores.iter().map(|&score| ordered(score)).collect();
        Ok(Self {
            pieces,
            index,
            ranks,
            byte_tokens,
            unknown,
            space_prefix,
        })
    }

    /// Whether a text gets a space in front, which decoding removes.
    pub(in super::super) fn adds_space(&self) -> bool {
        self.space_prefix == SpacePrefix::Add
    }

    /// Appends the tokens of `text`, in which added tokens have been recognised already.
    pub(in super::super) fn encode(&self, text: &str, ids: &mut Vec<TokenId>) {
        let prefixed;
        let text = match self.space_prefix {
            SpacePrefix::None => text,
            SpacePrefix::Add => {
                prefixed = format!(" {text}");
                &prefixed
            }
        };
        self.encode_without(text, None, ids);
    }

    /// Encodes text, never merging to the piece `except`.
    fn encode_without(&self, text: &str, except: Option<TokenId>, ids: &mut Vec<TokenId>) {
        let characters = text.char_indices().map(|(start, char)| {
            let len = char.len_utf8();
            (
                len,
                self.index
                    .find(&self.pieces, &text.as_bytes()[start..start + len]),
            )
        });
        let rule = ByScore {
            model: self,
            except,
        };
        let mut merger = Merger::new();
        merger.merge(&rule, text.as_bytes(), characters);
        for symbol in merger.symbols() {
            let text = &text[symbol.range()];
            match symbol.piece {
                Some(piece) if !self.is_unused(piece) => ids.push(piece),
                // A piece out of use gives way to the two it was merged from. Within its text the
                // same merges happen again, up to the last.
                Some(piece) if text.chars().nth(1).is_some() => {
                    self.encode_without(text, Some(piece), ids);
                }
                None | Some(_) => self.push_bytes(text.as_bytes(), ids),
            }
        }
    }

    fn is_unused(&self, piece: TokenId) -> bool {
        self.pieces.kind(piece) == Some(TokenKind::Unused)
    }

    /// Spells a character in byte tokens. Where those lack, it is unknown, and a run of unknown
    /// characters is one token.
    fn push_bytes(&self, bytes: &[u8], ids: &mut Vec<TokenId>) {
        for byte in bytes {
            match (self.byte_tokens[usize::from(*byte)], self.unknown) {
                (Some(id), _) => ids.push(id),
                (None, Some(unknown)) if ids.last() != Some(&unknown) => ids.push(unknown),
                (None, _) => {}
            }
        }
    }
}

/// Merges by score.
struct ByScore<'a> {
    model: &'a SentencePiece,
    except: Option<TokenId>,
}

impl MergeRule for ByScore<'_> {
    type Priority = i32;

    fn merge(&self, text: &[u8], left: &Symbol, right: &Symbol) -> Option<(i32, TokenId)> {
        let bytes = &text[left.range().start..right.range().end];
        let piece = self.model.index.find(&self.model.pieces, bytes)?;
        (self.except != Some(piece)).then(|| (self.model.ranks[piece.0 as usize], piece))
    }
}

/// An integer that orders as the number does (both zeros are one).
fn ordered(score: f32) -> i32 {
    let bits = (score + 0.0).to_bits() as i32;
    if bits < 0 {
        i32::MIN.wrapping_sub(bits)
    } else {
        bits
    }
}
