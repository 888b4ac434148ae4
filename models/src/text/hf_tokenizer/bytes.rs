//! What the tokens of a `tokenizer.json` stand for: its decoder as bytes for each token, and its
//! post-processor as the token put in front.
//!
//! Neighbours: [`super`], [`super::super::gguf_tokenizer`] (the same alphabets).

use forerun_engine::TokenId;
use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer as _};

use super::super::error::TextError;
use super::super::gguf_tokenizer::byte_level::ByteAlphabet;
use super::super::gguf_tokenizer::{parse_byte, push_unmarked};
use super::super::pieces::{Pieces, TokenKind};

/// How token texts are turned into bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alphabet {
    /// GPT-2's characters for bytes.
    ByteLevel,
    /// U+2581 for space, `<0x0A>` for bytes.
    SentencePiece,
}

/// Bytes and kind of every token, and whether decoding removes one space from the beginning.
pub(super) fn read_pieces(tokenizer: &tokenizers::Tokenizer) -> Result<(Pieces, bool), TextError> {
    let (alphabet, adds_space) = read_decoder(tokenizer)?;
    let added = tokenizer.get_added_tokens_decoder();
    let vocab = tokenizer.get_vocab(true);
    let num_tokens = vocab.values().max().map_or(0, |&max| max as usize + 1);
    let mut texts = vec![None; num_tokens];
    for (text, &id) in &vocab {
        texts[id as usize] = Some(text.as_str());
    }
    let byte_alphabet = ByteAlphabet::new();
    let mut pieces = Pieces::with_capacity(num_tokens, num_tokens * 8);
    for (id, text) in texts.into_iter().enumerate() {
        // Gaps in the numbering are tokens that no text has.
        let text = text.unwrap_or_default();
        let token = added.get(&(id as u32));
        let byte = if alphabet == Alphabet::SentencePiece {
            parse_byte(text)
        } else {
            None
        };
        match (token, byte) {
            (Some(token), _) if token.special => pieces.push(TokenKind::Control, text.as_bytes()),
            (None, Some(byte)) => pieces.push(TokenKind::Byte, &[byte]),
            (token, _) => {
                let is_added = token.is_some();
                let kind = if is_added {
                    TokenKind::UserDefined
                } else {
                    TokenKind::Normal
                };
                pieces.push_with(kind, |bytes| match alphabet {
                    Alphabet::SentencePiece => push_unmarked(text, bytes),
                    Alphabet::ByteLevel if is_added => bytes.extend_from_slice(text.as_bytes()),
                    Alphabet::ByteLevel => byte_alphabet.decode(text, bytes),
                });
            }
        }
    }
    Ok((pieces, adds_space))
}

fn read_decoder(tokenizer: &tokenizers::Tokenizer) -> Result<(Alphabet, bool), TextError> {
    let decoder = to_json(tokenizer.get_decoder())?;
    let steps = match &decoder["decoders"] {
        Value::Array(steps) => steps.as_slice(),
        _ => std::slice::from_ref(&decoder),
    };
    let (mut alphabet, mut adds_space) = (None, false);
    for step in steps {
        match step["type"].as_str() {
            Some("ByteLevel") => alphabet = Some(Alphabet::ByteLevel),
            Some("ByteFallback" | "Fuse") => {}
            Some("Replace") if step["content"] == " " => alphabet = Some(Alphabet::SentencePiece),
            Some("Strip") if step["content"] == " " && step["start"] == 1 && step["stop"] == 0 => {
                adds_space = true;
            }
            Some("Metaspace") => {
                alphabet = Some(Alphabet::SentencePiece);
                adds_space = step["prepend_scheme"] != "never";
            }
            _ => return Err(unsupported_decoder(step)),
        }
    }
    alphabet
        .map(|alphabet| (alphabet, adds_space))
        .ok_or_else(|| unsupported_decoder(&decoder))
}

fn unsupported_decoder(decoder: &Value) -> TextError {
    TextError::Unsupported {
        what: "decoder in tokenizer.json",
        found: decoder.to_string(),
        supported: "ByteLevel, Metaspace, and sequences of Replace (by a space), ByteFallback, \
                    Fuse and Strip (one space at the start)",
    }
}

/// The special token that the post-processor puts in front of a text.
pub(super) fn prefix_token(
    tokenizer: &tokenizers::Tokenizer,
) -> Result<Option<TokenId>, TextError> {
    let processor = to_json(tokenizer.get_post_processor())?;
    let steps = match &processor["processors"] {
        Value::Array(steps) => steps.as_slice(),
        _ => std::slice::from_ref(&processor),
    };
    for step in steps
        .iter()
        .filter(|step| step["type"] == "TemplateProcessing")
    {
        if let Some(name) = step["single"][0]["SpecialToken"]["id"].as_str() {
            let id = step["special_tokens"][name]["ids"][0].as_u64();
            return Ok(id.and_then(|id| u32::try_from(id).ok()).map(TokenId));
        }
    }
    Ok(None)
}

/// A text after the tokenizer's normalizer.
pub(super) fn normalize(
    tokenizer: &tokenizers::Tokenizer,
    text: &str,
) -> Result<String, TextError> {
    let mut normalized = NormalizedString::from(text);
    if let Some(normalizer) = tokenizer.get_normalizer() {
        let result = normalizer.normalize(&mut normalized);
        result.map_err(|error| TextError::Encode(error.to_string()))?;
    }
    Ok(normalized.get().to_owned())
}

fn to_json(part: Option<&impl serde::Serialize>) -> Result<Value, TextError> {
    serde_json::to_value(part).map_err(|error| TextError::Encode(error.to_string()))
}
