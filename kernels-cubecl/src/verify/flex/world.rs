//! Steps full of draft trees, for the tests: what their rows say and where the drafts come from.
//!
//! Neighbours: used by `tests.rs`; `reference.rs` says what has to come out.

use super::Inputs;
use super::reference::softmax;
use crate::step_inputs::{
    SamplingRow, StepArrays, StepCapacity, StepInputs, StepView, Verification,
};

/// Random numbers for the tests, SplitMix64 (Steele et al., 2014): drafts must not be drawn with the
/// noise that verifies them.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// In `(0, 1)`.
    pub(super) fn uniform(&mut self) -> f64 {
        ((self.word() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Logits in `[-scale, scale)`, of which about one in `masked` is minus infinity, but never all.
    pub(super) fn logits(&mut self, vocab_size: usize, scale: f64, masked: usize) -> Vec<f32> {
        let kept = self.below(vocab_size);
        (0..vocab_size)
            .map(|token| {
                let logit = (scale * (2.0 * self.uniform() - 1.0)) as f32;
                let is_masked = masked > 0 && token != kept && self.below(masked) == 0;
                if is_masked { f32::NEG_INFINITY } else { logit }
            })
            .collect()
    }

    /// A token of a distribution.
    pub(super) fn draw(&mut self, probabilities: &[f64]) -> u32 {
        let mut left = self.uniform() * probabilities.iter().sum::<f64>();
        let mut last = 0;
        for (token, &p) in probabilities.iter().enumerate() {
            if p > 0.0 {
                last = token as u32;
                left -= p;
                if left <= 0.0 {
                    break;
                }
            }
        }
        last
    }

    /// Up to `count` tokens of a distribution, one after another, none twice.
    pub(super) fn draw_without_replacement(
        &mut self,
        probabilities: &[f64],
        count: usize,
    ) -> Vec<u32> {
        let mut left = probabilities.to_vec();
        let mut tokens = Vec::new();
        while tokens.len() < count && left.iter().any(|&p| p > 0.0) {
            let token = self.draw(&left);
            left[token as usize] = 0.0;
            tokens.push(token);
        }
        tokens
    }
}

/// A draft.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) token: u32,
    /// 0 is the anchor, n the n-th draft.
    pub(super) parent: usize,
    /// Row of the distribution that it was drawn from.
    pub(super) draft_row: Option<u32>,
}

/// How a tree's rows are sampled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) temperature: f32,
    pub(super) verification: Verification,
    pub(super) seed: u64,
    /// Position of the anchor.
    pub(super) anchor: u32,
}

/// A step of trees.
#[derive(Default)]
pub(super) struct World {
    pub(super) vocab_size: usize,
    /// `[R, V]`.
    pub(super) logits: Vec<f32>,
    /// `[Q, V]`.
    pub(super) draft_logits: Vec<f32>,
    /// Row of each tree's anchor.
    pub(super) anchors: Vec<usize>,
    sampling: Vec<SamplingRow>,
    token_ids: Vec<u32>,
    positions: Vec<u32>,
    query_offsets: Vec<u32>,
}

impl World {
    pub(super) fn new(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            query_offsets: vec![0],
            ..Self::default()
        }
    }

    /// Keeps a distribution that drafts are drawn from.
    pub(super) fn add_draft_row(&mut self, logits: &[f32]) -> u32 {
        let row = self.draft_logits.len() / self.vocab_size;
        self.draft_logits.extend(logits);
        row as u32
    }

    /// Adds a tree; `logits [1 + nodes, V]`.
    pub(super) fn add(&mut self, rule: Rule, nodes: &[Node], logits: &[f32]) {
        assert_eq!(logits.len(), (1 + nodes.len()) * self.vocab_size);
        let anchor = self.sampling.len();
        let mut row = SamplingRow::plain(rule.temperature, rule.seed, rule.anchor + 1);
        row.verification = rule.verification;
        row.anchor = rule.anchor;
        row.num_drafts = nodes.len() as u32;
        self.anchors.push(anchor);
        self.sampling.push(row);
        self.token_ids.push(0);
        self.positions.push(rule.anchor);
        for node in nodes {
            let parent = anchor + node.parent;
            self.sampling.push(SamplingRow {
                position: self.sampling[parent].position + 1,
                num_drafts: 0,
                parent_row: Some(parent as u32),
                draft_row: node.draft_row,
                ..row
            });
            self.token_ids.push(node.token);
            self.positions.push(self.positions[parent] + 1);
        }
        self.query_offsets.push(self.token_ids.len() as u32);
        self.logits.extend(logits);
    }

    /// The buffer of the step.
    pub(super) fn pack(&self) -> StepInputs {
        let num_rows = self.sampling.len();
        let num_trees = self.anchors.len();
        let mut inputs = StepInputs::new(StepCapacity {
            tokens: num_rows,
            seqs: num_trees,
            logit_rows: num_rows,
            ..StepCapacity::default()
        });
        let tree_of = |row: usize| self.anchors.partition_point(|&anchor| anchor <= row) as u32 - 1;
        let seq_of_token: Vec<u32> = (0..num_rows).map(tree_of).collect();
        let logit_rows: Vec<u32> = (0..num_rows as u32).collect();
        let context_lens = vec![u32::MAX; num_trees];
        let step = StepArrays {
            token_ids: &self.token_ids,
            positions: &self.positions,
            seq_of_token: &seq_of_token,
            query_offsets: &self.query_offsets,
            context_lens: &context_lens,
            logit_rows: &logit_rows,
            sampling: &self.sampling,
            ..StepArrays::default()
        };
        inputs
            .fill(&step, self.vocab_size)
            .expect("the step is valid");
        inputs
    }

    /// What verification reads.
    pub(super) fn inputs<'a>(&'a self, step: &'a StepInputs) -> Inputs<'a> {
        Inputs {
            logits: &self.logits,
            draft_logits: &self.draft_logits,
            vocab_size: self.vocab_size,
            step: StepView::new(step.words()),
        }
    }
}

/// How the drafts of a random tree come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Deterministic,
    Drawn,
    /// Some of the siblings so, some so.
    Mixed,
}

/// A tree of up to `num_nodes` drafts at random places, or a chain; with the rows of the target.
pub(super) fn random_tree(
    world: &mut World,
    random: &mut Random,
    rule: Rule,
    (is_chain, origin): (bool, Origin),
) {
    let vocab_size = world.vocab_size;
    let num_nodes = 1 + random.below(if is_chain { 5 } else { 8 });
    let (scale, masked) = (1.0 + 5.0 * random.uniform(), [0, 0, 3][random.below(3)]);
    let mut rows = vec![random.logits(vocab_size, scale, masked)];
    let mut nodes: Vec<Node> = Vec::new();
    let mut parent = 0;
    while nodes.len() < num_nodes && parent < rows.len() {
        let count = if is_chain { 1 } else { random.below(4) };
        // The anchor has a child at least.
        let count = count.max(usize::from(parent == 0));
        let count = count.min(num_nodes - nodes.len());
        // Drafts resemble the target, else hardly any is accepted.
        let near: Vec<f32> = rows[parent]
            .iter()
            .map(|logit| logit + (2.0 * random.uniform() - 1.0) as f32 * scale as f32 * 0.5)
            .collect();
        let q = softmax(&near, rule.temperature);
        let tokens = random.draw_without_replacement(&q, count);
        let draft_row = (origin != Origin::Deterministic).then(|| world.add_draft_row(&near));
        for token in tokens {
            let is_drawn = origin == Origin::Drawn || random.below(2) == 0;
            nodes.push(Node {
                token,
                parent,
                draft_row: draft_row.filter(|_| is_drawn),
            });
            rows.push(random.logits(vocab_size, scale, masked));
        }
        parent += 1;
    }
    world.add(rule, &nodes, &rows.concat());
}
