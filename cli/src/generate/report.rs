//! What a finished run says about itself: the JSON object and the closing line.
//!
//! Neighbours: `mod.rs` fills it; `scores.rs` has the log-probabilities.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::scores::TokenScore;
use crate::speculation::SpeculationBody;

/// The object `--output json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) model: String,
    pub(super) device: String,
    pub(super) prompt_token_ids: Vec<u32>,
    /// If they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_logprobs: Option<Vec<TokenScore>>,
    pub(super) outputs: Vec<Output>,
    pub(super) usage: UsageReport,
    pub(super) timing: Timing,
    pub(super) speculation: SpeculationBody,
}

/// One continuation.
#[derive(Debug, Serialize)]
pub(super) struct Output {
    pub(super) index: usize,
    pub(super) text: String,
    pub(super) token_ids: Vec<u32>,
    pub(super) finish_reason: &'static str,
    /// If they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logprobs: Option<Vec<TokenScore>>,
}

/// Token counts.
#[derive(Debug, Serialize)]
#[expect(
    clippy::struct_field_names,
    reason = "the names of OpenAI's usage object"
)]
pub(super) struct UsageReport {
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    pub(super) cached_tokens: usize,
}

/// Times and speeds. Speeds are absent where nothing was measured.
#[derive(Debug, Serialize)]
pub(super) struct Timing {
    /// Opening the device and loading the model, seconds.
    pub(super) load_s: f64,
    /// Time to first token: from the request to its first token, milliseconds.
    pub(super) ttft_ms: Option<f64>,
    /// Tokens after the first, per second.
    pub(super) decode_tokens_per_s: Option<f64>,
    /// Prompt tokens until the first token, per second.
    pub(super) prefill_tokens_per_s: Option<f64>,
}

/// When things happened, as durations since the request was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    pub(super) first_token: Option<Duration>,
    pub(super) last_token: Duration,
}

impl Timing {
    /// Speeds of a run of `prompt_tokens` and `completion_tokens`.
    pub(super) fn new(
        load: Duration,
        clock: Clock,
        prompt_tokens: usize,
        completion_tokens: usize,
    ) -> Self {
        let per_second = |tokens: usize, time: Duration| {
            let seconds = time.as_secs_f64();
            (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
        };
        let first = clock.first_token;
        Self {
            load_s: load.as_secs_f64(),
            ttft_ms: first.map(|time| time.as_secs_f64() * 1000.0),
            decode_tokens_per_s: first.and_then(|first| {
                per_second(
                    completion_tokens.saturating_sub(1),
                    clock.last_token.saturating_sub(first),
                )
            }),
            prefill_tokens_per_s: first.and_then(|first| per_second(prompt_tokens, first)),
        }
    }
}

impl Report {
    /// The texts, each under a header if there are several.
    pub(super) fn write_texts(&self, out: &mut impl Write) -> io::Result<()> {
        for output in &self.outputs {
            if self.outputs.len() > 1 {
                writeln!(
                    out,
                    "--- sample {} ({}) ---",
                    output.index, output.finish_reason
                )?;
            }
            writeln!(out, "{}", output.text)?;
        }
        out.flush()
    }

    /// The closing line of a run.
    pub(super) fn closing_line(&self) -> String {
        let speed = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
        };
        format!(
            "{} prompt + {} generated tokens on {} | load {:.2} s | TTFT {} ms | prefill {} tokens/s | decode {} tokens/s",
            self.usage.prompt_tokens,
            self.usage.completion_tokens,
            self.device,
            self.timing.load_s,
            speed(self.timing.ttft_ms),
            speed(self.timing.prefill_tokens_per_s),
            speed(self.timing.decode_tokens_per_s),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_count_the_tokens_between_the_events_they_are_measured_between() {
        let clock = Clock {
            first_token: Some(Duration::from_millis(200)),
            last_token: Duration::from_millis(700),
        };
        let timing = Timing::new(Duration::from_secs(1), clock, 100, 11);
        assert!((timing.decode_tokens_per_s.unwrap() - 20.0).abs() < 1e-9);
        assert!((timing.prefill_tokens_per_s.unwrap() - 500.0).abs() < 1e-9);
        assert!((timing.ttft_ms.unwrap() - 200.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_without_tokens_has_no_speeds() {
        let timing = Timing::new(Duration::from_secs(1), Clock::default(), 100, 0);
        assert!(timing.ttft_ms.is_none() && timing.decode_tokens_per_s.is_none());
    }
}
