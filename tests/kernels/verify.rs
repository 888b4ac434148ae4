//! Verification of drafts against the goldens of `fixtures/algo/rejection.json`: the rule, with the
//! uniform numbers that the goldens give, and every device, with seeds whose noise decides the same.

use burn::tensor::{Device, Tensor, TensorData};
use forerun_kernels::sample::philox::{PURPOSE_ACCEPT, PURPOSE_RESIDUAL, Stream};
use forerun_kernels::sample::sample;
use forerun_kernels::step_inputs::{SamplingRow, StepView, Verification};
use forerun_kernels::verify::flex::{Inputs, reference};
use forerun_kernels::verify::{STATUS_TOKEN, verify};
use forerun_tests::parity::TestDevice;
use forerun_tests::parity::step::StepPlan;
use serde::Deserialize;

/// Position of the anchor in every step here.
const ANCHOR: u32 = 30;

#[derive(Deserialize)]
struct File {
    cases: Vec<Golden>,
    greedy_cases: Vec<GreedyGolden>,
}

#[derive(Deserialize)]
struct Golden {
    target_probs: Vec<Vec<f64>>,
    /// None where drafts are deterministic.
    draft_probs: Option<Vec<Vec<f64>>>,
    draft_tokens: Vec<u32>,
    accept_uniforms: Vec<f64>,
    final_uniform: f64,
    accepted: usize,
    next_distribution: Vec<f64>,
    next_token: u32,
    output: Vec<u32>,
}

#[derive(Deserialize)]
struct GreedyGolden {
    target_argmax: Vec<u32>,
    draft_tokens: Vec<u32>,
    accepted: usize,
    output: Vec<u32>,
}

fn goldens() -> File {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/algo/rejection.json");
    let text = std::fs::read_to_string(path).expect("the fixture is there");
    let file: File = serde_json::from_str(&text).expect("the fixture has this form");
    assert_eq!((file.cases.len(), file.greedy_cases.len()), (50, 20));
    file
}

impl Golden {
    /// What draft `i` was drawn from.
    fn draft(&self, i: usize) -> Vec<f64> {
        if let Some(rows) = &self.draft_probs {
            return rows[i].clone();
        }
        let mut one_hot = vec![0.0; self.target_probs[0].len()];
        one_hot[self.draft_tokens[i] as usize] = 1.0;
        one_hot
    }

    /// How many drafts these numbers accept, and what the token behind them is drawn from.
    fn decide(&self, uniform: impl Fn(usize) -> f64) -> (usize, Vec<f64>) {
        for (i, &token) in self.draft_tokens.iter().enumerate() {
            let (p, q) = (&self.target_probs[i], self.draft(i));
            if uniform(i) >= p[token as usize] / q[token as usize] {
                return (i, reference::residual(p, &q));
            }
        }
        let last = self.draft_tokens.len();
        (last, self.target_probs[last].clone())
    }

    /// A seed whose noise accepts as many drafts and draws the same token.
    fn find_seed(&self) -> u64 {
        let stream = |node: usize, purpose| Stream {
            position: ANCHOR + 1 + node as u32,
            purpose,
            anchor: ANCHOR,
        };
        let uniform = |word: u32| (f64::from(word >> 9) + 0.5) / f64::from(1 << 23);
        let is_good = |seed: &u64| {
            let uniform_of = |node| uniform(stream(node, PURPOSE_ACCEPT).word(0, *seed));
            let (accepted, distribution) = self.decide(uniform_of);
            let score = |token: u32| {
                let word = stream(accepted, PURPOSE_RESIDUAL).word(token, *seed);
                distribution[token as usize].ln() - (-uniform(word).ln()).ln()
            };
            let tokens = 0..distribution.len() as u32;
            let token = tokens.max_by(|&a, &b| score(a).total_cmp(&score(b)));
            accepted == self.accepted && token == Some(self.next_token)
        };
        (0..100_000_000).find(is_good).expect("one seed of many")
    }

    /// The step in which these drafts are verified.
    fn step(&self) -> Step {
        let logits = |rows: &[Vec<f64>]| rows.iter().flatten().map(|p| p.ln() as f32).collect();
        let mut row = SamplingRow::plain(1.0, self.find_seed(), 0);
        row.verification = Verification::Rejection;
        let is_drawn = self.draft_probs.is_some();
        Step {
            vocab_size: self.target_probs[0].len(),
            logits: logits(&self.target_probs),
            draft_logits: self.draft_probs.as_deref().map(logits),
            plan: plan(
                row,
                &self.draft_tokens,
                is_drawn,
                self.target_probs[0].len(),
            ),
        }
    }
}

impl GreedyGolden {
    fn step(&self) -> Step {
        let tokens = self.target_argmax.iter().chain(&self.draft_tokens);
        let vocab_size = 1 + *tokens.max().expect("there are tokens") as usize;
        let mut logits = vec![0.0; self.target_argmax.len() * vocab_size];
        for (row, &token) in self.target_argmax.iter().enumerate() {
            logits[row * vocab_size + token as usize] = 1.0;
        }
        let row = SamplingRow::greedy(0);
        Step {
            vocab_size,
            logits,
            draft_logits: None,
            plan: plan(row, &self.draft_tokens, false, vocab_size),
        }
    }
}

/// A chain of drafts behind the anchor, all rows sampled alike.
fn plan(row: SamplingRow, drafts: &[u32], is_drawn: bool, vocab_size: usize) -> StepPlan {
    let num_rows = 1 + drafts.len();
    let mut plan = StepPlan::tokens(num_rows);
    plan.vocab_size = vocab_size;
    plan.token_ids = Some([&[0], drafts].concat());
    plan.logit_rows = (0..num_rows as u32).collect();
    plan.rows_max = num_rows;
    plan.sampling = (0..num_rows as u32)
        .map(|node| SamplingRow {
            position: ANCHOR + 1 + node,
            anchor: ANCHOR,
            num_drafts: if node == 0 { drafts.len() as u32 } else { 0 },
            parent_row: node.checked_sub(1),
            draft_row: node.checked_sub(1).filter(|_| is_drawn),
            ..row
        })
        .collect();
    plan
}

struct Step {
    vocab_size: usize,
    logits: Vec<f32>,
    draft_logits: Option<Vec<f32>>,
    plan: StepPlan,
}

impl Step {
    /// The tokens of the accepted path.
    fn run(&self, device: &Device) -> Vec<u32> {
        let tensor = |values: &Vec<f32>| -> Tensor<2> {
            let shape = [values.len() / self.vocab_size, self.vocab_size];
            Tensor::from_data(TensorData::new(values.clone(), shape), device)
        };
        let step = self.plan.upload(1, device);
        let sampled = sample(tensor(&self.logits), step.clone());
        let draft_logits = self.draft_logits.as_ref().map(tensor);
        let verdicts = verify(tensor(&self.logits), sampled, draft_logits, step).into_data();
        let words = verdicts.as_slice::<u32>().expect("verdicts are u32");
        let pairs = words.chunks(2).map(|pair| [pair[0], pair[1]]);
        path(&pairs.collect::<Vec<_>>())
    }

    /// The same by the definition.
    fn define(&self) -> Vec<u32> {
        let words = self.plan.words(1);
        let inputs = Inputs {
            logits: &self.logits,
            draft_logits: self.draft_logits.as_deref().unwrap_or(&[]),
            vocab_size: self.vocab_size,
            step: StepView::new(&words),
        };
        // Nothing of what was sampled matters by rejection but that it could be.
        let sampled = vec![[0, STATUS_TOKEN]; self.plan.sampling.len()];
        path(&reference::verify(inputs, 0, &sampled).verdicts)
    }
}

fn path(verdicts: &[[u32; 2]]) -> Vec<u32> {
    let reached = verdicts.iter().filter(|verdict| verdict[1] == STATUS_TOKEN);
    reached.map(|verdict| verdict[0]).collect()
}

#[test]
fn all_fifty_goldens_come_out_of_the_rule_with_their_own_numbers() {
    for (i, golden) in goldens().cases.iter().enumerate() {
        let (accepted, distribution) = golden.decide(|draft| golden.accept_uniforms[draft]);
        assert_eq!(accepted, golden.accepted, "case {i}");
        for (found, expected) in distribution.iter().zip(&golden.next_distribution) {
            assert!(
                (found - expected).abs() < 1e-6,
                "case {i}: {distribution:?}"
            );
        }
        let mut sum = 0.0;
        let is_it = |p: &f64| {
            sum += p;
            sum > golden.final_uniform
        };
        let token = distribution.iter().position(is_it);
        assert_eq!(token, Some(golden.next_token as usize), "case {i}");
        let expected = [&golden.draft_tokens[..accepted], &[golden.next_token]].concat();
        assert_eq!(golden.output, expected, "case {i}");
    }
}

#[test]
fn all_seventy_goldens_come_out_on_every_device_and_of_the_definition() {
    let file = goldens();
    let mut steps: Vec<(String, Step, Vec<u32>)> = Vec::new();
    for (i, golden) in file.cases.iter().enumerate() {
        let step = golden.step();
        assert_eq!(step.define(), golden.output, "case {i}");
        steps.push((format!("case {i}"), step, golden.output.clone()));
    }
    for (i, golden) in file.greedy_cases.iter().enumerate() {
        assert_eq!(golden.output.len(), golden.accepted + 1);
        steps.push((
            format!("greedy case {i}"),
            golden.step(),
            golden.output.clone(),
        ));
    }
    let mut failures = Vec::new();
    for kind in TestDevice::ALL {
        let Ok(device) = kind.open() else { continue };
        for (name, step, expected) in &steps {
            let found = step.run(&device);
            if found != *expected {
                let device = kind.name();
                failures.push(format!("{device} {name}: {found:?}, expected {expected:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
