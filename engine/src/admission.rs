//! Whether a request can ever run: checked on arrival, so that nothing behind has to.
//!
//! Neighbours: `engine.rs` calls [`Request::validate`]; limits come from `config.rs`.

use thiserror::Error;

use crate::{EngineConfig, Request, RequestId, TokenId};

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
    /// A number that is none, or outside its range.
    #[error("{field} is {found}, must be {expected}")]
    OutOfRange {
        /// Field of the request.
        field: &'static str,
        /// Value found.
        found: f32,
        /// What it may be.
        expected: &'static str,
    },
    /// A token has two biases.
    #[error("logit_bias names token {token} twice: give one bias per token")]
    RepeatedBias {
        /// The token.
        token: TokenId,
    },
    /// Nothing to generate.
    #[error("max_tokens is 0, must be at least 1")]
    NoTokensAsked,
    /// More has to be generated than may be.
    #[error("min_tokens is {min_tokens}, max_tokens is {max_tokens}: the first must not exceed it")]
    MinTokens {
        /// Least tokens.
        min_tokens: u32,
        /// Most tokens.
        max_tokens: u32,
    },
    /// A stop string that matches everywhere.
    #[error("stop_strings[{index}] is empty: leave it out")]
    EmptyStopString {
        /// Entry of the field.
        index: usize,
    },
    /// More samples are returned than drawn, or none.
    #[error(
        "{num_samples} samples are to be returned of {width} drawn: ask for at least 1 and draw as \
         many (best_of or beams)"
    )]
    NumSamples {
        /// Samples to return.
        num_samples: usize,
        /// Samples or beams drawn.
        width: usize,
    },
    /// More sequences at once than the engine runs.
    #[error(
        "the request runs {width} sequences at once, the engine at most {step_seqs_max}: ask for \
         fewer samples or beams, or raise --max-num-seqs"
    )]
    TooWide {
        /// Sequences of the request.
        width: usize,
        /// Most sequences of a step.
        step_seqs_max: usize,
    },
    /// More log-probabilities than a step brings down.
    #[error("{field} is {found}, at most {limit} come down")]
    TooManyLogprobs {
        /// Field of the request.
        field: &'static str,
        /// How many were asked for.
        found: usize,
        /// Most that come.
        limit: usize,
    },
    /// The queue is full: back-pressure.
    #[error("{num_waiting} requests wait, the queue holds {waiting_max}: send it again later")]
    QueueFull {
        /// Requests that wait.
        num_waiting: usize,
        /// Most that may.
        waiting_max: usize,
    },
    /// The request is not parked for what it was given.
    #[error("request {request} does not wait for {what}")]
    NotParked {
        /// The request.
        request: RequestId,
        /// What it was given.
        what: &'static str,
    },
}

impl Request {
    /// Checks the request against what the engine can ever do.
    pub(crate) fn validate(&self, config: &EngineConfig) -> Result<(), AdmissionError> {
        check_length(self.prompt.len(), config)?;
        in_vocabulary("prompt", &self.prompt, config.vocab_size)?;
        in_vocabulary(
            "stop_token_ids",
            &self.stop.stop_token_ids,
            config.vocab_size,
        )?;
        self.sampling.validate(config)?;
        self.output.validate(config)?;
        let (min_tokens, max_tokens) = (self.stop.min_tokens, self.stop.max_tokens);
        match max_tokens {
            Some(0) => return Err(AdmissionError::NoTokensAsked),
            Some(max_tokens) if min_tokens > max_tokens => {
                return Err(AdmissionError::MinTokens {
                    min_tokens,
                    max_tokens,
                });
            }
            _ => {}
        }
        match self.stop.stop_strings.iter().position(Vec::is_empty) {
            Some(index) => Err(AdmissionError::EmptyStopString { index }),
            None => Ok(()),
        }
    }
}

/// One rule in every mode: a prompt may have one token less than the longest sequence.
pub(crate) fn check_length(
    prompt_tokens: usize,
    config: &EngineConfig,
) -> Result<(), AdmissionError> {
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

pub(crate) fn in_vocabulary(
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
