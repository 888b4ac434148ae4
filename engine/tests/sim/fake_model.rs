//! The model that the fake executor and the oracles share: pure functions of what a token can see.
//!
//! It has two layers, as real ones do: what a token leaves in the pool depends on the tokens it saw
//! when it was computed, and the next token depends on what all of them left.
//!
//! Neighbours: `fake_executor.rs` runs it through block tables, `oracle.rs` over a plain list.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use forerun_engine::{SamplingParams, TEMPERATURE_MIN, TokenId, TokenLogprob, Vocabulary};

/// Folds `value` into `hash` (the mixing step of SplitMix64).
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let mut z = (hash ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// After this token the logits are not finite. It comes in prompts, and almost never out.
pub(crate) fn nan_token(vocab_size: usize) -> Option<u32> {
    (vocab_size >= 8).then(|| vocab_size as u32 - 3)
}

/// Positions that the query at `position` sees.
pub(crate) fn visible(position: u32, window: Option<usize>) -> RangeInclusive<u32> {
    let first = window.map_or(0, |window| (position + 1).saturating_sub(window as u32));
    first..=position
}

/// One more seen token.
pub(crate) fn see(hash: u64, position: u32, what: u64) -> u64 {
    mix(mix(hash, u64::from(position)), what)
}

/// Uniform in [0, 1), of 24 bits.
fn unit(hash: u64) -> f32 {
    (hash >> 40) as f32 / (1 << 24) as f32
}

/// The model's own logits from a hash of everything the last token sees, -3 to 3.
pub(crate) fn raw_logits(hash: u64, vocab_size: usize) -> Vec<f32> {
    let logit = |token: u32| {
        if Some(token) == nan_token(vocab_size) {
            -30.0
        } else {
            6.0 * unit(mix(hash, u64::from(token) + 1)) - 3.0
        }
    };
    (0..vocab_size as u32).map(logit).collect()
}

/// How often each token is in the output, and whether in the prompt.
pub(crate) type Counts = BTreeMap<u32, (u32, bool)>;

/// What changes the logits of one row, in the order of the documentation.
pub(crate) struct Chain<'a> {
    pub(crate) params: &'a SamplingParams,
    pub(crate) bias: &'a [(u32, f32)],
    pub(crate) counts: &'a Counts,
    pub(crate) mask: Option<&'a [u32]>,
}

impl Chain<'_> {
    /// Bias, penalties, mask, temperature and top-k.
    pub(crate) fn process(&self, logits: &mut [f32]) {
        let params = self.params;
        for &(token, bias) in self.bias {
            logits[token as usize] += bias;
        }
        for (&token, &(num_output, _)) in self.counts {
            let logit = &mut logits[token as usize];
            if *logit > 0.0 {
                *logit /= params.repetition_penalty;
            } else {
                *logit *= params.repetition_penalty;
            }
            if num_output > 0 {
                *logit -= params.presence_penalty;
                *logit -= params.frequency_penalty * num_output as f32;
            }
        }
        if let Some(mask) = self.mask {
            for (token, logit) in logits.iter_mut().enumerate() {
                if mask[token / 32] >> (token % 32) & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        if params.temperature >= TEMPERATURE_MIN {
            for logit in &mut *logits {
                *logit /= params.temperature;
            }
        }
        if params.top_k > 0 && (params.top_k as usize) < logits.len() {
            let mut sorted = logits.to_vec();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let least = sorted[params.top_k as usize - 1];
            for logit in logits {
                if *logit < least {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}

/// The token drawn from processed logits with the noise of `seed` and `position`; none if no logit
/// is finite. The filters that are not modelled are part of the noise, so that they matter.
pub(crate) fn choose(
    logits: &[f32],
    params: &SamplingParams,
    seed: u64,
    position: u32,
) -> Option<TokenId> {
    let filters = [params.top_p, params.min_p, params.typical_p];
    let fold = |hash, filter: &f32| mix(hash, u64::from(filter.to_bits()));
    let key = filters.iter().fold(mix(seed, u64::from(position)), fold);
    let noisy = |token: usize| {
        if params.temperature < TEMPERATURE_MIN {
            return logits[token];
        }
        let uniform = unit(mix(key, token as u64)).max(1e-7);
        logits[token] - (-uniform.ln()).ln()
    };
    let mut best: Option<(f32, u32)> = None;
    for (token, logit) in logits.iter().enumerate() {
        if logit.is_finite() && best.is_none_or(|(most, _)| noisy(token) > most) {
            best = Some((noisy(token), token as u32));
        }
    }
    best.map(|(_, token)| TokenId(token))
}

/// Log-probabilities of one row, kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scores {
    pub(crate) chosen: TokenLogprob,
    pub(crate) rank: u32,
    pub(crate) top: Vec<TokenLogprob>,
}

/// Natural log-probabilities of all tokens.
pub(crate) fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - most).exp()).sum();
    let log_sum = sum.ln();
    let logprob = |l: &f32| (f64::from(l - most) - log_sum) as f32;
    logits.iter().map(logprob).collect()
}

/// The `num_top` likeliest tokens and `chosen` among all.
pub(crate) fn scores(logits: &[f32], chosen: TokenId, num_top: usize) -> Scores {
    let logprobs = log_softmax(logits);
    let of = |token: usize| TokenLogprob {
        token: TokenId(token as u32),
        logprob: logprobs[token],
    };
    let chosen = of(chosen.0 as usize);
    let mut top: Vec<_> = (0..logits.len()).map(of).collect();
    top.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
    top.truncate(num_top);
    let at_least = logprobs.iter().filter(|&&l| l >= chosen.logprob);
    Scores {
        chosen,
        rank: at_least.count() as u32,
        top,
    }
}

/// Few letters, so that stop strings come up often; some tokens are two letters, some none.
#[derive(Debug)]
pub(crate) struct FakeVocabulary;

impl Vocabulary for FakeVocabulary {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        let texts: [&[u8]; 7] = [b"a", b"b", b"c", b"ab", b"ba", b"", b"\xf0\x9f"];
        texts[id.0 as usize % texts.len()]
    }
}
