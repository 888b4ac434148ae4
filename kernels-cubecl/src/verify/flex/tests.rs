//! Native verification against its definition, and against the distribution that has to come out.

use std::num::NonZeroUsize;

use super::reference;
use super::verify;
use super::world::{Node, Origin, Random, Rule, World, random_tree};
use crate::sample::flex::sample;
use crate::step_inputs::{StepInputs, StepView, Verification};
use crate::threads::Threads;
use crate::verify::{STATUS_NOT_FINITE, STATUS_TOKEN, STATUS_UNREACHED};

fn threads() -> Threads {
    Threads::new(NonZeroUsize::new(2).unwrap())
}

/// Verdicts of `sample`, and what becomes of them.
fn run(threads: &Threads, world: &World, step: &StepInputs) -> (Vec<[u32; 2]>, Vec<[u32; 2]>) {
    let num_rows = world.logits.len() / world.vocab_size;
    let mut verdicts = vec![0; 2 * num_rows];
    sample(
        threads,
        &world.logits,
        world.vocab_size,
        StepView::new(step.words()),
        &mut verdicts,
    );
    let pairs = |verdicts: &[u32]| verdicts.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
    let sampled = pairs(&verdicts);
    verify(threads, world.inputs(step), &mut verdicts);
    (sampled, pairs(&verdicts))
}

const TEMPERATURES: [f32; 5] = [0.4, 0.7, 1.0, 1.7, 1e20];

/// Trees of all kinds in one step.
fn random_world(random: &mut Random) -> World {
    let mut world = World::new(3 + random.below(38));
    for _ in 0..400 {
        let rule = Rule {
            temperature: TEMPERATURES[random.below(TEMPERATURES.len())],
            verification: [Verification::Rejection, Verification::Block][random.below(2)],
            seed: random.word(),
            anchor: random.below(1 << 20) as u32,
        };
        let is_chain = random.below(2) == 0;
        let origins = [Origin::Deterministic, Origin::Drawn, Origin::Mixed];
        let origin = origins[random.below(3)];
        random_tree(&mut world, random, rule, (is_chain, origin));
    }
    world
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "how many decisions were near a boundary"
)]
fn a_million_verdicts_are_those_of_the_definition() {
    let threads = threads();
    let mut random = Random(1);
    let (mut num_reached, mut num_accepted, mut num_near, mut num_near_and_other) = (0, 0, 0, 0);
    while num_reached < 1_000_000 {
        let world = random_world(&mut random);
        let step = world.pack();
        let (sampled, verified) = run(&threads, &world, &step);
        for &anchor in &world.anchors {
            let inputs = world.inputs(&step);
            let sampling = inputs.step.sampling(anchor);
            let rows = anchor..anchor + 1 + sampling.num_drafts as usize;
            let expected = reference::verify(inputs, anchor, &sampled[rows.clone()]);
            let found = &verified[rows];
            let reached = found.iter().filter(|row| row[1] != STATUS_UNREACHED);
            let reached = reached.count();
            num_reached += reached;
            num_accepted += reached - 1;
            let is_near = expected.margin < 1e-6;
            num_near += usize::from(is_near);
            if found != expected.verdicts {
                num_near_and_other += 1;
                assert!(is_near, "{found:?} {expected:?} {sampling:?}");
            }
        }
    }
    println!(
        "{num_reached} verdicts, {num_accepted} drafts accepted; {num_near} trees within 1e-6 of a \
         boundary, {num_near_and_other} of them decided otherwise"
    );
    assert!(num_accepted > 250_000);
    assert!(num_near < 20);
}

const CHAIN: [usize; 4] = [0, 1, 2, 3];

/// A chain of `tokens` behind the anchor.
fn chain(tokens: &[u32]) -> Vec<Node> {
    let node = |(parent, &token)| Node {
        token,
        parent,
        draft_row: None,
    };
    tokens.iter().enumerate().map(node).collect()
}

fn rule(temperature: f32, verification: Verification, seed: u64) -> Rule {
    Rule {
        temperature,
        verification,
        seed,
        anchor: 40,
    }
}

#[test]
fn greedy_rows_and_shared_noise_accept_the_sampled_tokens_and_nothing_else() {
    let threads = threads();
    let mut random = Random(2);
    let mut num_accepted = 0;
    for _ in 0..40 {
        let mut world = World::new(3 + random.below(5));
        for _ in 0..100 {
            let mut rule = rule(0.8, Verification::SharedNoise, random.word());
            if random.below(2) == 0 {
                rule.temperature = 0.0;
                rule.verification = [Verification::Rejection, Verification::Block][random.below(2)];
            }
            let kind = (random.below(2) == 0, Origin::Mixed);
            random_tree(&mut world, &mut random, rule, kind);
        }
        let step = world.pack();
        let (sampled, verified) = run(&threads, &world, &step);
        for &anchor in &world.anchors {
            let sampling = |row: usize| StepView::new(step.words()).sampling(row);
            let end = anchor + 1 + sampling(anchor).num_drafts as usize;
            let token = |row: usize| StepView::new(step.words()).token_ids()[row];
            // By its definition: a row is reached if its parent is and sampled its token.
            let mut is_reached = vec![true];
            for row in anchor + 1..end {
                let parent = sampling(row).parent_row.unwrap() as usize;
                is_reached.push(is_reached[parent - anchor] && sampled[parent][0] == token(row));
            }
            num_accepted += is_reached.iter().filter(|&&reached| reached).count() - 1;
            for (row, is_reached) in (anchor..end).zip(is_reached) {
                let unreached = [0, STATUS_UNREACHED];
                let expected = if is_reached { sampled[row] } else { unreached };
                assert_eq!(verified[row], expected);
            }
        }
    }
    assert!(num_accepted > 1000, "{num_accepted}");
}

#[test]
fn a_row_that_is_not_finite_ends_the_path() {
    let threads = threads();
    let likely = |token: usize| {
        let mut logits = vec![-30.0_f32; 6];
        logits[token] = 30.0;
        logits
    };
    let bad_rows = [vec![f32::NAN; 6], vec![f32::NEG_INFINITY; 6]];
    let verifications = [
        (0.0, Verification::SharedNoise),
        (1.0, Verification::SharedNoise),
        (1.0, Verification::Rejection),
        (1.0, Verification::Block),
    ];
    for (temperature, verification) in verifications {
        for bad in &bad_rows {
            for bad_row in CHAIN {
                let mut world = World::new(6);
                // Each row makes the next draft all but certain.
                let mut rows: Vec<Vec<f32>> = CHAIN.map(|row| likely(row + 1)).to_vec();
                rows[bad_row] = bad.clone();
                let rule = rule(temperature, verification, 5);
                world.add(rule, &chain(&[1, 2, 3]), &rows.concat());
                let step = world.pack();
                let (sampled, verified) = run(&threads, &world, &step);
                let expected = CHAIN.map(|row| match row.cmp(&bad_row) {
                    std::cmp::Ordering::Less => [row as u32 + 1, STATUS_TOKEN],
                    std::cmp::Ordering::Equal => [0, STATUS_NOT_FINITE],
                    std::cmp::Ordering::Greater => [0, STATUS_UNREACHED],
                });
                assert_eq!(verified, expected, "{verification:?}");
                let defined = reference::verify(world.inputs(&step), 0, &sampled);
                assert_eq!(verified, defined.verdicts, "{verification:?}");
            }
        }
    }
}
