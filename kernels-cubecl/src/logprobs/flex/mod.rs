//! Native logprobs: see the contract in [`super`].

pub mod reference;

use super::ROW_WORDS;
use crate::logits_process::flex::threshold::{Masses, Weighted, threshold};
use crate::sample::flex::greatest;
use crate::simd::Isa;
use crate::simd::shared::SharedMut;
use crate::step_inputs::{LogprobsKind, LogprobsRow, SamplingRow, StepView};
use crate::threads::Threads;

/// What logprobs are made of.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// `[R, V]`.
    pub raw: &'a [f32],
    /// `[R, V]`.
    pub processed: &'a [f32],
    /// `[R, 2]`.
    pub verdicts: &'a [u32],
    /// V.
    pub vocab_size: usize,
    /// The step.
    pub step: StepView<'a>,
}

/// Verdicts, and logprobs where they are asked for.
///
/// # Shapes
/// `out [R, row_words]`, zeros; `row_words` = 4 + 2 num_top.
pub fn logprobs(threads: &Threads, inputs: &Inputs<'_>, row_words: usize, out: &mut [u32]) {
    logprobs_on(Isa::detect(), threads, inputs, row_words, out);
}

fn logprobs_on(
    isa: Isa,
    threads: &Threads,
    inputs: &Inputs<'_>,
    row_words: usize,
    out: &mut [u32],
) {
    let num_rows = out.len() / row_words;
    let out = SharedMut::new(out);
    threads.run(num_rows, |row| {
        // SAFETY: each task has a row of its own.
        let out = unsafe { out.part(row * row_words, row_words) };
        let verdict = &inputs.verdicts[2 * row..2 * row + 2];
        out[..2].copy_from_slice(verdict);
        let sampling = inputs.step.sampling(row);
        if let Some(wanted) = sampling.logprobs
            && verdict[1] == 0
        {
            let all = match wanted.kind {
                LogprobsKind::Raw => inputs.raw,
                LogprobsKind::Processed => inputs.processed,
            };
            let logits = &all[row * inputs.vocab_size..][..inputs.vocab_size];
            let chosen = sampling.target.unwrap_or(verdict[0]);
            let distribution = Distribution::new(isa, logits, &sampling, wanted.kind);
            distribution.write(isa, chosen, wanted, &mut out[2..]);
        }
    });
}

/// A row's logits and what makes logprobs of them.
struct Distribution<'a> {
    logits: &'a [f32],
    maximum: f32,
    temperature: f32,
    /// Of the sum of `exp((logit - maximum) / temperature)`.
    ln_mass: f32,
}

impl<'a> Distribution<'a> {
    fn new(isa: Isa, logits: &'a [f32], sampling: &SamplingRow, kind: LogprobsKind) -> Self {
        let temperature = match kind {
            LogprobsKind::Processed if sampling.is_noisy() => sampling.temperature,
            _ => 1.0,
        };
        let temperature = temperature.min(super::TEMPERATURE_MAX);
        let maximum = greatest(isa, 0, logits).score;
        let mass = isa.run(Masses {
            values: logits,
            maximum,
            temperature,
            out: &mut [],
        });
        Self {
            logits,
            maximum,
            temperature,
            ln_mass: mass.ln() as f32,
        }
    }

    fn logprob_bits(&self, token: u32) -> u32 {
        let scaled = (self.logits[token as usize] - self.maximum) / self.temperature;
        (scaled - self.ln_mass).to_bits()
    }

    /// Writes everything that follows the verdict.
    fn write(&self, isa: Isa, chosen: u32, wanted: LogprobsRow, out: &mut [u32]) {
        let logit = self.logits[chosen as usize];
        let better = self.logits.iter().filter(|&&other| other > logit).count();
        let before = &self.logits[..chosen as usize];
        let equal = before.iter().filter(|&&other| other >= logit).count()
            - before.iter().filter(|&&other| other > logit).count();
        out[0] = self.logprob_bits(chosen);
        out[1] = (better + equal + 1) as u32;
        let pairs = out[ROW_WORDS - 2..].chunks_exact_mut(2);
        for (pair, token) in pairs.zip(self.likeliest(isa, wanted.num_top as usize)) {
            pair.copy_from_slice(&[token, self.logprob_bits(token)]);
        }
    }

    /// The first `num_top` tokens by logit, then id; masked ones last.
    fn likeliest(&self, isa: Isa, num_top: usize) -> Vec<u32> {
        if num_top == 0 {
            return Vec::new();
        }
        let weighted = Weighted {
            values: self.logits,
            weights: None,
            greatest: self.maximum,
        };
        let lowest = threshold(isa, weighted, num_top as f64);
        let tokens = 0..self.logits.len() as u32;
        let logit = |token: u32| self.logits[token as usize];
        let mut likeliest: Vec<u32> = tokens
            .clone()
            .filter(|&token| logit(token) >= lowest)
            .collect();
        // Sorting is stable, so that equals stay in order of their ids; there is no NaN.
        likeliest.sort_by(|&a, &b| {
            logit(b)
                .partial_cmp(&logit(a))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let masked = tokens.filter(|&token| logit(token) == f32::NEG_INFINITY);
        likeliest.extend(masked.take(num_top));
        likeliest.truncate(num_top);
        likeliest
    }
}

#[cfg(test)]
mod tests;
