//! `verify`.

use crate::parity::random::Random;
use crate::parity::step::StepPlan;
use crate::parity::{Case, Output};
use burn::tensor::{Device, Tensor, TensorData};
use forerun_kernels::sample::sample;
use forerun_kernels::step_inputs::{SamplingRow, Verification};
use forerun_kernels::verify::{STATUS_TOKEN, STATUS_UNREACHED, verify};

/// Trees of one step.
const NUM_TREES: usize = 24;

/// What a case's trees are like.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    verification: Verification,
    temperature: f32,
    is_chain: bool,
    /// How many of four drafts are drawn.
    drawn: usize,
    has_bad_rows: bool,
}

const fn kind(
    name: &'static str,
    verification: Verification,
    temperature: f32,
    (is_chain, drawn): (bool, usize),
) -> Kind {
    Kind {
        name,
        verification,
        temperature,
        is_chain,
        drawn,
        has_bad_rows: false,
    }
}

const KINDS: [Kind; 11] = [
    kind("greedy tree", Verification::Rejection, 0.0, (false, 2)),
    kind(
        "tree by shared noise",
        Verification::SharedNoise,
        0.6,
        (false, 0),
    ),
    kind("chain", Verification::Rejection, 0.8, (true, 0)),
    kind("drawn chain", Verification::Rejection, 0.8, (true, 4)),
    kind("tree", Verification::Rejection, 0.6, (false, 0)),
    kind("drawn tree", Verification::Rejection, 1.2, (false, 4)),
    kind("tree of both", Verification::Rejection, 0.8, (false, 2)),
    kind("block", Verification::Block, 0.6, (true, 0)),
    kind("drawn block", Verification::Block, 0.8, (true, 4)),
    kind("block of both", Verification::Block, 0.8, (true, 2)),
    kind(
        "tree that asks for a block",
        Verification::Block,
        0.8,
        (false, 4),
    ),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for vocab_size in [7, 257, 5003] {
        for kind in KINDS {
            for has_bad_rows in [false, true] {
                let bad = if has_bad_rows { ", bad rows" } else { "" };
                let name = format!("V={vocab_size} {}{bad}", kind.name);
                let kind = Kind {
                    has_bad_rows,
                    ..kind
                };
                cases.push(Case::against_native("verify", name, 0.0, move |device| {
                    run(&Trees::of(kind, vocab_size), device)
                }));
            }
        }
    }
    cases
}

/// Random trees, with rows without drafts between them.
struct Trees {
    kind: Kind,
    vocab_size: usize,
    random: Random,
    logits: Vec<f32>,
    draft_logits: Vec<f32>,
    token_ids: Vec<u32>,
    logit_rows: Vec<u32>,
    sampling: Vec<SamplingRow>,
}

impl Trees {
    fn of(kind: Kind, vocab_size: usize) -> Self {
        let mut trees = Self {
            kind,
            vocab_size,
            random: Random::new(31),
            logits: Vec::new(),
            draft_logits: Vec::new(),
            token_ids: Vec::new(),
            logit_rows: Vec::new(),
            sampling: Vec::new(),
        };
        for tree in 0..NUM_TREES {
            // Tokens whose logits nobody wants.
            let num_skipped = trees.random.below(3);
            trees.token_ids.extend(vec![0; num_skipped]);
            trees.add(if tree % 6 == 5 { 0 } else { 1 + tree % 5 });
        }
        trees
    }

    /// Adds the row of a token.
    fn push(&mut self, row: SamplingRow, token: u32) {
        let mut logits = self.random.floats(self.vocab_size, 2.0);
        // A few tokens have most of the mass, so that some drafts are accepted.
        for _ in 0..4 {
            logits[self.random.below(self.vocab_size)] += 8.0;
        }
        for (token, logit) in logits.iter_mut().enumerate() {
            if token % 11 == 3 {
                *logit = f32::NEG_INFINITY;
            }
        }
        if self.kind.has_bad_rows && self.sampling.len() % 7 == 4 {
            logits[self.vocab_size / 2] = f32::NAN;
        }
        self.logits.extend(logits);
        self.logit_rows.push(self.token_ids.len() as u32);
        self.token_ids.push(token);
        self.sampling.push(row);
    }

    fn add(&mut self, num_drafts: usize) {
        let anchor = self.sampling.len();
        let position = self.random.below(5000) as u32;
        let mut first = SamplingRow::plain(self.kind.temperature, self.random.word(), position + 1);
        first.verification = self.kind.verification;
        first.anchor = position;
        self.push(first, 0);
        let mut parent = anchor;
        let mut num_left = num_drafts;
        while num_left > 0 {
            let count = if self.kind.is_chain {
                1
            } else {
                1 + self.random.below(3)
            };
            let tokens = self.draw_children(parent, count.min(num_left));
            num_left -= tokens.len();
            let draft_row = (self.draft_logits.len() / self.vocab_size - 1) as u32;
            for token in tokens {
                let row = SamplingRow {
                    position: self.sampling[parent].position + 1,
                    parent_row: Some(parent as u32),
                    draft_row: (self.random.below(4) < self.kind.drawn).then_some(draft_row),
                    ..first
                };
                self.push(row, token);
            }
            parent += 1;
        }
        self.sampling[anchor].num_drafts = num_drafts as u32;
    }

    /// Different tokens from a distribution like the row's, which is kept.
    fn draw_children(&mut self, row: usize, count: usize) -> Vec<u32> {
        let start = row * self.vocab_size;
        let temperature = self.kind.temperature.max(0.2);
        let mut scores = Vec::new();
        for token in 0..self.vocab_size {
            let logit = self.logits[start + token] + 1.5 * self.random.float();
            let logit = if logit.is_nan() { 0.0 } else { logit };
            self.draft_logits.push(logit);
            let uniform = 0.5 + 0.499_999 * self.random.float();
            scores.push((logit / temperature - (-uniform.ln()).ln(), token as u32));
        }
        scores.sort_by(|a, b| b.0.total_cmp(&a.0));
        scores[..count].iter().map(|score| score.1).collect()
    }
}

fn run(trees: &Trees, device: &Device) -> Output {
    let num_rows = trees.sampling.len();
    let mut plan = StepPlan::tokens(trees.token_ids.len());
    plan.vocab_size = trees.vocab_size;
    plan.token_ids = Some(trees.token_ids.clone());
    plan.logit_rows.clone_from(&trees.logit_rows);
    plan.sampling.clone_from(&trees.sampling);
    plan.rows_max = num_rows + 2;
    // Rows of padding.
    let mut padded = trees.logits.clone();
    padded.resize(plan.rows_max * trees.vocab_size, f32::NAN);
    let logits = TensorData::new(padded, [plan.rows_max, trees.vocab_size]);
    let logits: Tensor<2> = Tensor::from_data(logits, device);
    let draft_rows = trees.draft_logits.len() / trees.vocab_size;
    let draft_logits = TensorData::new(trees.draft_logits.clone(), [draft_rows, trees.vocab_size]);
    let draft_logits = Tensor::from_data(draft_logits, device);
    let draft_logits = (trees.kind.drawn > 0).then_some(draft_logits);
    let step = plan.upload(32, device);
    let sampled = sample(logits.clone(), step.clone());
    let verdicts = verify(logits, sampled, draft_logits, step).into_data();
    let words = verdicts
        .as_slice::<u32>()
        .expect("verdicts are u32")
        .to_vec();
    let is_draft = |row: &usize| trees.sampling[*row].parent_row.is_some();
    let of_status = |status| {
        let rows = (0..num_rows).filter(is_draft);
        rows.filter(|row| words[2 * row + 1] == status).count()
    };
    let (accepted, rejected) = (of_status(STATUS_TOKEN), of_status(STATUS_UNREACHED));
    assert!(
        accepted >= 5 && rejected >= 5,
        "{accepted} drafts accepted and {rejected} not, so the case says little"
    );
    Output::Words(words)
}
