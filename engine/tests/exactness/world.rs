//! Two models to draw from: the target and whoever drafts. Distributions depend on the whole text,
//! and go through the whole logits chain in the order documented at `SamplingParams`.
//!
//! Neighbours: `fake_model.rs` makes logits and edits them; the filters behind top-k are here.

use std::cell::RefCell;
use std::collections::BTreeMap;

use forerun_engine::SamplingParams;

use crate::fake_model::{Chain, Counts, mix, raw_logits};

/// The token that `num_tokens_min` holds back.
const END: u32 = 1;

/// A model with a request's parameters.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) vocab_size: usize,
    pub(crate) params: SamplingParams,
    /// What the request's text begins with; penalties count it.
    pub(crate) prompt: Vec<u32>,
    /// No end before so many tokens.
    pub(crate) num_tokens_min: usize,
    /// A grammar allows only some tokens, depending on the text.
    pub(crate) has_grammar: bool,
    /// Penalties and `num_tokens_min` count what is drafted. Off is a bug.
    pub(crate) counts_output: bool,
    known: RefCell<BTreeMap<Vec<u32>, Option<Vec<f64>>>>,
}

impl World {
    /// Temperature 1, everything else off.
    pub(crate) fn new(seed: u64, vocab_size: usize) -> Self {
        Self::with(
            seed,
            vocab_size,
            SamplingParams {
                temperature: 1.0,
                ..SamplingParams::default()
            },
        )
    }

    pub(crate) fn with(seed: u64, vocab_size: usize, params: SamplingParams) -> Self {
        Self {
            seed,
            vocab_size,
            params,
            prompt: vec![0, vocab_size as u32 - 1],
            num_tokens_min: 0,
            has_grammar: false,
            counts_output: true,
            known: RefCell::default(),
        }
    }

    /// Distribution of the token behind `text`, which begins behind the prompt; `None` where all
    /// tokens are banned.
    pub(crate) fn distribution(&self, text: &[u32]) -> Option<Vec<f64>> {
        if let Some(known) = self.known.borrow().get(text) {
            return known.clone();
        }
        let distribution = self.process(text);
        let mut known = self.known.borrow_mut();
        known.insert(text.to_vec(), distribution.clone());
        distribution
    }

    /// Probability of `text` from the prompt on.
    pub(crate) fn joint(&self, text: &[u32]) -> f64 {
        let factors = text.iter().enumerate().map(|(len, &token)| {
            let distribution = self.distribution(&text[..len]);
            distribution.map_or(0.0, |distribution| distribution[token as usize])
        });
        factors.product()
    }

    fn process(&self, text: &[u32]) -> Option<Vec<f64>> {
        let hash = text
            .iter()
            .fold(mix(self.seed, 0), |hash, &token| mix(hash, token.into()));
        let mut logits = raw_logits(hash, self.vocab_size);
        let counted = if self.counts_output { text } else { &[] };
        let mut counts = Counts::new();
        for &token in &self.prompt {
            counts.entry(token).or_default().1 = true;
        }
        for &token in counted {
            counts.entry(token).or_default().0 += 1;
        }
        let bias = self.params.logit_bias.iter();
        let mut bias: Vec<_> = bias.map(|&(token, bias)| (token.0, bias)).collect();
        if counted.len() < self.num_tokens_min {
            bias.push((END, f32::NEG_INFINITY));
        }
        let mask = self.has_grammar.then(|| {
            let any = mix(hash, 0x6772) % (1 << self.vocab_size);
            // Not the end alone: it may be held back.
            [any as u32 | 1 << (hash % 2 * 2)]
        });
        let chain = Chain {
            params: &self.params,
            bias: &bias,
            counts: &counts,
            mask: mask.as_ref().map(<[u32; 1]>::as_slice),
        };
        chain.process(&mut logits);
        self.filter(&logits)
    }

    /// Top-p, typical-p and min-p; each sees what those before it kept.
    fn filter(&self, logits: &[f32]) -> Option<Vec<f64>> {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if !most.is_finite() {
            return None;
        }
        let mut p = logits.iter().map(|&l| f64::from(l - most).exp()).collect();
        normalise(&mut p);
        if self.params.top_p < 1.0 {
            let scores = p.clone();
            keep_reaching(&mut p, &scores, self.params.top_p.into());
        }
        if self.params.typical_p < 1.0 {
            let information = |p: &f64| if *p > 0.0 { -p.ln() } else { 0.0 };
            let entropy: f64 = p.iter().map(|p| p * information(p)).sum();
            let nearness = |p: &f64| -(information(p) - entropy).abs();
            let scores: Vec<f64> = p.iter().map(nearness).collect();
            keep_reaching(&mut p, &scores, self.params.typical_p.into());
        }
        let limit = f64::from(self.params.min_p) * p.iter().copied().fold(0.0, f64::max);
        for p in &mut p {
            if *p < limit {
                *p = 0.0;
            }
        }
        normalise(&mut p);
        Some(p)
    }
}

/// Keeps the fewest tokens of the greatest scores whose probabilities reach `mass`, and ties.
fn keep_reaching(p: &mut Vec<f64>, scores: &[f64], mass: f64) {
    let mut order: Vec<usize> = (0..p.len()).filter(|&token| p[token] > 0.0).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let mut sum = 0.0;
    let reached = order.iter().find(|&&token| {
        sum += p[token];
        sum >= mass
    });
    if let Some(&last) = reached {
        for token in 0..p.len() {
            if scores[token] < scores[last] {
                p[token] = 0.0;
            }
        }
    }
    normalise(p);
}

/// Makes the sum 1.
pub(crate) fn normalise(weights: &mut Vec<f64>) {
    let sum: f64 = weights.iter().sum();
    for weight in weights {
        *weight /= sum;
    }
}

#[test]
fn every_part_of_the_chain_changes_distributions() {
    for (name, world) in crate::features::worlds(7, 4) {
        let plain = World::new(7, 4);
        let texts = [&[][..], &[2], &[2, 2], &[0, 2]];
        let differs = texts.map(|text| world.distribution(text) != plain.distribution(text));
        assert!(differs.contains(&true), "{name} does nothing");
    }
}
