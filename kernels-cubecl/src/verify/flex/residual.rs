//! What is left of a distribution while drafts are rejected.
//!
//! Neighbours: [`super`] asks; sums over the vocabulary are those of `logits_process`, draws those of
//! `sample`.

use crate::logits_process::flex::threshold::Masses;
use crate::sample::flex::{draw, greatest};
use crate::sample::philox::PURPOSE_RESIDUAL;
use crate::simd::Isa;
use crate::step_inputs::SamplingRow;

/// From here on logits no longer matter; keeps `-inf / temperature` from being NaN.
const TEMPERATURE_MAX: f32 = 1e30;

/// The softmax of a row over its temperature, without the tokens that were taken out.
pub(super) struct Distribution<'a> {
    isa: Isa,
    logits: &'a [f32],
    temperature: f32,
    maximum: f32,
    removed: Vec<u32>,
    /// Sum of `exp((logit - maximum) / temperature)` of those left.
    left: f64,
}

impl<'a> Distribution<'a> {
    pub(super) fn new(isa: Isa, logits: &'a [f32], temperature: f32) -> Self {
        let temperature = temperature.min(TEMPERATURE_MAX);
        let maximum = greatest(isa, 0, logits).score;
        let mass = isa.run(Masses {
            values: logits,
            maximum,
            temperature,
            out: &mut [],
        });
        Self {
            isa,
            logits,
            temperature,
            maximum,
            removed: Vec::new(),
            left: mass,
        }
    }

    fn weight(&self, token: u32) -> f64 {
        let scaled = (self.logits[token as usize] - self.maximum) / self.temperature;
        f64::from(scaled).exp()
    }

    pub(super) fn probability(&self, token: u32) -> f64 {
        if self.removed.contains(&token) {
            0.0
        } else {
            self.weight(token) / self.left
        }
    }

    pub(super) fn remove(&mut self, token: u32) {
        self.left -= self.weight(token);
        self.removed.push(token);
        if self.left <= 0.0 {
            // Rounding took the rest: what is left is counted anew.
            let tokens = 0..self.logits.len() as u32;
            let rest = tokens.filter(|token| !self.removed.contains(token));
            self.left = rest.map(|token| self.weight(token)).sum();
        }
    }

    /// Writes all probabilities.
    pub(super) fn write(&self, out: &mut [f32]) {
        self.isa.run(Masses {
            values: self.logits,
            maximum: self.maximum,
            temperature: self.temperature,
            out,
        });
        let scale = (1.0 / self.left) as f32;
        for value in &mut *out {
            *value *= scale;
        }
        for &token in &self.removed {
            out[token as usize] = 0.0;
        }
    }

    /// A token of it.
    fn draw(&self, sampling: &SamplingRow, spare: &mut [f32]) -> u32 {
        let logits = if self.removed.is_empty() {
            self.logits
        } else {
            spare.copy_from_slice(self.logits);
            for &token in &self.removed {
                spare[token as usize] = f32::NEG_INFINITY;
            }
            &*spare
        };
        let stream = sampling.stream_for(PURPOSE_RESIDUAL);
        let noise = (sampling.seed, stream);
        draw(self.isa, logits, (self.maximum, self.temperature), noise)
    }
}

/// A distribution from which others are subtracted.
pub(super) struct Residual<'a> {
    target: Distribution<'a>,
    /// Weights of all tokens, once something was subtracted.
    dense: &'a mut [f32],
    /// Their sum.
    mass: Option<f64>,
}

impl<'a> Residual<'a> {
    /// `dense [V]` is room to work in.
    pub(super) fn new(_isa: Isa, target: Distribution<'a>, dense: &'a mut [f32]) -> Self {
        Self {
            target,
            dense,
            mass: None,
        }
    }

    pub(super) fn probability(&self, token: u32) -> f64 {
        match self.mass {
            None => self.target.probability(token),
            Some(mass) => f64::from(self.dense[token as usize]) / mass,
        }
    }

    /// Takes a token out: it was rejected.
    pub(super) fn remove(&mut self, token: u32) {
        match &mut self.mass {
            None => self.target.remove(token),
            Some(mass) => {
                *mass -= f64::from(self.dense[token as usize]);
                self.dense[token as usize] = 0.0;
                if *mass <= 0.0 {
                    *mass = self.dense.iter().map(|&weight| f64::from(weight)).sum();
                }
            }
        }
    }

    /// Takes a distribution out, one of whose tokens was rejected.
    pub(super) fn subtract(&mut self, draft: &Distribution<'_>, token: u32, spare: &mut [f32]) {
        draft.write(spare);
        self.subtract_weights(1.0, spare, token);
    }

    /// `max(scale * p - weights, 0)`; p without `token` where nothing is left of it.
    pub(super) fn subtract_weights(&mut self, scale: f64, weights: &[f32], token: u32) {
        let mass = self.mass.unwrap_or_else(|| {
            self.target.write(self.dense);
            1.0
        });
        let scale = (scale / mass) as f32;
        let pairs = || self.dense.iter().zip(weights);
        let left: f64 = pairs()
            .map(|(&p, &q)| f64::from((p * scale - q).max(0.0)))
            .sum();
        if left > 0.0 {
            for (p, &q) in self.dense.iter_mut().zip(weights) {
                *p = (*p * scale - q).max(0.0);
            }
            self.mass = Some(left);
        } else {
            self.mass = Some(mass);
            self.remove(token);
        }
    }

    /// A token of what is left.
    pub(super) fn draw(self, sampling: &SamplingRow) -> u32 {
        if self.mass.is_none() {
            return self.target.draw(sampling, self.dense);
        }
        let mut maximum = f32::NEG_INFINITY;
        for weight in &mut *self.dense {
            *weight = if *weight > 0.0 {
                weight.ln()
            } else {
                f32::NEG_INFINITY
            };
            maximum = maximum.max(*weight);
        }
        let stream = sampling.stream_for(PURPOSE_RESIDUAL);
        let noise = (sampling.seed, stream);
        draw(self.target.isa, self.dense, (maximum, 1.0), noise)
    }
}
