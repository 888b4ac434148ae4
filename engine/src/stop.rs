//! The one place that decides whether a token is the last of its sequence.
//!
//! Neighbours: `sequence/mod.rs` asks it for each committed token in order, so that whichever event
//! comes first wins: end token, stop token, stop string, length.

use std::sync::Arc;

use crate::stop_strings::StopStrings;
use crate::{EngineConfig, FinishReason, StopCause, StopParams, TokenId, Vocabulary};

/// The stop conditions of one sequence, and how far its stop strings have matched.
#[derive(Clone, Debug)]
pub(crate) struct StopConditions {
    tokens: Arc<StopTokens>,
    strings: StopStrings,
    /// The sequence is not longer than this, prompt and generated tokens together.
    num_tokens_max: usize,
    /// End and stop tokens are banned while the sequence is shorter than this.
    num_tokens_min: usize,
}

/// What ends a sequence by its id.
#[derive(Clone, Debug)]
struct StopTokens {
    /// The model's end tokens; empty if the request ignores them.
    eos: Vec<TokenId>,
    /// The request's own.
    stop: Vec<TokenId>,
}

impl StopConditions {
    /// For a prompt of `num_prompt` tokens.
    pub(crate) fn new(params: &StopParams, num_prompt: usize, config: &EngineConfig) -> Self {
        let by_request = params.max_tokens.map_or(usize::MAX, |max_tokens| {
            num_prompt.saturating_add(max_tokens as usize)
        });
        let eos = if params.ignore_eos {
            Vec::new()
        } else {
            config.eos_token_ids.clone()
        };
        Self {
            tokens: Arc::new(StopTokens {
                eos,
                stop: params.stop_token_ids.clone(),
            }),
            strings: StopStrings::new(&params.stop_strings),
            num_tokens_max: by_request.min(config.seq_len_max()),
            num_tokens_min: num_prompt.saturating_add(params.min_tokens as usize),
        }
    }

    /// Most tokens the sequence can have.
    pub(crate) fn num_tokens_max(&self) -> usize {
        self.num_tokens_max
    }

    /// Tokens that must not come next in a sequence of `num_tokens`: those that would end it too
    /// early.
    pub(crate) fn banned(&self, num_tokens: usize) -> impl Iterator<Item = TokenId> + '_ {
        let is_early = num_tokens < self.num_tokens_min;
        let all = self.tokens.eos.iter().chain(&self.tokens.stop).copied();
        all.filter(move |_| is_early)
    }

    /// Looks at `token`, which brings the sequence to `num_tokens`, and appends to `text` the bytes
    /// that are certain now. Returns why the sequence ends with this token, if it does.
    ///
    /// End and stop tokens add no text: they are not part of what the model says.
    pub(crate) fn push<V: Vocabulary + ?Sized>(
        &mut self,
        token: TokenId,
        num_tokens: usize,
        vocabulary: &V,
        text: &mut Vec<u8>,
    ) -> Option<FinishReason> {
        if self.tokens.eos.contains(&token) {
            return Some(FinishReason::Stop(StopCause::Eos(token)));
        }
        if self.tokens.stop.contains(&token) {
            return Some(FinishReason::Stop(StopCause::Token(token)));
        }
        if let Some(index) = self.strings.push(vocabulary.token_bytes(token), text) {
            return Some(FinishReason::Stop(StopCause::String(index)));
        }
        (num_tokens >= self.num_tokens_max).then_some(FinishReason::Length)
    }

    /// Appends to `text` what was held back: the sequence ends.
    pub(crate) fn finish(&mut self, text: &mut Vec<u8>) {
        self.strings.finish(text);
    }
}
