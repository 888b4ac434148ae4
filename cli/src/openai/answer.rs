//! What the engine made of a request, as the body of a response.
//!
//! Neighbours: `request.rs` makes the [`AnswerHead`]; `driver/` the outcome; `batch/` writes it.

use forerun_engine::{FailureCause, FinishReason, StopCause};

use super::error::ApiError;
use super::logprobs;
use super::request::Endpoint;
use super::response::{
    AssistantMessage, Choice, Content, PromptTokensDetails, ResponseBody, StopReason, UsageBody,
};
use crate::codec::Codec;
use crate::driver::{Outcome, Sample, ScoredToken};
use crate::speculation::SpeculationBody;

/// What is kept of a request for its answer.
#[derive(Clone, Debug)]
pub(crate) struct AnswerHead {
    pub(super) endpoint: Endpoint,
    /// The model that the request named.
    pub(super) model: Option<String>,
    /// Text to put before the answer.
    pub(super) echo: Option<String>,
    pub(super) shows_logprobs: bool,
    pub(super) shows_prompt_logprobs: bool,
    /// The request's stop strings, to name the one that ended a text.
    pub(super) stop_strings: Vec<Vec<u8>>,
}

/// An answer about to be written.
pub(crate) struct Answer<'a, C> {
    pub(crate) codec: &'a C,
    /// The model that answered, for requests that named none.
    pub(crate) model: &'a str,
    /// Distinguishes answers: a part of their ids.
    pub(crate) name: &'a str,
    /// Seconds since 1970.
    pub(crate) created: u64,
}

impl<C: Codec> Answer<'_, C> {
    /// The body for what came of a request.
    ///
    /// # Errors
    /// One of its samples failed: then there is no answer.
    pub(crate) fn body(
        &self,
        head: AnswerHead,
        outcome: &Outcome,
    ) -> Result<ResponseBody, ApiError> {
        if let Some(cause) = outcome.failure() {
            return Err(failure(cause));
        }
        let (object, prefix) = match head.endpoint {
            Endpoint::Completions => ("text_completion", "cmpl"),
            Endpoint::Chat => ("chat.completion", "chatcmpl"),
        };
        let prompt_logprobs = || {
            head.shows_prompt_logprobs
                .then(|| logprobs::of_prompt(self.codec, &outcome.prompt))
        };
        let mut choices = Vec::with_capacity(outcome.samples.len());
        for (index, sample) in (0..).zip(&outcome.samples) {
            let (finish_reason, stop_reason) = finish(sample, &head.stop_strings);
            choices.push(Choice {
                index,
                content: self.content(&head, &outcome.prompt, sample),
                finish_reason,
                stop_reason,
                prompt_logprobs: match head.endpoint {
                    Endpoint::Completions => prompt_logprobs(),
                    Endpoint::Chat => None,
                },
            });
        }
        let usage = outcome.usage;
        Ok(ResponseBody {
            id: format!("{prefix}-{}", self.name),
            object,
            created: self.created,
            choices,
            usage: UsageBody {
                prompt_tokens: usage.prompt_tokens,
                completion_tokens: usage.completion_tokens,
                total_tokens: usage.prompt_tokens + usage.completion_tokens,
                prompt_tokens_details: PromptTokensDetails {
                    cached_tokens: usage.cached_tokens,
                },
            },
            speculation: SpeculationBody::from(&outcome.speculation),
            prompt_logprobs: match head.endpoint {
                Endpoint::Completions => None,
                Endpoint::Chat => prompt_logprobs(),
            },
            model: head.model.unwrap_or_else(|| self.model.to_owned()),
        })
    }

    fn content(&self, head: &AnswerHead, prompt: &[ScoredToken], sample: &Sample) -> Content {
        let text = sample.text();
        match head.endpoint {
            Endpoint::Completions => {
                let echoed = if head.echo.is_some() { prompt } else { &[] };
                let tokens = echoed.iter().chain(&sample.tokens);
                Content::Completion {
                    text: head.echo.clone().unwrap_or_default() + &text,
                    logprobs: head
                        .shows_logprobs
                        .then(|| logprobs::of_completion(self.codec, tokens)),
                }
            }
            Endpoint::Chat => Content::Chat {
                message: AssistantMessage {
                    role: "assistant",
                    content: text,
                },
                logprobs: head
                    .shows_logprobs
                    .then(|| logprobs::of_chat(self.codec, &sample.tokens)),
            },
        }
    }
}

/// How the sample ended, and what text or token of the request's own ended it.
fn finish(sample: &Sample, stop_strings: &[Vec<u8>]) -> (&'static str, Option<StopReason>) {
    let reason = sample.reason.as_ref();
    let stop_reason = match reason {
        Some(FinishReason::Stop(StopCause::String(index))) => {
            let bytes = stop_strings.get(*index);
            bytes.map(|bytes| StopReason::Text(String::from_utf8_lossy(bytes).into_owned()))
        }
        Some(FinishReason::Stop(StopCause::Token(token))) => Some(StopReason::Token(token.0)),
        _ => None,
    };
    (
        reason.map_or("abort", crate::driver::finish_name),
        stop_reason,
    )
}

/// A grammar that cannot be used is the request's fault.
fn failure(cause: &FailureCause) -> ApiError {
    match cause {
        FailureCause::Grammar(_) => ApiError::invalid(cause.to_string()),
        _ => ApiError::server(cause.to_string()),
    }
}
