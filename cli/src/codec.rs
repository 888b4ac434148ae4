//! Text to tokens and back, as far as requests and answers need it.
//!
//! Neighbours: the tokenizer of `forerun_models` implements [`Codec`]; `openai/` and `batch/` take
//! any, so that their tests need no model.

use forerun_engine::{TokenId, Vocabulary};
use forerun_models::text::{
    AddBos, GenerationPrompt, Message, SpecialTokens, TextError, Tokenizer,
};

/// A tokenizer with its chat template. The bytes of tokens come from [`Vocabulary`].
pub(crate) trait Codec: Vocabulary {
    /// Tokens of a raw prompt: control tokens are recognised, BOS is added where the model wants it.
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TextError>;

    /// Tokens of a conversation.
    fn encode_chat(
        &self,
        messages: &[Message],
        prompt: GenerationPrompt,
    ) -> Result<Vec<TokenId>, TextError>;

    /// Bytes of a token, of a control token those of its name.
    fn token_name(&self, id: TokenId) -> &[u8];
}

/// The tokenizer of a model.
#[derive(Clone, Copy)]
pub(crate) struct TokenizerCodec<'a>(pub(crate) &'a Tokenizer);

impl Vocabulary for TokenizerCodec<'_> {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.0.token_bytes(id)
    }
}

impl Codec for TokenizerCodec<'_> {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TextError> {
        self.0.encode(text, SpecialTokens::Recognise, AddBos::Auto)
    }

    fn encode_chat(
        &self,
        messages: &[Message],
        prompt: GenerationPrompt,
    ) -> Result<Vec<TokenId>, TextError> {
        self.0.encode_chat(messages, prompt)
    }

    fn token_name(&self, id: TokenId) -> &[u8] {
        self.0.token_name(id)
    }
}
