//! Verdicts of a trusted implementation: `tests/fixtures/algo/rejection.json`.
//!
//! Neighbours: the definition under test is `engine/src/spec/verifier/`.

use forerun_engine::{
    Chance, DraftDraw, DraftTree, Drafted, TokenId, verify_greedy, verify_rejection,
};
use serde_json::Value;

const GOLDEN: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/fixtures/algo/rejection.json"
));

/// Probabilities in the file have nine digits.
const ROUNDING_MAX: f64 = 1e-7;

/// Given uniform numbers; keeps what was drawn from.
struct Uniforms {
    accept: Vec<f64>,
    num_used: usize,
    last: f64,
    drawn_from: Vec<f64>,
}

impl Chance for Uniforms {
    fn happens(&mut self, probability: f64) -> bool {
        let uniform = self.accept[self.num_used];
        self.num_used += 1;
        uniform < probability
    }

    fn draw(&mut self, distribution: &[f64]) -> usize {
        self.drawn_from = distribution.to_vec();
        let mut sum = 0.0;
        let found = distribution.iter().position(|p| {
            sum += p;
            sum > self.last
        });
        found.unwrap()
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    let values = value.as_array().unwrap().iter();
    values.map(|value| value.as_f64().unwrap()).collect()
}

fn rows(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().unwrap().iter().map(numbers).collect()
}

fn tokens(value: &Value) -> Vec<TokenId> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|id| TokenId(id.as_u64().unwrap() as u32)).collect()
}

/// Row of the target that holds the token behind a node of a chain.
fn row_behind(node: Option<u32>) -> usize {
    node.map_or(0, |node| node as usize + 1)
}

#[test]
fn all_fifty_sampled_verdicts_come_out() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 50);
    for (number, case) in cases.iter().enumerate() {
        let targets = rows(&case["target_probs"]);
        let drafts = (!case["draft_probs"].is_null()).then(|| rows(&case["draft_probs"]));
        let mut tree = DraftTree::new();
        let mut last = None;
        for (row, token) in (0..).zip(tokens(&case["draft_tokens"])) {
            let draw = match drafts {
                Some(_) => DraftDraw::Sampled { row },
                None => DraftDraw::Deterministic,
            };
            last = Some(tree.push_drawn(last, token, draw));
        }
        let drafts = drafts.unwrap_or_default();
        let drafted = Drafted {
            tree: &tree,
            target: &|node| Some(targets[row_behind(node)].clone()),
            draft: &|row| &drafts[row as usize],
        };
        let mut chance = Uniforms {
            accept: numbers(&case["accept_uniforms"]),
            num_used: 0,
            last: case["final_uniform"].as_f64().unwrap(),
            drawn_from: Vec::new(),
        };
        let verdicts = verify_rejection(drafted, &mut chance);
        let accepted = case["accepted"].as_u64().unwrap() as usize;
        assert_eq!(verdicts.path.len(), accepted, "case {number}");
        assert_eq!(
            verdicts.tokens(&tree),
            tokens(&case["output"]),
            "case {number}"
        );
        let expected = numbers(&case["next_distribution"]);
        for (found, expected) in chance.drawn_from.iter().zip(&expected) {
            assert!(
                (found - expected).abs() < ROUNDING_MAX,
                "case {number}: {found}, {expected}"
            );
        }
    }
}

#[test]
fn all_twenty_greedy_verdicts_come_out() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let cases = golden["greedy_cases"].as_array().unwrap();
    assert_eq!(cases.len(), 20);
    for (number, case) in cases.iter().enumerate() {
        let likeliest = tokens(&case["target_argmax"]);
        let mut tree = DraftTree::new();
        tree.push_chain(None, tokens(&case["draft_tokens"]));
        let verdicts = verify_greedy(&tree, &|node| {
            let mut row = vec![0.01; 10];
            row[likeliest[row_behind(node)].0 as usize] = 0.91;
            Some(row)
        });
        let accepted = case["accepted"].as_u64().unwrap() as usize;
        assert_eq!(verdicts.path.len(), accepted, "case {number}");
        assert_eq!(
            verdicts.tokens(&tree),
            tokens(&case["output"]),
            "case {number}"
        );
    }
}
