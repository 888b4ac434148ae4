//! The parts of a `tokenizer.json`, run one after the other as the `tokenizers` library does:
//! normalizer, pre-tokenizer, model.
//!
//! The library's own `encode` is not used, because it recognises special tokens in a whole text or
//! nowhere, and a conversation needs both. `tests.rs` compares the two on random texts.
//!
//! Neighbours: [`super`] (who loads), [`super::super::tokenizer`] (who calls).

use forerun_engine::TokenId;
use tokenizers::normalizer::Range as TextRange;
use tokenizers::{
    Model as _, NormalizedString, Normalizer as _, OffsetType, PreTokenizedString,
    PreTokenizer as _, Token,
};

use super::super::added_tokens::{AddedTokens, Span};
use super::super::error::TextError;
use super::super::tokenizer::Recognition;

/// A tokenizer of the `tokenizers` library, and the added tokens to be matched in normalised text.
pub(in super::super) struct HfPipeline {
    pub(super) tokenizer: tokenizers::Tokenizer,
    pub(super) normalized_added: AddedTokens,
    /// The same tokens as users would write them.
    pub(super) normalized_names: AddedTokens,
    /// Whether decoding removes one space from the beginning.
    pub(super) adds_space: bool,
}

impl HfPipeline {
    pub(in super::super) fn adds_space(&self) -> bool {
        self.adds_space
    }

    /// The added tokens that are matched in normalised text, as users would write them.
    pub(in super::super) fn normalized_names(&self) -> &AddedTokens {
        &self.normalized_names
    }

    /// Appends the tokens of `text`, which `spans` cover.
    pub(in super::super) fn encode(
        &self,
        text: &str,
        spans: &[Span],
        recognition: &Recognition<'_>,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), TextError> {
        let encoding = self.run(text, spans, recognition);
        let encoding = encoding.map_err(|error| TextError::Encode(error.to_string()))?;
        ids.extend(encoding.get_ids().iter().copied().map(TokenId));
        Ok(())
    }

    fn run(
        &self,
        text: &str,
        spans: &[Span],
        recognition: &Recognition<'_>,
    ) -> tokenizers::Result<tokenizers::Encoding> {
        let mut parts = PreTokenizedString::from(text);
        parts.split(|_, whole| Ok(slices(&whole, spans)))?;
        parts.split(|_, mut part| {
            if let Some(normalizer) = self.tokenizer.get_normalizer() {
                normalizer.normalize(&mut part)?;
            }
            let start = part.offsets_original().0;
            let spans = self.normalized_added.split(part.get(), |token, range| {
                // Where the text came from: taint is known in the text as it was.
                let original = part.convert_offsets(TextRange::Normalized(range));
                original.is_some_and(|range| {
                    recognition.allows(token, start + range.start..start + range.end)
                })
            });
            Ok(slices(&part, &spans))
        })?;
        if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut parts)?;
        }
        parts.tokenize(|part| self.tokenizer.get_model().tokenize(part.get()))?;
        parts.into_encoding(None, 0, OffsetType::None)
    }
}

/// The parts of `text`, those with a token already tokenized.
fn slices(text: &NormalizedString, spans: &[Span]) -> Vec<(NormalizedString, Option<Vec<Token>>)> {
    let slice = |span: &Span| {
        let slice = text.slice(TextRange::Normalized(span.range.clone()))?;
        let token = span.token.map(|id| {
            let value = slice.get().to_owned();
            let len = value.len();
            vec![Token::new(id.0, value, (0, len))]
        });
        Some((slice, token))
    };
    spans.iter().filter_map(slice).collect()
}
