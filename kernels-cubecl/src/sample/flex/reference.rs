//! Sampling by its definition: what the fast one is tested against.

use crate::sample::philox::{Stream, philox4x32_10};
use crate::step_inputs::SamplingRow;

/// The noise of a token, in f64.
pub fn gumbel(sampling: &SamplingRow, token_id: u32) -> f64 {
    let key = [sampling.seed as u32, (sampling.seed >> 32) as u32];
    let Stream {
        position,
        purpose,
        anchor,
    } = sampling.stream();
    let word = philox4x32_10([token_id, position, purpose, anchor], key)[0];
    let uniform = (f64::from(word >> 9) + 0.5) / f64::from(1 << 23);
    -(-uniform.ln()).ln()
}

/// Score of a token of a row with this maximum: rounded to f32 where the contract says so.
pub fn score(logit: f32, maximum: f32, sampling: &SamplingRow, token_id: u32) -> f32 {
    if sampling.is_noisy() {
        (logit - maximum) / sampling.temperature + gumbel(sampling, token_id) as f32
    } else {
        logit
    }
}

/// Token and status of one row.
pub fn sample(logits: &[f32], sampling: &SamplingRow) -> [u32; 2] {
    let maximum = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if logits.iter().any(|logit| logit.is_nan()) || !maximum.is_finite() {
        return [0, 1];
    }
    let mut best = (f32::NEG_INFINITY, 0);
    for (token_id, &logit) in logits.iter().enumerate() {
        let score = score(logit, maximum, sampling, token_id as u32);
        if score > best.0 {
            best = (score, token_id as u32);
        }
    }
    [best.1, 0]
}
