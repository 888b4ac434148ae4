//! What a caller asks for, and when it is refused.
//!
//! Neighbours: `engine.rs` checks a [`Request`] on arrival; `sequence/mod.rs` turns it into a
//! growing stream of tokens; `stop.rs` reads its [`StopParams`].

use std::sync::Arc;

use thiserror::Error;

use crate::{EngineConfig, TokenId};

/// One prompt to continue. Immutable once added.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Tokens to continue, at least one.
    pub prompt: Vec<TokenId>,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// When to end.
    pub stop: StopParams,
}

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy; finite and not negative.
    pub temperature: f32,
    /// Seed of the request's noise. A caller whose user gave none draws one: the engine has no
    /// randomness of its own. Greedy requests ignore it.
    pub seed: u64,
}

/// When a request ends, besides at the longest length of the model and the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopParams {
    /// Most tokens to generate, at least 1; `None` is until the longest length.
    pub max_tokens: Option<u32>,
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

/// Why a request was refused. Nothing of it is kept.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum AdmissionError {
    /// There is nothing to continue.
    #[error("the prompt is empty: give at least one token (this tokenizer adds none by itself)")]
    EmptyPrompt,
    /// The model cannot take the prompt and one token more.
    #[error(
        "the prompt has {prompt_tokens} tokens, the model takes {prompt_tokens_max} and one \
         generated (length {max_seq_len}): shorten it"
    )]
    PromptTooLong {
        /// Tokens in the prompt.
        prompt_tokens: usize,
        /// Most tokens a prompt may have.
        prompt_tokens_max: usize,
        /// Longest sequence of the model.
        max_seq_len: usize,
    },
    /// The KV pool could not hold the prompt and one token more even when empty.
    #[error(
        "a prompt of {prompt_tokens} tokens needs {num_blocks_needed} blocks, have \
         {num_blocks} of {block_size} tokens (sequences up to {seq_len_max} tokens): shorten it or \
         give the engine more KV memory"
    )]
    DoesNotFit {
        /// Tokens in the prompt.
        prompt_tokens: usize,
        /// Blocks for the prompt and one token.
        num_blocks_needed: usize,
        /// Usable blocks in the smallest pool.
        num_blocks: usize,
        /// Tokens per block.
        block_size: usize,
        /// Longest sequence that fits.
        seq_len_max: usize,
    },
    /// A token id that the model does not have.
    #[error("{field}[{index}] is token {token}, outside the vocabulary of {vocab_size} tokens")]
    TokenOutOfVocabulary {
        /// Field of the request.
        field: &'static str,
        /// Entry of the field.
        index: usize,
        /// The token.
        token: TokenId,
        /// Tokens in the vocabulary.
        vocab_size: usize,
    },
    /// A temperature that is no temperature.
    #[error("temperature is {found}, must be a finite number from 0 up")]
    Temperature {
        /// Value found.
        found: f32,
    },
    /// Nothing to generate.
    #[error("max_tokens is 0, must be at least 1")]
    NoTokensAsked,
    /// A stop string that matches everywhere.
    #[error("stop_strings[{index}] is empty: leave it out")]
    EmptyStopString {
        /// Entry of the field.
        index: usize,
    },
}

impl Request {
    /// Checks the request against what the engine can ever do.
    pub(crate) fn validate(&self, config: &EngineConfig) -> Result<(), AdmissionError> {
        self.check_length(config)?;
        in_vocabulary("prompt", &self.prompt, config.vocab_size)?;
        in_vocabulary(
            "stop_token_ids",
            &self.stop.stop_token_ids,
            config.vocab_size,
        )?;
        let temperature = self.sampling.temperature;
        if !temperature.is_finite() || temperature < 0.0 {
            return Err(AdmissionError::Temperature { found: temperature });
        }
        if self.stop.max_tokens == Some(0) {
            return Err(AdmissionError::NoTokensAsked);
        }
        match self.stop.stop_strings.iter().position(Vec::is_empty) {
            Some(index) => Err(AdmissionError::EmptyStopString { index }),
            None => Ok(()),
        }
    }

    /// One rule in every mode: a prompt may have one token less than the longest sequence.
    fn check_length(&self, config: &EngineConfig) -> Result<(), AdmissionError> {
        let prompt_tokens = self.prompt.len();
        let seq_len_max = config.seq_len_max();
        if prompt_tokens == 0 {
            return Err(AdmissionError::EmptyPrompt);
        }
        if prompt_tokens < seq_len_max {
            return Ok(());
        }
        if prompt_tokens >= config.max_seq_len {
            return Err(AdmissionError::PromptTooLong {
                prompt_tokens,
                prompt_tokens_max: config.max_seq_len - 1,
                max_seq_len: config.max_seq_len,
            });
        }
        Err(AdmissionError::DoesNotFit {
            prompt_tokens,
            num_blocks_needed: (prompt_tokens + 1).div_ceil(config.block_size),
            num_blocks: seq_len_max / config.block_size,
            block_size: config.block_size,
            seq_len_max,
        })
    }
}

fn in_vocabulary(
    field: &'static str,
    tokens: &[TokenId],
    vocab_size: usize,
) -> Result<(), AdmissionError> {
    match tokens
        .iter()
        .position(|token| token.0 as usize >= vocab_size)
    {
        None => Ok(()),
        Some(index) => {
            let token = tokens[index];
            Err(AdmissionError::TokenOutOfVocabulary {
                field,
                index,
                token,
                vocab_size,
            })
        }
    }
}
