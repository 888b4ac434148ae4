//! How tokens are drawn, and what of it comes back: the user's side of the logits chain.
//!
//! Neighbours: part of a `request.rs`; `step_batch/` writes it as rows for the kernels, which
//! process logits in the order documented at [`SamplingParams`].

use crate::beam::BeamSearch;
use crate::{AdmissionError, EngineConfig, TokenId};

/// How tokens are drawn. The default is greedy with every option off.
///
/// Logits are processed in this order: logit bias and `min_tokens`, repetition penalty (prompt and
/// output), frequency and presence penalties (output only), grammar mask, temperature, top-k,
/// top-p, typical-p, min-p. Whatever is left is drawn from, with noise that is a function of
/// (seed, position, token).
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy; finite and not negative. Below 1e-6 counts as 0.
    pub temperature: f32,
    /// Seed of the request's noise. A caller whose user gave none draws one: the engine has no
    /// randomness of its own. Sample i of a request draws with `seed + i`, so that it equals the
    /// only sample of a request with that seed. Greedy requests ignore it.
    pub seed: u64,
    /// Keeps the k likeliest tokens, and those equal to the k-th; 0 is off.
    pub top_k: u32,
    /// Keeps the fewest likeliest tokens whose probabilities reach this; 1 is off. In (0, 1].
    pub top_p: f32,
    /// Keeps tokens at least this times as likely as the likeliest; 0 is off. In [0, 1].
    pub min_p: f32,
    /// Locally typical sampling (Meister et al., arXiv 2202.00666); 1 is off. In (0, 1].
    pub typical_p: f32,
    /// Divides positive logits and multiplies others of tokens seen in prompt or output (Keskar et
    /// al., arXiv 1909.05858); 1 is off. Above 0.
    pub repetition_penalty: f32,
    /// Taken from the logits of tokens in the output; 0 is off.
    pub presence_penalty: f32,
    /// Taken from the logits of tokens in the output, times how often; 0 is off.
    pub frequency_penalty: f32,
    /// Added to single tokens' logits; `-inf` bans a token. Each token once.
    pub logit_bias: Vec<(TokenId, f32)>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            seed: 0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
        }
    }
}

/// Temperatures below this are greedy.
pub const TEMPERATURE_MIN: f32 = 1e-6;

impl SamplingParams {
    /// Whether the likeliest token is always taken.
    pub fn is_greedy(&self) -> bool {
        self.temperature < TEMPERATURE_MIN
    }

    /// Whether earlier tokens change the logits.
    #[expect(
        clippy::float_cmp,
        reason = "exactly the neutral value turns a penalty off"
    )]
    pub fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }

    pub(crate) fn validate(&self, config: &EngineConfig) -> Result<(), AdmissionError> {
        let checks = [
            (
                "temperature",
                self.temperature,
                self.temperature >= 0.0,
                "a finite number from 0 up",
            ),
            (
                "top_p",
                self.top_p,
                in_open_unit(self.top_p),
                "above 0 and at most 1",
            ),
            (
                "min_p",
                self.min_p,
                (0.0..=1.0).contains(&self.min_p),
                "from 0 to 1",
            ),
            (
                "typical_p",
                self.typical_p,
                in_open_unit(self.typical_p),
                "above 0 and at most 1",
            ),
            (
                "repetition_penalty",
                self.repetition_penalty,
                self.repetition_penalty > 0.0,
                "a finite number above 0",
            ),
            (
                "presence_penalty",
                self.presence_penalty,
                true,
                "a finite number",
            ),
            (
                "frequency_penalty",
                self.frequency_penalty,
                true,
                "a finite number",
            ),
        ];
        for (field, found, is_in_range, expected) in checks {
            if !found.is_finite() || !is_in_range {
                return Err(AdmissionError::OutOfRange {
                    field,
                    found,
                    expected,
                });
            }
        }
        self.validate_bias(config)
    }

    fn validate_bias(&self, config: &EngineConfig) -> Result<(), AdmissionError> {
        let vocab_size = config.vocab_size;
        for (index, &(token, bias)) in self.logit_bias.iter().enumerate() {
            let field = "logit_bias";
            if token.0 as usize >= vocab_size {
                return Err(AdmissionError::TokenOutOfVocabulary {
                    field,
                    index,
                    token,
                    vocab_size,
                });
            }
            if bias.is_nan() || bias == f32::INFINITY {
                return Err(AdmissionError::OutOfRange {
                    field,
                    found: bias,
                    expected: "a finite number, or -inf to ban the token",
                });
            }
        }
        let mut tokens: Vec<_> = self.logit_bias.iter().map(|&(token, _)| token).collect();
        tokens.sort_unstable();
        match tokens.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(AdmissionError::RepeatedBias { token: pair[0] }),
            None => Ok(()),
        }
    }
}

fn in_open_unit(value: f32) -> bool {
    value > 0.0 && value <= 1.0
}

/// Log-probabilities asked for besides the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogprobsParams {
    /// So many of the likeliest tokens, besides the one chosen.
    pub num_top: u32,
    /// Of which distribution.
    pub kind: LogprobsKind,
}

/// Of which distribution log-probabilities are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogprobsKind {
    /// The model's own, before bias, penalties, masks, temperature and filters.
    #[default]
    Raw,
    /// The one the token was drawn from: after all of them. Masked tokens have `-inf`.
    Processed,
}

/// Beam search (Graves, arXiv 1211.3711, section 2.3): keeps the `width` likeliest continuations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeamParams {
    /// Continuations kept from token to token.
    pub width: u32,
    /// A hypothesis of n generated tokens scores its log-probability divided by n to this power: 0
    /// favours short ones, 1 the best per token.
    pub length_penalty: f32,
    /// Ends when `width` hypotheses have ended. Otherwise when none that still runs can win.
    pub early_stopping: bool,
}

/// What comes back of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputParams {
    /// Samples returned: n.
    pub num_samples: u32,
    /// Samples drawn, of which the `num_samples` with the greatest log-probability per token are
    /// returned at the end; `None` draws as many as are returned, and streams them.
    pub best_of: Option<u32>,
    /// Beam search instead of sampling.
    pub beam: Option<BeamParams>,
    /// Log-probabilities of generated tokens.
    pub logprobs: Option<LogprobsParams>,
    /// Log-probabilities of the prompt's tokens, with so many of the likeliest at each position.
    /// Such requests do not read the prefix cache: every position has to be computed.
    pub prompt_logprobs: Option<u32>,
}

impl Default for OutputParams {
    fn default() -> Self {
        Self {
            num_samples: 1,
            best_of: None,
            beam: None,
            logprobs: None,
            prompt_logprobs: None,
        }
    }
}

impl OutputParams {
    /// Sequences that run at once for the request.
    pub fn width(&self) -> usize {
        let drawn = self.best_of.unwrap_or(self.num_samples);
        self.beam.map_or(drawn, |beam| beam.width) as usize
    }

    /// Whether tokens can be told as they come: samples are not chosen among at the end.
    pub fn is_streamed(&self) -> bool {
        self.beam.is_none()
            && self
                .best_of
                .is_none_or(|best_of| best_of == self.num_samples)
    }

    pub(crate) fn validate(&self, config: &EngineConfig) -> Result<(), AdmissionError> {
        let width = self.width();
        if self.num_samples == 0 || (self.num_samples as usize) > width {
            return Err(AdmissionError::NumSamples {
                num_samples: self.num_samples as usize,
                width,
            });
        }
        if width > config.step_seqs_max {
            return Err(AdmissionError::TooWide {
                width,
                step_seqs_max: config.step_seqs_max,
            });
        }
        if let Some(beam) = self.beam
            && !beam.length_penalty.is_finite()
        {
            return Err(AdmissionError::OutOfRange {
                field: "length_penalty",
                found: beam.length_penalty,
                expected: "a finite number",
            });
        }
        let candidates = self
            .beam
            .map(|beam| BeamSearch::num_candidates(beam, 0, config.vocab_size));
        let asked = [
            ("candidates per beam (twice the width)", candidates),
            ("logprobs", self.logprobs.map(|logprobs| logprobs.num_top)),
            ("prompt_logprobs", self.prompt_logprobs),
        ];
        for (field, num_top) in asked {
            let (found, limit) = (num_top.unwrap_or(0) as usize, config.logprobs_max());
            if found > limit {
                return Err(AdmissionError::TooManyLogprobs {
                    field,
                    found,
                    limit,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KvGroupConfig, PrefixCacheConfig, SchedulingConfig};

    fn config(vocab_size: usize) -> EngineConfig {
        EngineConfig {
            block_size: 16,
            groups: vec![KvGroupConfig {
                num_blocks: 100,
                window: None,
            }],
            step_tokens_max: 512,
            step_seqs_max: 300,
            max_seq_len: 100,
            vocab_size,
            eos_token_ids: Vec::new(),
            prefix_cache: PrefixCacheConfig::default(),
            scheduling: SchedulingConfig::default(),
            speculation: crate::SpeculationConfig::default(),
        }
    }

    #[test]
    fn beams_may_ask_for_as_many_candidates_as_a_row_brings_down() {
        let beams = |width| OutputParams {
            beam: Some(BeamParams {
                width,
                length_penalty: 1.0,
                early_stopping: false,
            }),
            ..OutputParams::default()
        };
        assert_eq!(beams(128).validate(&config(1000)), Ok(()));
        let refused = beams(129).validate(&config(1000)).unwrap_err().to_string();
        assert_eq!(
            refused,
            "candidates per beam (twice the width) is 258, at most 256 come down"
        );
        // Of a small vocabulary every token comes down.
        assert_eq!(beams(300).validate(&config(256)), Ok(()));
    }
}
