//! When drafts pay: how many nodes of which draft are verified in a step.
//!
//! ```text
//! acceptance.rs  how often guesses came true, by drafter, match length and depth
//! cost.rs        what a pass of so many rows takes
//! shadow.rs      a draft that is compared with what comes, whether it was verified or not
//! ```
//!
//! Neighbours: asked and told by `speculator.rs`.
//!
//! A step with S sequences and no drafts gives S tokens in c(S). Verifying a node more gives the
//! probability that its path comes true, for c(rows + 1). Nodes of all sequences are taken in order of
//! that probability, as many as make tokens per second greatest: down to none, where even the best
//! guess costs more than it brings.
//!
//! Drafts that the host makes cost next to nothing, so they are always made, and learnt from without
//! being verified (`shadow.rs`): speculation that was given up is found again as soon as it would pay.
//! Drafts of models cost passes, so they are only made when they are expected to pay, and probed now
//! and then, at growing intervals.

mod acceptance;
mod cost;
mod shadow;

use self::acceptance::{Acceptance, Key};
use self::cost::PassCost;
pub(crate) use self::shadow::{Fate, Shadow};

/// A drafter, as a number.
pub(crate) type DrafterId = u8;

/// What kind of request drafts are for: what is learnt is kept apart by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bucket {
    pub(crate) is_sampled: bool,
    pub(crate) is_structured: bool,
    /// 0 below 512 tokens, 1 below 2048, 2 from there on.
    pub(crate) len_class: u8,
    /// The caller's label.
    pub(crate) task: Option<u32>,
}

impl Bucket {
    pub(crate) fn len_class(num_tokens: usize) -> u8 {
        match num_tokens {
            0..512 => 0,
            512..2048 => 1,
            _ => 2,
        }
    }
}

/// What is learnt of one request: more telling than its bucket, as soon as there is enough of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestEstimates {
    acceptance: Acceptance,
    /// Draft passes of models wait for so many steps.
    num_steps_to_probe: u32,
    probe_interval: u32,
}

/// A draft that could be verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) drafter: DrafterId,
    pub(crate) match_len: usize,
    pub(crate) bucket: Bucket,
}

/// A node that could be verified.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Which offer.
    offer: u32,
    /// That its whole path comes true.
    probability: f64,
}

/// Decides, and learns.
#[derive(Debug, Default)]
pub(crate) struct Controller {
    acceptance: Acceptance,
    cost: PassCost,
    /// What passes take, by rows - 1.
    curve: Vec<f64>,
    candidates: Vec<Candidate>,
}

/// Probability left to the second sibling, the third, .. of that of the first.
const SIBLING_SHARE: f64 = 0.3;
/// Steps between the first two probes of a model that does not pay, and at most.
const PROBE_INTERVALS: (u32, u32) = (16, 512);
/// Guesses of a probe.
const PROBE_TOKENS: usize = 2;

impl Controller {
    /// Begins a step: forgets the offers of the last.
    pub(crate) fn begin(&mut self) {
        self.candidates.clear();
    }

    /// Adds a draft, whose nodes are given by depth and rank among siblings, in order: probabilities
    /// fall along them. `offer` is its number.
    pub(crate) fn offer(
        &mut self,
        number: u32,
        offer: Offer,
        request: &RequestEstimates,
        nodes: impl Iterator<Item = (usize, usize)>,
    ) {
        let mut path = Vec::new();
        let mut lowest = 1.0_f64;
        for (depth, rank) in nodes {
            while path.len() < depth {
                let before = path.last().copied().unwrap_or(1.0);
                path.push(before * self.probability(offer, path.len(), request));
            }
            let probability = path[depth - 1] * SIBLING_SHARE.powi(rank as i32);
            // A draft is cut behind a node: no node is worth more than those before it.
            lowest = lowest.min(probability);
            self.candidates.push(Candidate {
                offer: number,
                probability: lowest,
            });
        }
    }

    /// That a guess at `depth` comes true, counted from 0, if those before it did.
    fn probability(&self, offer: Offer, depth: usize, request: &RequestEstimates) -> f64 {
        let key = Key::new(offer.drafter, offer.match_len, depth);
        let general = self.acceptance.estimate(Bucket::default(), key, PRIOR);
        let bucket = self.acceptance.estimate(offer.bucket, key, general);
        request.acceptance.estimate(Bucket::default(), key, bucket)
    }

    /// How many nodes of each offer are verified in a step that runs `num_seqs` sequences anyway:
    /// `num_kept[number]` is set for those that keep any.
    pub(crate) fn decide(&mut self, num_seqs: usize, num_kept: &mut [usize]) {
        num_kept.fill(0);
        self.candidates
            .sort_by(|a, b| b.probability.total_cmp(&a.probability));
        let rows_max = num_seqs + self.candidates.len();
        self.cost.write_curve(rows_max, &mut self.curve);
        let rate = |tokens: f64, num_rows: usize| tokens / self.curve[num_rows - 1];
        let mut tokens = num_seqs as f64;
        let (mut best, mut best_rate) = (0, rate(tokens, num_seqs));
        for (index, candidate) in self.candidates.iter().enumerate() {
            tokens += candidate.probability;
            let rate = rate(tokens, num_seqs + index + 1);
            if rate > best_rate {
                (best, best_rate) = (index + 1, rate);
            }
        }
        for candidate in &self.candidates[..best] {
            num_kept[candidate.offer as usize] += 1;
        }
    }

    /// How many guesses a model should make for a request in this step, up to `num_tokens_max`: 0 while
    /// they do not pay and no probe is due. A guess costs the model `share` of a pass of the target.
    pub(crate) fn num_model_drafts(
        &mut self,
        offer: Offer,
        request: &mut RequestEstimates,
        num_tokens_max: usize,
        share: f64,
    ) -> usize {
        self.cost.write_curve(num_tokens_max + 1, &mut self.curve);
        let one = self.curve[0];
        let (mut best, mut best_rate) = (0, 1.0 / one);
        let (mut tokens, mut path) = (1.0, 1.0);
        for depth in 0..num_tokens_max {
            path *= self.probability(offer, depth, request);
            tokens += path;
            let num_guesses = (depth + 1) as f64;
            let rate = tokens / (self.curve[depth + 1] + num_guesses * share * one);
            if rate > best_rate {
                (best, best_rate) = (depth + 1, rate);
            }
        }
        if best > 0 {
            request.probe_interval = PROBE_INTERVALS.0;
            request.num_steps_to_probe = PROBE_INTERVALS.0;
            return best;
        }
        if request.num_steps_to_probe > 0 {
            request.num_steps_to_probe -= 1;
            return 0;
        }
        let interval = request.probe_interval.max(PROBE_INTERVALS.0);
        request.num_steps_to_probe = interval;
        request.probe_interval = (2 * interval).min(PROBE_INTERVALS.1);
        PROBE_TOKENS.min(num_tokens_max)
    }

    /// What came of a draft: its first `num_true` guesses came true, and one more was put to the test
    /// if `is_refuted`.
    pub(crate) fn learn(
        &mut self,
        offer: Offer,
        request: &mut RequestEstimates,
        num_true: usize,
        is_refuted: bool,
    ) {
        for depth in 0..num_true + usize::from(is_refuted) {
            let key = Key::new(offer.drafter, offer.match_len, depth);
            let is_true = depth < num_true;
            self.acceptance.record(Bucket::default(), key, is_true);
            self.acceptance.record(offer.bucket, key, is_true);
            request.acceptance.record(Bucket::default(), key, is_true);
        }
    }

    /// A pass of `num_rows` rows took so long.
    pub(crate) fn record_pass(&mut self, num_rows: usize, duration_us: u64) {
        self.cost.record(num_rows, duration_us);
    }
}

/// What is thought of a guess of which nothing is known: enough to try it where rows are cheap.
const PRIOR: f64 = 0.5;

#[cfg(test)]
mod tests;
