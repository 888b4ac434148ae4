//! What comes out of verification is distributed as if there had been no drafts: chi-square tests of
//! the next three tokens, which depend on one another.
//!
//! Neighbours: `world.rs` packs the trees.

use std::num::NonZeroUsize;

use super::reference::softmax;
use super::verify;
use super::world::{Node, Random, Rule, World};
use crate::step_inputs::{StepInputs, Verification};
use crate::threads::Threads;
use crate::verify::STATUS_TOKEN;

const VOCAB_SIZE: usize = 4;
/// Tokens that are looked at together.
const NUM_TOKENS: usize = 3;
const NUM_DRAWS: usize = 200_000;
const TEMPERATURE: f32 = 0.9;

/// What a model says behind some tokens; `salt` tells target and draft apart.
fn model(salt: u64, prefix: &[u32]) -> Vec<f32> {
    let number = |number, &token| number * 5 + u64::from(token) + 1;
    Random(prefix.iter().fold(salt, number)).logits(VOCAB_SIZE, 1.5, 0)
}

fn target(prefix: &[u32]) -> Vec<f32> {
    model(1_000_000, prefix)
}

fn draft(prefix: &[u32]) -> Vec<f32> {
    model(2_000_000, prefix)
}

/// A tree under construction.
struct Draft<'a> {
    world: &'a mut World,
    random: &'a mut Random,
    nodes: Vec<Node>,
    /// Tokens behind the anchor up to and with each node, the anchor's first.
    prefixes: Vec<Vec<u32>>,
}

impl Draft<'_> {
    fn push(&mut self, parent: usize, token: u32, draft_row: Option<u32>) -> usize {
        self.nodes.push(Node {
            token,
            parent,
            draft_row,
        });
        let mut prefix = self.prefixes[parent].clone();
        prefix.push(token);
        self.prefixes.push(prefix);
        self.nodes.len()
    }

    /// Children drawn from the draft model, without replacement.
    fn drawn(&mut self, parent: usize, count: usize) -> Vec<usize> {
        let logits = draft(&self.prefixes[parent]);
        let row = self.world.add_draft_row(&logits);
        let q = softmax(&logits, TEMPERATURE);
        let tokens = self.random.draw_without_replacement(&q, count);
        let push = |token| self.push(parent, token, Some(row));
        tokens.into_iter().map(push).collect()
    }

    /// Children that are not drawn: the lowest ids that there are not yet.
    fn deterministic(&mut self, parent: usize, count: usize) -> Vec<usize> {
        let siblings = self.nodes.iter().filter(|node| node.parent == parent);
        let taken: Vec<u32> = siblings.map(|node| node.token).collect();
        let free = (0..VOCAB_SIZE as u32).filter(|token| !taken.contains(token));
        let push = |token| self.push(parent, token, None);
        free.take(count).map(push).collect()
    }
}

/// One step of many trees of a kind, each with a seed of its own.
struct Batch {
    world: World,
    step: StepInputs,
    nodes: Vec<Vec<Node>>,
}

impl Batch {
    fn new(
        random: &mut Random,
        (num_trees, first_seed): (usize, u64),
        verification: Verification,
        build: &dyn Fn(&mut Draft<'_>),
    ) -> Self {
        let mut world = World::new(VOCAB_SIZE);
        let mut nodes = Vec::new();
        for tree in 0..num_trees {
            let mut draft = Draft {
                world: &mut world,
                random,
                nodes: Vec::new(),
                prefixes: vec![Vec::new()],
            };
            build(&mut draft);
            let logits: Vec<f32> = draft.prefixes.iter().flat_map(|p| target(p)).collect();
            let tree_nodes = draft.nodes;
            let rule = Rule {
                temperature: TEMPERATURE,
                verification,
                seed: first_seed + tree as u64,
                anchor: 12,
            };
            world.add(rule, &tree_nodes, &logits);
            nodes.push(tree_nodes);
        }
        let step = world.pack();
        Self { world, step, nodes }
    }

    /// What each tree gave.
    fn verify(&self, threads: &Threads) -> Vec<Vec<u32>> {
        let num_rows = self.world.logits.len() / VOCAB_SIZE;
        let mut verdicts = vec![0; 2 * num_rows];
        verify(threads, self.world.inputs(&self.step), &mut verdicts);
        let trees = self.world.anchors.iter().zip(&self.nodes);
        let tokens = |(&anchor, nodes): (&usize, &Vec<Node>)| {
            let rows = anchor..=anchor + nodes.len();
            let reached = rows.filter(|row| verdicts[2 * row + 1] == STATUS_TOKEN);
            reached.map(|row| verdicts[2 * row]).collect()
        };
        trees.map(tokens).collect()
    }
}

/// How unlikely the sum of squares is, in standard deviations (Wilson and Hilferty, 1931).
fn deviation(counts: &[f64], expected: &[f64]) -> f64 {
    let terms = counts.iter().zip(expected);
    let sum: f64 = terms.map(|(count, e)| (count - e).powi(2) / e).sum();
    let spread = 2.0 / (9.0 * (counts.len() - 1) as f64);
    ((sum / (counts.len() - 1) as f64).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// Tokens of the plain model behind those that verification gave, up to [`NUM_TOKENS`].
fn continued(mut tokens: Vec<u32>, random: &mut Random) -> Vec<u32> {
    while tokens.len() < NUM_TOKENS {
        let p = softmax(&target(&tokens), TEMPERATURE);
        tokens.push(random.draw(&p));
    }
    tokens.truncate(NUM_TOKENS);
    tokens
}

#[expect(clippy::print_stdout, reason = "how near the distribution came")]
fn check(name: &str, verification: Verification, build: &dyn Fn(&mut Draft<'_>)) {
    const NUM_TREES: usize = 1000;
    let threads = Threads::new(NonZeroUsize::new(2).unwrap());
    let mut random = Random(77);
    let num_cells = VOCAB_SIZE.pow(NUM_TOKENS as u32);
    let mut counts = vec![0.0; num_cells];
    let mut first = [0.0; VOCAB_SIZE];
    let mut num_tokens = 0;
    for batch in 0..NUM_DRAWS / NUM_TREES {
        let seeds = (NUM_TREES, (batch * NUM_TREES) as u64);
        for tokens in Batch::new(&mut random, seeds, verification, build).verify(&threads) {
            num_tokens += tokens.len();
            let tokens = continued(tokens, &mut random);
            first[tokens[0] as usize] += 1.0;
            let cell = |cell, &token| cell * VOCAB_SIZE + token as usize;
            counts[tokens.iter().fold(0, cell)] += 1.0;
        }
    }
    let draws = NUM_DRAWS as f64;
    let p = softmax(&target(&[]), TEMPERATURE);
    let expected_first: Vec<f64> = p.iter().map(|p| p * draws).collect();
    let expected: Vec<f64> = (0..num_cells)
        .map(|cell| {
            let token =
                |i: u32| (cell / VOCAB_SIZE.pow(NUM_TOKENS as u32 - 1 - i) % VOCAB_SIZE) as u32;
            let tokens: Vec<u32> = (0..NUM_TOKENS as u32).map(token).collect();
            let p = |i: usize| softmax(&target(&tokens[..i]), TEMPERATURE)[tokens[i] as usize];
            draws * (0..NUM_TOKENS).map(p).product::<f64>()
        })
        .collect();
    let (alone, together) = (
        deviation(&first, &expected_first),
        deviation(&counts, &expected),
    );
    println!(
        "{name}: {:.3} tokens per step; first token {alone:.2} standard deviations off, three \
         together {together:.2}",
        num_tokens as f64 / draws
    );
    assert!(alone < 4.0 && together < 4.0, "{name}: {alone} {together}");
}

fn chain(draft: &mut Draft<'_>, kinds: &[bool]) {
    let mut node = 0;
    for &is_drawn in kinds {
        node = if is_drawn {
            draft.drawn(node, 1)[0]
        } else {
            draft.deterministic(node, 1)[0]
        };
    }
}

#[test]
fn chains_by_rejection_change_nothing() {
    let rule = Verification::Rejection;
    check("deterministic chain", rule, &|draft| {
        chain(draft, &[false; 3]);
    });
    check("drawn chain", rule, &|draft| chain(draft, &[true; 3]));
}

#[test]
fn trees_by_rejection_change_nothing() {
    let rule = Verification::Rejection;
    check("tree of drawn siblings", rule, &|draft| {
        for child in draft.drawn(0, 3) {
            draft.drawn(child, 2);
        }
    });
    check("tree of deterministic siblings", rule, &|draft| {
        for child in draft.deterministic(0, 3) {
            draft.deterministic(child, 2);
        }
    });
    check("drawn siblings, then a deterministic one", rule, &|draft| {
        draft.drawn(0, 2);
        for child in draft.deterministic(0, 1) {
            draft.drawn(child, 1);
        }
    });
}

#[test]
fn blocks_change_nothing() {
    let rule = Verification::Block;
    check("block, deterministic", rule, &|draft| {
        chain(draft, &[false; 3]);
    });
    check("block, drawn", rule, &|draft| chain(draft, &[true; 3]));
    check("block, both", rule, &|draft| {
        chain(draft, &[true, false, true]);
    });
}
