//! What comes of a request, gathered from the engine's events.
//!
//! Neighbours: `driver/mod.rs` feeds it; `openai/answer.rs`, `generate/` and `bench/` read it.

use forerun_engine::{
    Event, FailureCause, FinishReason, RowLogprobs, SpeculationReport, Timestamp, TokenId,
    TokenLogprob, Usage,
};

/// A request's samples and what they took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// The prompt's tokens, for requests that asked for their log-probabilities.
    pub(crate) prompt: Vec<ScoredToken>,
    /// By index.
    pub(crate) samples: Vec<Sample>,
    /// Known when the request has ended.
    pub(crate) usage: Usage,
    /// The same.
    pub(crate) speculation: SpeculationReport,
    /// When it was added.
    pub(crate) queued_at: Timestamp,
}

/// One sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Generated tokens.
    pub(crate) tokens: Vec<ScoredToken>,
    /// When each came.
    pub(crate) token_times: Vec<Timestamp>,
    /// Bytes of the text.
    bytes: Vec<u8>,
    /// Known when it has ended.
    pub(crate) reason: Option<FinishReason>,
}

/// A token, with its log-probabilities if they were asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScoredToken {
    pub(crate) token: TokenId,
    pub(crate) scores: Option<Scores>,
}

/// Log-probabilities at a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scores {
    /// Of the token itself.
    pub(crate) logprob: f32,
    /// 1 is the likeliest.
    pub(crate) rank: u32,
    /// The likeliest, in descending order.
    pub(crate) top: Vec<TokenLogprob>,
}

impl ScoredToken {
    fn new(token: TokenId, logprobs: Option<RowLogprobs<'_>>) -> Self {
        Self {
            token,
            scores: logprobs.map(|row| Scores {
                logprob: row.chosen.logprob,
                rank: row.rank,
                top: row.top.to_vec(),
            }),
        }
    }
}

impl Sample {
    /// The text so far; what is no UTF-8 becomes U+FFFD, as in a stream.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl Outcome {
    pub(super) fn new(num_samples: u32, queued_at: Timestamp) -> Self {
        Self {
            prompt: Vec::new(),
            samples: vec![Sample::default(); num_samples as usize],
            usage: Usage::default(),
            speculation: SpeculationReport::default(),
            queued_at,
        }
    }

    /// Takes an event of this request that happened at `now`.
    pub(super) fn take(&mut self, event: &Event<'_>, now: Timestamp) {
        match *event {
            Event::PromptToken {
                token, logprobs, ..
            } => {
                self.prompt.push(ScoredToken::new(token, logprobs));
            }
            Event::Token {
                sample,
                token,
                text,
                logprobs,
                ..
            } => {
                let sample = &mut self.samples[sample as usize];
                sample.tokens.push(ScoredToken::new(token, logprobs));
                sample.token_times.push(now);
                sample.bytes.extend_from_slice(text);
            }
            Event::SampleFinished {
                sample,
                reason,
                text,
                ..
            } => {
                let sample = &mut self.samples[sample as usize];
                sample.bytes.extend_from_slice(text);
                sample.reason = Some(reason.clone());
            }
            Event::Draft { .. } => {}
            Event::Finished {
                usage, speculation, ..
            } => {
                self.usage = usage;
                self.speculation = speculation.clone();
                // A beam search may find fewer texts than were asked for.
                self.samples.retain(|sample| sample.reason.is_some());
            }
        }
    }

    /// Why a sample could not go on, if one could not.
    pub(crate) fn failure(&self) -> Option<&FailureCause> {
        self.samples.iter().find_map(|sample| match &sample.reason {
            Some(FinishReason::Error(cause)) => Some(cause),
            _ => None,
        })
    }
}

/// OpenAI's name for why a sample ended.
pub(crate) fn finish_name(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::Aborted => "abort",
        FinishReason::Error(_) => "error",
    }
}
