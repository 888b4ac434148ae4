//! Planted bugs: each has to be seen by the enumeration, or it is blind.
//!
//! Neighbours: `drafter.rs` has the flaws of drafters; those of acceptance are here, in a second
//! version of the rules that is exact without them.

use forerun_engine::{Chance, DraftDraw, Drafted, TokenId, Verdicts};

use crate::branches::Branches;
use crate::drafter::{Drafter, Draws, Flaw, Shape, chain};
use crate::joint::{BLOCK, ERROR_MAX, REJECTION, Rule, distance, emitted, joint_error};
use crate::world::World;

/// A difference that is a bug and not rounding.
const SEEN_MIN: f64 = 1e-6;

/// A bug in acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// Later siblings are tried against all of p.
    KeepsTarget,
    /// What is left of p is not renormalised before the next sibling is tried.
    SkipsRenormalising,
    /// q keeps the token that was tried.
    KeepsTriedToken,
    /// p keeps a deterministic draft that was rejected.
    KeepsRejectedGuess,
    /// Drawn drafts are accepted with p, not p / q.
    AcceptsWithTarget,
    /// The token behind the last draft is drawn from the row before.
    DrawsBonusFromRowBefore,
    /// The token at a rejection is drawn from p.
    RecoversFromTarget,
}

fn divided(weights: &[f64], by: f64) -> Vec<f64> {
    weights.iter().map(|weight| weight / by).collect()
}

fn mass(weights: &[f64]) -> f64 {
    weights.iter().sum()
}

/// Rejection with unnormalised weights.
fn rejection(mutation: Option<Mutation>, drafted: Drafted<'_>, chance: &mut Branches) -> Verdicts {
    let is = |other| mutation == Some(other);
    let mut path: Vec<u32> = Vec::new();
    'nodes: loop {
        let node = path.last().copied();
        let whole = (drafted.target)(node).unwrap();
        let mut left = whole.clone();
        let mut row: Option<Vec<f64>> = None;
        let children: Vec<u32> = drafted.tree.children(node).collect();
        for &child in &children {
            let guess = drafted.tree.nodes()[child as usize];
            let token = guess.token.0 as usize;
            let scale = if is(Mutation::SkipsRenormalising) {
                1.0
            } else {
                mass(&left)
            };
            let p = if is(Mutation::KeepsTarget) {
                whole[token]
            } else {
                left[token] / scale
            };
            let DraftDraw::Sampled { row: number } = guess.draw else {
                if chance.happens(p.min(1.0)) {
                    path.push(child);
                    continue 'nodes;
                }
                if !is(Mutation::KeepsRejectedGuess) {
                    left[token] = 0.0;
                }
                continue;
            };
            let draft = row.get_or_insert_with(|| (drafted.draft)(number).to_vec());
            let q = draft[token] / mass(draft);
            let accepted_with = if is(Mutation::AcceptsWithTarget) {
                p
            } else {
                p / q
            };
            if chance.happens(accepted_with.min(1.0)) {
                path.push(child);
                continue 'nodes;
            }
            let (p, q) = (divided(&left, scale), divided(draft, mass(draft)));
            left = p.iter().zip(&q).map(|(p, q)| (p - q).max(0.0)).collect();
            if !is(Mutation::KeepsTriedToken) {
                draft[token] = 0.0;
            }
        }
        if is(Mutation::RecoversFromTarget) || mass(&left) <= 0.0 {
            left = whole;
        }
        if is(Mutation::DrawsBonusFromRowBefore) && children.is_empty() {
            let before = path.len().checked_sub(2).map(|at| path[at]);
            left = (drafted.target)(before).unwrap();
        }
        let token = chance.draw(&divided(&left, mass(&left)));
        return Verdicts {
            path,
            final_token: Some(TokenId(token as u32)),
        };
    }
}

/// A bug in verification of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockMutation {
    /// A block is picked with w alone, as if it were the last.
    PicksWithWeight,
    /// What is left is that of rejection: `max(p - q, 0)`.
    ForgetsWeight,
    /// The first block that is not picked ends the search.
    StopsAtFirstRefusal,
}

/// Algorithm 2 over a drawn chain, from the end.
fn block(mutation: Option<BlockMutation>, drafted: Drafted<'_>, chance: &mut Branches) -> Verdicts {
    let is = |other| mutation == Some(other);
    let num = drafted.tree.len();
    let p = |i: usize| (drafted.target)(i.checked_sub(1).map(|node| node as u32)).unwrap();
    let node = |i: usize| drafted.tree.nodes()[i];
    let q = |i: usize| match node(i).draw {
        DraftDraw::Sampled { row } => (drafted.draft)(row).to_vec(),
        DraftDraw::Deterministic => unreachable!("drawn chains only"),
    };
    let left = |i: usize, weight: f64| -> Vec<f64> {
        let pairs = p(i).into_iter().zip(q(i));
        pairs.map(|(p, q)| (weight * p - q).max(0.0)).collect()
    };
    let mut weights = vec![1.0_f64];
    for i in 0..num {
        let token = node(i).token.0 as usize;
        weights.push((weights[i] * p(i)[token] / q(i)[token]).min(1.0));
    }
    let picked_with = |i: usize| {
        let weight = weights[i];
        if i == num || is(BlockMutation::PicksWithWeight) {
            return weight;
        }
        let left = mass(&left(i, weight));
        if left > 0.0 {
            left / (left + (1.0 - weight))
        } else {
            0.0
        }
    };
    let num_accepted = if is(BlockMutation::StopsAtFirstRefusal) {
        (1..=num)
            .take_while(|&i| chance.happens(picked_with(i)))
            .count()
    } else {
        let last = (1..=num).rev().find(|&i| chance.happens(picked_with(i)));
        last.unwrap_or(0)
    };
    let weight = if is(BlockMutation::ForgetsWeight) {
        1.0
    } else {
        weights[num_accepted]
    };
    let rest = if num_accepted == num {
        p(num)
    } else {
        left(num_accepted, weight)
    };
    let rest = if mass(&rest) > 0.0 {
        rest
    } else {
        p(num_accepted)
    };
    let token = chance.draw(&divided(&rest, mass(&rest)));
    Verdicts {
        path: (0..num_accepted as u32).collect(),
        final_token: Some(TokenId(token as u32)),
    }
}

/// Two chains and two siblings: enough for each bug.
fn shapes() -> [Shape; 4] {
    let tree = vec![None, Some(0), None, Some(2), None];
    [chain(1), chain(2), vec![None, None, None], tree]
}

/// The greatest error over shapes, draws and seeds.
fn worst(shapes: &[Shape], draws: &[Draws], flaw: Option<Flaw>, rule: Rule<'_>) -> f64 {
    let mut worst = 0.0_f64;
    for seed in 0..4 {
        let mut target = World::new(60 + seed, 4);
        target.params.top_k = 3;
        let model = World::new(80 + seed, 4);
        for shape in shapes {
            for &draws in draws {
                let mut drafter = Drafter::new(shape.clone(), draws, &model);
                if let Some(flaw) = flaw {
                    drafter = drafter.flawed(flaw, &target);
                }
                worst = worst.max(joint_error(&target, &drafter, rule, 2));
            }
        }
    }
    worst
}

#[test]
fn every_bug_in_acceptance_is_seen() {
    let worst_with = |mutation| {
        let rule: Rule<'_> = &|drafted, chance| rejection(mutation, drafted, chance);
        worst(&shapes(), &Draws::ALL, None, rule)
    };
    let right = worst_with(None);
    assert!(right < ERROR_MAX, "without a bug: {right:e}");
    for mutation in [
        Mutation::KeepsTarget,
        Mutation::SkipsRenormalising,
        Mutation::KeepsTriedToken,
        Mutation::KeepsRejectedGuess,
        Mutation::AcceptsWithTarget,
        Mutation::DrawsBonusFromRowBefore,
        Mutation::RecoversFromTarget,
    ] {
        let error = worst_with(Some(mutation));
        assert!(error > SEEN_MIN, "{mutation:?} is not seen: {error:e}");
    }
}

#[test]
fn every_bug_in_verification_of_blocks_is_seen() {
    let worst_with = |mutation| {
        let rule: Rule<'_> = &|drafted, chance| block(mutation, drafted, chance);
        worst(&[chain(2), chain(3)], &[Draws::Drawn], None, rule)
    };
    let right = worst_with(None);
    assert!(right < ERROR_MAX, "without a bug: {right:e}");
    for mutation in [
        BlockMutation::PicksWithWeight,
        BlockMutation::ForgetsWeight,
        BlockMutation::StopsAtFirstRefusal,
    ] {
        let error = worst_with(Some(mutation));
        assert!(error > SEEN_MIN, "{mutation:?} is not seen: {error:e}");
    }
}

#[test]
fn every_bug_in_drafting_is_seen() {
    for flaw in [
        Flaw::DropsUnlikely,
        Flaw::DropsIllegal,
        Flaw::DrawsSharper,
        Flaw::TellsArgmaxAsDrawn,
    ] {
        for rule in [REJECTION, BLOCK] {
            let error = worst(&[chain(1), chain(2)], &[Draws::Drawn], Some(flaw), rule);
            assert!(error > SEEN_MIN, "{flaw:?} is not seen: {error:e}");
        }
    }
    let flaw = Flaw::MergesDraws;
    let error = worst(&[vec![None, None]], &[Draws::Drawn], Some(flaw), REJECTION);
    assert!(error > SEEN_MIN, "{flaw:?} is not seen: {error:e}");
}

#[test]
fn penalties_that_do_not_count_drafts_are_seen() {
    let world = || {
        let mut world = World::new(90, 3);
        world.params.frequency_penalty = 1.5;
        world
    };
    let (target, mut careless) = (world(), world());
    careless.counts_output = false;
    let model = World::new(91, 3);
    let drafter = Drafter::new(chain(2), Draws::Drawn, &model);
    let error = |found: &World| {
        let texts = emitted(found, &drafter, REJECTION, 3);
        distance(&texts, &target, 3)
    };
    assert!(error(&target) < ERROR_MAX);
    assert!(error(&careless) > SEEN_MIN);
}
