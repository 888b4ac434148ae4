//! Verification by its definition, in f64, one distribution after another: what the fast one is tested
//! against. Besides the verdicts it says how near a decision was.

use super::super::{STATUS_NOT_FINITE, STATUS_TOKEN, STATUS_UNREACHED};
use super::Inputs;
use crate::sample::philox::{PURPOSE_ACCEPT, PURPOSE_RESIDUAL};
use crate::step_inputs::{SamplingRow, Verification};

/// One tree's verdicts `[1 + num_drafts, 2]`, from the sampled ones.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Token id and status of each row.
    pub verdicts: Vec<[u32; 2]>,
    /// The least distance of a decision from its boundary: of a uniform number from its threshold, of
    /// the best noisy score from the second best.
    pub margin: f64,
}

/// Softmax of a row over its temperature.
pub fn softmax(logits: &[f32], temperature: f32) -> Vec<f64> {
    let scaled = |&logit: &f32| f64::from(logit) / f64::from(temperature);
    let maximum = logits.iter().map(scaled).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.iter().map(|x| (scaled(x) - maximum).exp()).collect();
    normalised(weights)
}

/// Divided by their sum.
pub fn normalised(weights: Vec<f64>) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// What p becomes when a draft from q was rejected.
pub fn residual(p: &[f64], q: &[f64]) -> Vec<f64> {
    normalised(p.iter().zip(q).map(|(p, q)| (p - q).max(0.0)).collect())
}

struct Walk<'a> {
    inputs: Inputs<'a>,
    anchor: usize,
    num_drafts: usize,
    margin: f64,
}

/// Verifies the tree of an anchor's row.
pub fn verify(inputs: Inputs<'_>, anchor: usize, sampled: &[[u32; 2]]) -> Verified {
    let first = inputs.step.sampling(anchor);
    let mut walk = Walk {
        inputs,
        anchor,
        num_drafts: first.num_drafts as usize,
        margin: f64::INFINITY,
    };
    let mut verdicts = vec![[0, STATUS_UNREACHED]; 1 + walk.num_drafts];
    if !first.is_noisy() || first.verification == Verification::SharedNoise {
        let mut node = Some(0);
        while let Some(at) = node {
            verdicts[at] = sampled[at];
            node = (at + 1..=walk.num_drafts).find(|&child| {
                let is_equal = walk.token(child) == sampled[at][0];
                walk.is_child(at, child) && is_equal && sampled[at][1] == STATUS_TOKEN
            });
        }
    } else if first.verification == Verification::Block && walk.is_chain() {
        walk.block(sampled, &mut verdicts);
    } else {
        walk.rejection(sampled, &mut verdicts);
    }
    Verified {
        verdicts,
        margin: walk.margin,
    }
}

impl Walk<'_> {
    fn sampling(&self, node: usize) -> SamplingRow {
        self.inputs.step.sampling(self.anchor + node)
    }

    fn token(&self, node: usize) -> u32 {
        let step = self.inputs.step;
        step.token_ids()[step.logit_rows()[self.anchor + node] as usize]
    }

    fn is_child(&self, parent: usize, child: usize) -> bool {
        self.sampling(child).parent_row == Some((self.anchor + parent) as u32)
    }

    fn is_chain(&self) -> bool {
        (1..=self.num_drafts).all(|node| self.is_child(node - 1, node))
    }

    fn target(&self, node: usize) -> Vec<f64> {
        let vocab_size = self.inputs.vocab_size;
        let start = (self.anchor + node) * vocab_size;
        let logits = &self.inputs.logits[start..start + vocab_size];
        softmax(logits, self.sampling(node).temperature)
    }

    /// What a node was drawn from: one-hot if it is deterministic.
    fn draft(&self, node: usize) -> Vec<f64> {
        let vocab_size = self.inputs.vocab_size;
        let Some(row) = self.sampling(node).draft_row else {
            let mut one_hot = vec![0.0; vocab_size];
            one_hot[self.token(node) as usize] = 1.0;
            return one_hot;
        };
        let start = row as usize * vocab_size;
        let logits = &self.inputs.draft_logits[start..start + vocab_size];
        softmax(logits, self.sampling(node).temperature)
    }

    fn happens(&mut self, node: usize, number: u32, probability: f64) -> bool {
        let sampling = self.sampling(node);
        let stream = sampling.stream_for(PURPOSE_ACCEPT);
        let word = stream.word(number, sampling.seed);
        let uniform = (f64::from(word >> 9) + 0.5) / f64::from(1 << 23);
        self.margin = self.margin.min((uniform - probability).abs());
        uniform < probability
    }

    fn draw(&mut self, node: usize, distribution: &[f64]) -> u32 {
        let sampling = self.sampling(node);
        let stream = sampling.stream_for(PURPOSE_RESIDUAL);
        let score = |(token, p): (usize, &f64)| {
            let word = stream.word(token as u32, sampling.seed);
            let uniform = (f64::from(word >> 9) + 0.5) / f64::from(1 << 23);
            (p.ln() - (-uniform.ln()).ln(), token as u32)
        };
        let mut scores: Vec<_> = distribution.iter().enumerate().map(score).collect();
        scores.sort_by(|a, b| b.0.total_cmp(&a.0));
        if let [first, second, ..] = scores[..] {
            self.margin = self.margin.min(first.0 - second.0);
        }
        scores[0].1
    }

    fn rejection(&mut self, sampled: &[[u32; 2]], verdicts: &mut [[u32; 2]]) {
        let mut at = 0;
        'nodes: loop {
            if sampled[at][1] != STATUS_TOKEN {
                verdicts[at] = [0, STATUS_NOT_FINITE];
                return;
            }
            let mut p = self.target(at);
            let mut drawn: Option<Vec<f64>> = None;
            let children: Vec<usize> = (at + 1..=self.num_drafts)
                .filter(|&child| self.is_child(at, child))
                .collect();
            for (number, &child) in children.iter().enumerate() {
                let token = self.token(child) as usize;
                if self.sampling(child).draft_row.is_none() {
                    if self.happens(at, number as u32, p[token]) {
                        verdicts[at] = [token as u32, STATUS_TOKEN];
                        at = child;
                        continue 'nodes;
                    }
                    p[token] = 0.0;
                    p = normalised(p);
                    continue;
                }
                let mut q = drawn.unwrap_or_else(|| self.draft(child));
                if self.happens(at, number as u32, p[token] / q[token]) {
                    verdicts[at] = [token as u32, STATUS_TOKEN];
                    at = child;
                    continue 'nodes;
                }
                p = residual(&p, &q);
                q[token] = 0.0;
                drawn = Some(normalised(q));
            }
            verdicts[at] = [self.draw(at, &p), STATUS_TOKEN];
            return;
        }
    }

    fn block(&mut self, sampled: &[[u32; 2]], verdicts: &mut [[u32; 2]]) {
        let is_finite = |node: &usize| sampled[*node][1] == STATUS_TOKEN;
        let num_decided = (0..self.num_drafts).take_while(is_finite).count();
        let mut scale = 1.0_f64;
        let (mut accepted, mut accepted_scale) = (0, 1.0);
        let subtracted = |scale: f64, p: &[f64], q: &[f64]| -> Vec<f64> {
            let pairs = p.iter().zip(q);
            pairs.map(|(p, q)| (scale * p - q).max(0.0)).collect()
        };
        for node in 1..=num_decided {
            let token = self.token(node) as usize;
            let ratio = self.target(node - 1)[token] / self.draft(node)[token];
            scale = (scale * ratio).min(1.0);
            let threshold = if node == num_decided {
                scale
            } else {
                let left = subtracted(scale, &self.target(node), &self.draft(node + 1));
                let left: f64 = left.iter().sum();
                let whole = left + 1.0 - scale;
                if whole > 0.0 { left / whole } else { 0.0 }
            };
            if self.happens(node - 1, 0, threshold) {
                (accepted, accepted_scale) = (node, scale);
            }
        }
        for (node, verdict) in verdicts[..accepted].iter_mut().enumerate() {
            *verdict = [self.token(node + 1), STATUS_TOKEN];
        }
        if !is_finite(&accepted) {
            verdicts[accepted] = [0, STATUS_NOT_FINITE];
            return;
        }
        let p = self.target(accepted);
        let p = if accepted < self.num_drafts {
            let q = self.draft(accepted + 1);
            normalised(subtracted(accepted_scale, &p, &q))
        } else {
            p
        };
        verdicts[accepted] = [self.draw(accepted, &p), STATUS_TOKEN];
    }
}
