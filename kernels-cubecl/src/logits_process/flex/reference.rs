//! Processing by its definition, in f64 and by sorting: what the fast one is tested against.

use crate::step_inputs::{SamplingRow, TokenCount};

/// A row and all it is processed with.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// `[V]`, no NaN and no `+inf`.
    pub logits: &'a [f32],
    /// Penalties and filters; its ranges, mask and carried row are not read.
    pub sampling: SamplingRow,
    /// Tokens seen.
    pub history: &'a [TokenCount],
    /// Token and what is added to its logit.
    pub bias: &'a [(u32, f32)],
    /// A bit per token.
    pub mask: Option<&'a [u32]>,
    /// One more output token.
    pub carried: Option<u32>,
}

/// What became of a row.
#[derive(Clone, Debug)]
pub struct Processed {
    /// Logits after biases, penalties and mask; `-inf` is masked.
    pub logits: Vec<f64>,
    /// Whether the filters keep a token.
    pub kept: Vec<bool>,
    /// Probabilities of the kept tokens at the row's temperature.
    pub probabilities: Vec<f64>,
}

/// Processes one row.
pub fn process(row: &Row<'_>) -> Processed {
    let logits = edited(row);
    let mut kept: Vec<bool> = logits.iter().map(|logit| logit.is_finite()).collect();
    let sampling = &row.sampling;
    let temperature = if sampling.is_noisy() {
        f64::from(sampling.temperature)
    } else {
        1.0
    };
    let scaled: Vec<f64> = logits.iter().map(|logit| logit / temperature).collect();
    if sampling.has_filters() && kept.contains(&true) {
        let top_k = sampling.top_k as usize;
        if top_k > 0 {
            keep_from(&mut kept, &scaled, |order| top_k.min(order.len()) - 1);
        }
        if sampling.top_p < 1.0 {
            let p = probabilities(&scaled, &kept);
            keep_from(&mut kept, &scaled, |order| {
                reaching(order, &p, f64::from(sampling.top_p))
            });
        }
        if sampling.typical_p < 1.0 {
            let p = probabilities(&scaled, &kept);
            let entropy: f64 = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
            let nearness: Vec<f64> = p.iter().map(|p| -(-p.ln() - entropy).abs()).collect();
            keep_from(&mut kept, &nearness, |order| {
                reaching(order, &p, f64::from(sampling.typical_p))
            });
        }
        if sampling.min_p > 0.0 {
            let p = probabilities(&scaled, &kept);
            let limit = f64::from(sampling.min_p.min(1.0)) * p.iter().copied().fold(0.0, f64::max);
            for (kept, p) in kept.iter_mut().zip(p) {
                *kept &= p >= limit;
            }
        }
    }
    Processed {
        probabilities: probabilities(&scaled, &kept),
        logits,
        kept,
    }
}

fn edited(row: &Row<'_>) -> Vec<f64> {
    let mut logits: Vec<f64> = row.logits.iter().copied().map(f64::from).collect();
    for &(token, bias) in row.bias {
        logits[token as usize] += f64::from(bias);
    }
    for (token, logit) in logits.iter_mut().enumerate() {
        let entries = row
            .history
            .iter()
            .filter(|entry| entry.token as usize == token);
        let carried = u32::from(row.carried == Some(token as u32));
        let count = entries.clone().map(|entry| entry.output_count).sum::<u32>() + carried;
        let in_prompt = entries.clone().any(|entry| entry.in_prompt);
        if count > 0 || in_prompt {
            let penalty = f64::from(row.sampling.repetition_penalty);
            *logit = if *logit > 0.0 {
                *logit / penalty
            } else {
                *logit * penalty
            };
        }
        if count > 0 {
            *logit -= f64::from(row.sampling.frequency_penalty) * f64::from(count);
            *logit -= f64::from(row.sampling.presence_penalty);
        }
        if row
            .mask
            .is_some_and(|words| words[token / 32] >> (token % 32) & 1 == 0)
        {
            *logit = f64::NEG_INFINITY;
        }
    }
    logits
}

/// Softmax over the kept tokens, 0 for others.
fn probabilities(scaled: &[f64], kept: &[bool]) -> Vec<f64> {
    let live = scaled.iter().zip(kept).filter(|(_, kept)| **kept);
    let maximum = live.map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
    let mass = |(x, kept): (&f64, &bool)| if *kept { (x - maximum).exp() } else { 0.0 };
    let masses: Vec<f64> = scaled.iter().zip(kept).map(mass).collect();
    let total: f64 = masses.iter().sum();
    masses
        .iter()
        .map(|mass| mass / total.max(f64::MIN_POSITIVE))
        .collect()
}

/// Keeps the tokens whose score is not below that of the last one kept, which `last` chooses from the kept
/// tokens in descending order.
fn keep_from(kept: &mut [bool], scores: &[f64], last: impl FnOnce(&[usize]) -> usize) {
    let mut order: Vec<usize> = (0..kept.len()).filter(|&token| kept[token]).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let limit = scores[order[last(&order)]];
    for (kept, score) in kept.iter_mut().zip(scores) {
        *kept &= *score >= limit;
    }
}

/// Where the probabilities, in this order, reach a mass.
fn reaching(order: &[usize], probabilities: &[f64], mass: f64) -> usize {
    let mut sum = 0.0;
    let reached = order.iter().position(|&token| {
        sum += probabilities[token];
        sum >= mass
    });
    reached.unwrap_or(order.len() - 1)
}
