//! A tokenizer from the metadata of a GGUF file.
//!
//! Two kinds: `gpt2` (byte-level BPE, [`byte_level`]) and `llama` (SentencePiece's BPE,
//! [`sentence_piece`]). Control, unknown and user-defined tokens are matched whole in the text,
//! before the rest is merged ([`super::added_tokens`]).
//!
//! - BOS is added if `add_bos_token` says so; where the key is absent, by the custom of the kind
//!   and only if the file names a BOS token.
//! - End of text: the union of the file's EOS, EOT and EOM tokens. Many files of chat models name
//!   no EOT: then control tokens known to end a turn count, by their names.
//!
//! Source: the GGUF specification, section "Tokenizer" (`docs/gguf.md` of the ggml repository).
//! Neighbours: [`crate::loaders::gguf`] (metadata), [`super::tokenizer`] (what is made).

pub(super) mod byte_level;
mod merge;
mod piece_index;
mod pre_tokenizer;
pub(super) mod sentence_piece;

use std::sync::Arc;

use forerun_engine::TokenId;

use self::byte_level::{ByteAlphabet, ByteLevel};
use self::pre_tokenizer::{BosDefault, PreTokenizer};
use self::sentence_piece::{SPACE_MARK, SentencePiece, SpacePrefix};
use super::added_tokens::{AddedToken, AddedTokens, Edges};
use super::chat_template::ChatTemplate;
use super::error::TextError;
use super::pieces::{Pieces, TokenKind};
use super::tokenizer::{Bos, Model, Tokenizer};
use crate::loaders::GgufFile;

/// Control tokens that end a turn or a text, in files that do not say so otherwise.
const END_NAMES: [&str; 7] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
];

/// What a GGUF file says about its tokenizer.
#[derive(Clone, Debug, Default)]
pub(super) struct GgufVocabulary<'a> {
    pub(super) model: &'a str,
    pub(super) pre: Option<&'a str>,
    pub(super) tokens: Vec<&'a str>,
    pub(super) types: Option<Vec<i32>>,
    pub(super) scores: Option<Vec<f32>>,
    pub(super) merges: Option<Vec<&'a str>>,
    pub(super) bos: Option<u32>,
    pub(super) unknown: Option<u32>,
    /// EOS, EOT and EOM.
    pub(super) ends: [Option<u32>; 3],
    pub(super) add_bos: Option<bool>,
    pub(super) add_space_prefix: Option<bool>,
    pub(super) chat_template: Option<&'a str>,
}

impl<'a> GgufVocabulary<'a> {
    pub(super) fn read(file: &'a GgufFile) -> Result<Self, TextError> {
        let metadata = file.metadata();
        let missing = |key| metadata.missing(key);
        let ggml = |key: &str| format!("tokenizer.ggml.{key}");
        Ok(Self {
            model: metadata
                .string("tokenizer.ggml.model")?
                .ok_or_else(|| missing("tokenizer.ggml.model"))?,
            pre: metadata.string("tokenizer.ggml.pre")?,
            tokens: metadata
                .strings("tokenizer.ggml.tokens")?
                .ok_or_else(|| missing("tokenizer.ggml.tokens"))?,
            types: metadata.i32s("tokenizer.ggml.token_type")?,
            scores: metadata.f32s("tokenizer.ggml.scores")?,
            merges: metadata.strings("tokenizer.ggml.merges")?,
            bos: metadata.u32(&ggml("bos_token_id"))?,
            unknown: metadata.u32(&ggml("unknown_token_id"))?,
            ends: [
                metadata.u32(&ggml("eos_token_id"))?,
                metadata.u32(&ggml("eot_token_id"))?,
                metadata.u32(&ggml("eom_token_id"))?,
            ],
            add_bos: metadata.bool(&ggml("add_bos_token"))?,
            add_space_prefix: metadata.bool(&ggml("add_space_prefix"))?,
            chat_template: metadata.string("tokenizer.chat_template")?,
        })
    }

    pub(super) fn build(self) -> Result<Tokenizer, TextError> {
        let kinds = self.kinds()?;
        let (bos, unknown) = (
            self.checked("bos", self.bos)?,
            self.checked("unknown", self.unknown)?,
        );
        let (pieces, model, bos_default) = match self.model {
            "gpt2" => self.byte_level(&kinds)?,
            "llama" => self.sentence_piece(&kinds, unknown)?,
            other => {
                return Err(TextError::Unsupported {
                    what: "tokenizer.ggml.model",
                    found: other.to_owned(),
                    supported: "gpt2 (byte-level BPE), llama (SentencePiece BPE)",
                });
            }
        };
        let bos = match (self.add_bos, bos, bos_default) {
            (Some(true), None, _) => {
                return Err(TextError::BosWithoutId {
                    asked_by: "tokenizer.ggml.add_bos_token",
                });
            }
            (Some(true), Some(id), _) | (None, Some(id), BosDefault::Add) => Bos::Added(id),
            (_, Some(id), _) => Bos::NotAdded(id),
            (_, None, _) => Bos::None,
        };
        let ends = self.end_ids(&kinds)?;
        let template = match self.chat_template {
            Some(source) => Some(ChatTemplate::new(source, self.special_texts(bos))?),
            None => None,
        };
        let added = AddedTokens::new(added_tokens(&pieces));
        Ok(Tokenizer::new(pieces, added, model, bos, ends).with_template(template))
    }

    fn byte_level(
        &self,
        kinds: &[TokenKind],
    ) -> Result<(Arc<Pieces>, Model, BosDefault), TextError> {
        let words = PreTokenizer::by_name(self.pre)?;
        let bos_default = words.bos_default();
        let alphabet = ByteAlphabet::new();
        let pieces = self.pieces(kinds, |token, kind, bytes| match kind {
            TokenKind::Normal | TokenKind::Unused => alphabet.decode(token, bytes),
            _ => bytes.extend_from_slice(token.as_bytes()),
        });
        let merges = self.merges.as_deref().ok_or_else(|| {
            TextError::vocabulary("merges", "a list, as the model is gpt2", "none")
        })?;
        let pieces = Arc::new(pieces);
        let model = ByteLevel::new(Arc::clone(&pieces), words, merges)?;
        Ok((pieces, Model::ByteLevel(Box::new(model)), bos_default))
    }

    fn sentence_piece(
        &self,
        kinds: &[TokenKind],
        unknown: Option<TokenId>,
    ) -> Result<(Arc<Pieces>, Model, BosDefault), TextError> {
        for (id, (token, kind)) in self.tokens.iter().zip(kinds).enumerate() {
            if *kind == TokenKind::Byte && parse_byte(token).is_none() {
                let what = format!("byte token {id}");
                return Err(TextError::vocabulary(
                    what,
                    "<0x00> to <0xFF>",
                    format!("`{token}`"),
                ));
            }
        }
        let pieces = Arc::new(self.pieces(kinds, |token, kind, bytes| match kind {
            TokenKind::Byte => bytes.extend(parse_byte(token)),
            TokenKind::Control | TokenKind::Unknown => bytes.extend_from_slice(token.as_bytes()),
            _ => push_unmarked(token, bytes),
        }));
        let scores = self.scores.as_deref().ok_or_else(|| {
            TextError::vocabulary("scores", "a list, as the model is llama", "none")
        })?;
        self.check_len("scores", scores.len())?;
        let unknown = unknown.or_else(|| {
            let id = kinds.iter().position(|kind| *kind == TokenKind::Unknown)?;
            Some(TokenId(id as u32))
        });
        let space_prefix = if self.add_space_prefix == Some(false) {
            SpacePrefix::None
        } else {
            SpacePrefix::Add
        };
        let model = SentencePiece::new(Arc::clone(&pieces), scores, unknown, space_prefix)?;
        Ok((
            pieces,
            Model::SentencePiece(Box::new(model)),
            BosDefault::Add,
        ))
    }

    fn pieces(&self, kinds: &[TokenKind], write: impl Fn(&str, TokenKind, &mut Vec<u8>)) -> Pieces {
        let num_bytes = self.tokens.iter().map(|token| token.len()).sum();
        let mut pieces = Pieces::with_capacity(self.tokens.len(), num_bytes);
        for (token, &kind) in self.tokens.iter().zip(kinds) {
            pieces.push_with(kind, |bytes| write(token, kind, bytes));
        }
        pieces
    }

    fn kinds(&self) -> Result<Vec<TokenKind>, TextError> {
        let Some(types) = &self.types else {
            return Ok(vec![TokenKind::Normal; self.tokens.len()]);
        };
        self.check_len("token types", types.len())?;
        let kind = |(id, number): (usize, &i32)| match number {
            1 => Ok(TokenKind::Normal),
            2 => Ok(TokenKind::Unknown),
            3 => Ok(TokenKind::Control),
            4 => Ok(TokenKind::UserDefined),
            5 => Ok(TokenKind::Unused),
            6 => Ok(TokenKind::Byte),
            _ => {
                let what = format!("type of token {id}");
                Err(TextError::vocabulary(what, "1 to 6", number.to_string()))
            }
        };
        types.iter().enumerate().map(kind).collect()
    }

    fn check_len(&self, what: &str, found: usize) -> Result<(), TextError> {
        let expected = self.tokens.len();
        if found == expected {
            return Ok(());
        }
        let expected = format!("{expected}, one for each token");
        Err(TextError::vocabulary(
            format!("number of {what}"),
            expected,
            found.to_string(),
        ))
    }

    /// A token id of the file, which must be one of the vocabulary.
    fn checked(&self, name: &str, id: Option<u32>) -> Result<Option<TokenId>, TextError> {
        match id {
            Some(id) if id as usize >= self.tokens.len() => {
                let what = format!("{name}_token_id");
                let expected = format!("less than {}, the vocabulary's size", self.tokens.len());
                Err(TextError::vocabulary(what, expected, id.to_string()))
            }
            id => Ok(id.map(TokenId)),
        }
    }

    fn end_ids(&self, kinds: &[TokenKind]) -> Result<Vec<TokenId>, TextError> {
        let [eos, eot, eom] = self.ends;
        let mut ids = Vec::new();
        for (name, id) in [("eos", eos), ("eot", eot), ("eom", eom)] {
            ids.extend(self.checked(name, id)?);
        }
        if eot.is_none() {
            let controls = self.tokens.iter().zip(kinds).enumerate();
            let ends = controls
                .filter(|(_, (token, kind))| kind.is_control() && END_NAMES.contains(token));
            ids.extend(ends.map(|(id, _)| TokenId(id as u32)));
        }
        Ok(ids)
    }

    /// The variables of chat templates that name tokens.
    fn special_texts(&self, bos: Bos) -> Vec<(String, String)> {
        let ids = [
            ("bos_token", bos.id().map(|id| id.0)),
            ("eos_token", self.ends[0]),
        ];
        let texts = ids.into_iter().filter_map(|(name, id)| {
            let text = self.tokens.get(id? as usize)?;
            Some((name.to_owned(), (*text).to_owned()))
        });
        texts.collect()
    }
}

/// Control, unknown and user-defined tokens.
fn added_tokens(pieces: &Pieces) -> Vec<AddedToken> {
    let is_added = |kind: TokenKind| kind.is_control() || kind == TokenKind::UserDefined;
    pieces
        .iter()
        .filter(|(id, kind)| is_added(*kind) && !pieces.bytes(*id).is_empty())
        .map(|(id, kind)| AddedToken {
            id,
            text: String::from_utf8_lossy(pieces.bytes(id)).into_owned(),
            is_control: kind.is_control(),
            edges: Edges::default(),
        })
        .collect()
}

/// The byte of a SentencePiece byte token, written `<0x0A>`.
pub(super) fn parse_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2)
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

/// Appends a SentencePiece token as plain text.
pub(super) fn push_unmarked(token: &str, bytes: &mut Vec<u8>) {
    for (index, part) in token.split(SPACE_MARK).enumerate() {
        if index > 0 {
            bytes.push(b' ');
        }
        bytes.extend_from_slice(part.as_bytes());
    }
}
