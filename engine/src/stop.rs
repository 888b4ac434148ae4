//! The one place that decides whether a token is the last of its sequence.
//!
//! Neighbours: `sequence/mod.rs` asks it for each committed token in order, so that whichever event
//! comes first wins: end token, stop token, stop string, length.

use crate::stop_strings::StopStrings;
use crate::{EngineConfig, FinishReason, Request, StopCause, TokenId, Vocabulary};

/// The stop conditions of one sequence, and how far its stop strings have matched.
#[derive(Clone, Debug)]
pub(crate) struct StopConditions {
    /// The model's end tokens; empty if the request ignores them.
    eos_token_ids: Vec<TokenId>,
    stop_token_ids: Vec<TokenId>,
    strings: StopStrings,
    /// The sequence is not longer than this, prompt and generated tokens together.
    num_tokens_max: usize,
}

impl StopConditions {
    pub(crate) fn new(request: &Request, config: &EngineConfig) -> Self {
        let params = &request.stop;
        let by_request = params.max_tokens.map_or(usize::MAX, |max_tokens| {
            request.prompt.len() + max_tokens as usize
        });
        Self {
            eos_token_ids: if params.ignore_eos {
                Vec::new()
            } else {
                config.eos_token_ids.clone()
            },
            stop_token_ids: params.stop_token_ids.clone(),
            strings: StopStrings::new(&params.stop_strings),
            num_tokens_max: by_request.min(config.seq_len_max()),
        }
    }

    /// Most tokens the sequence can have.
    pub(crate) fn num_tokens_max(&self) -> usize {
        self.num_tokens_max
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
        if self.eos_token_ids.contains(&token) {
            return Some(FinishReason::Stop(StopCause::Eos(token)));
        }
        if self.stop_token_ids.contains(&token) {
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
