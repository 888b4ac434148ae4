//! The objects of a response. Field names are OpenAI's; `stop_reason` and `prompt_logprobs` vLLM's.
//!
//! Neighbours: `answer.rs` fills them, `logprobs.rs` those about log-probabilities.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::speculation::SpeculationBody;

/// A `text_completion` or `chat.completion` object.
#[derive(Debug, Serialize)]
pub(crate) struct ResponseBody {
    pub(super) id: String,
    pub(super) object: &'static str,
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) model: String,
    /// By index.
    pub(super) choices: Vec<Choice>,
    pub(super) usage: UsageBody,
    pub(super) speculation: SpeculationBody,
    /// vLLM's place for chats: per prompt token the likeliest, nothing for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_logprobs: Option<Vec<Option<PromptLogprobs>>>,
}

/// One sample.
#[derive(Debug, Serialize)]
pub(super) struct Choice {
    pub(super) index: u32,
    #[serde(flatten)]
    pub(super) content: Content,
    pub(super) finish_reason: &'static str,
    /// The stop string or stop token that ended it; null at an end token or a length.
    pub(super) stop_reason: Option<StopReason>,
    /// vLLM's place for completions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_logprobs: Option<Vec<Option<PromptLogprobs>>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Content {
    Completion {
        text: String,
        logprobs: Option<CompletionLogprobs>,
    },
    Chat {
        message: AssistantMessage,
        logprobs: Option<ChatLogprobs>,
    },
}

#[derive(Debug, Serialize)]
pub(super) struct AssistantMessage {
    pub(super) role: &'static str,
    pub(super) content: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum StopReason {
    Text(String),
    Token(u32),
}

/// Of a completion: lists with one entry per token.
#[derive(Debug, Default, Serialize)]
pub(super) struct CompletionLogprobs {
    /// Characters before the token, the echoed prompt included.
    pub(super) text_offset: Vec<usize>,
    pub(super) tokens: Vec<String>,
    /// Nothing for the first token of a prompt.
    pub(super) token_logprobs: Vec<Option<f32>>,
    pub(super) top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
}

/// Of a chat: one object per token.
#[derive(Debug, Serialize)]
pub(super) struct ChatLogprobs {
    pub(super) content: Vec<ChatToken>,
}

#[derive(Debug, Serialize)]
pub(super) struct ChatToken {
    #[serde(flatten)]
    pub(super) token: ScoredText,
    pub(super) top_logprobs: Vec<ScoredText>,
}

#[derive(Debug, Serialize)]
pub(super) struct ScoredText {
    pub(super) token: String,
    pub(super) logprob: f32,
    pub(super) bytes: Vec<u8>,
}

/// The likeliest tokens at a place of the prompt, and the one that stands there, by token id.
pub(super) type PromptLogprobs = BTreeMap<u32, PromptLogprob>;

#[derive(Debug, Serialize)]
pub(super) struct PromptLogprob {
    pub(super) logprob: f32,
    /// 1 is the likeliest.
    pub(super) rank: u32,
    pub(super) decoded_token: String,
}

#[derive(Debug, Serialize)]
pub(super) struct UsageBody {
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    pub(super) total_tokens: usize,
    pub(super) prompt_tokens_details: PromptTokensDetails,
}

#[derive(Debug, Serialize)]
pub(super) struct PromptTokensDetails {
    pub(super) cached_tokens: usize,
}
