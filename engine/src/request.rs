//! What a caller asks for.
//!
//! Neighbours: `admission.rs` checks a [`Request`] on arrival; `request_state.rs` follows it to its
//! end; `sequence/mod.rs` is one of its growing streams of tokens.

use std::sync::Arc;

use crate::{CacheKeys, OutputParams, SamplingParams, SpeculationParams, TokenId};

/// One prompt to continue. Immutable once added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Tokens to continue, at least one.
    pub prompt: Vec<TokenId>,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// When to end.
    pub stop: StopParams,
    /// What comes back: samples, beams, log-probabilities.
    pub output: OutputParams,
    /// Smaller is served first, where the engine schedules by priority; else ignored.
    pub priority: i32,
    /// Whose cached prefixes it may use, and who may use its own.
    pub cache_keys: CacheKeys,
    /// What it waits for before it can run: it is parked until [`crate::Engine::promote`].
    pub waits_for: Option<WaitReason>,
    /// Who drafts for it, and how drafts are verified.
    pub speculation: SpeculationParams,
}

/// What a parked request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Its grammar is being compiled.
    Grammar,
    /// Keys and values are fetched from elsewhere.
    RemoteKv,
    /// Its prompt is still coming: see [`crate::Engine::append_prompt`].
    StreamingInput,
}

/// When a request ends, besides at the longest length of the model and the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopParams {
    /// Most tokens to generate, at least 1; `None` is until the longest length.
    pub max_tokens: Option<u32>,
    /// End tokens and stop tokens cannot be drawn before so many tokens are generated; stop strings
    /// can still end the text.
    pub min_tokens: u32,
    /// Tokens that end the text. They are kept as the last token and add no text.
    pub stop_token_ids: Vec<TokenId>,
    /// Bytes that end the text. The text ends before them; the token that completes them is the
    /// last one kept.
    pub stop_strings: Vec<Vec<u8>>,
    /// Goes on past the model's own end tokens. Stop tokens given here still end the text.
    pub ignore_eos: bool,
}

/// The bytes of each token, so that stop strings can be found in text.
pub trait Vocabulary {
    /// Bytes that token `id` adds to the text. Empty for tokens that are not text (control tokens)
    /// and for ids without an entry.
    fn token_bytes(&self, id: TokenId) -> &[u8];
}

impl<V: Vocabulary + ?Sized> Vocabulary for &V {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        (**self).token_bytes(id)
    }
}

impl<V: Vocabulary + ?Sized> Vocabulary for Box<V> {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        (**self).token_bytes(id)
    }
}

impl<V: Vocabulary + ?Sized> Vocabulary for Arc<V> {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        (**self).token_bytes(id)
    }
}
