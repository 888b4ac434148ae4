//! What block verification is for, and where it falls back.
//!
//! Neighbours: `shapes.rs` and `features.rs` show that it is exact.

use forerun_engine::{Chance, Drafted, verify_block};

use crate::branches::enumerate;
use crate::drafter::{Drafter, Draws, chain};
use crate::joint::{BLOCK, ERROR_MAX, REJECTION, emitted, joint_error, mean_accepted};
use crate::world::World;

#[test]
fn blocks_accept_no_fewer_drafts_than_rejection_and_sometimes_more() {
    let mut gained = 0;
    for seed in 0..200 {
        let (target, model) = (World::new(seed, 3), World::new(seed + 1000, 3));
        let drafter = Drafter::new(chain(3), Draws::Drawn, &model);
        let [rejection, block] =
            [REJECTION, BLOCK].map(|rule| mean_accepted(&target, &drafter, rule, &[]));
        assert!(
            block > rejection - 1e-12,
            "seed {seed}: {block} < {rejection}"
        );
        gained += usize::from(block > rejection + 1e-3);
    }
    assert!(gained > 100, "{gained} of 200");
}

#[test]
fn one_draft_is_a_block_that_is_verified_by_rejection() {
    for draws in [Draws::Deterministic, Draws::Drawn] {
        let (target, model) = (World::new(3, 4), World::new(4, 4));
        let drafter = Drafter::new(chain(1), draws, &model);
        let [rejection, block] =
            [REJECTION, BLOCK].map(|rule| mean_accepted(&target, &drafter, rule, &[]));
        assert!((rejection - block).abs() < 1e-12);
    }
}

#[test]
fn a_tree_is_verified_by_rejection() {
    let (target, model) = (World::new(5, 4), World::new(6, 4));
    let shape = vec![None, Some(0), None];
    let drafter = Drafter::new(shape, Draws::Drawn, &model);
    let [rejection, block] = [REJECTION, BLOCK].map(|rule| emitted(&target, &drafter, rule, 2));
    assert_eq!(rejection, block);
    assert!(joint_error(&target, &drafter, BLOCK, 3) < ERROR_MAX);
}

#[test]
fn a_token_that_the_target_never_gives_ends_what_can_be_accepted() {
    let certain = |token: usize| Some((0..3).map(|t| f64::from(u8::from(t == token))).collect());
    let model = World::new(7, 3);
    let drafter = Drafter::new(chain(3), Draws::Deterministic, &model);
    for (_, draft) in enumerate(|chance| drafter.draft(&[], chance)) {
        let drafted_tokens: Vec<usize> = draft
            .tree
            .nodes()
            .iter()
            .map(|node| node.token.0 as usize)
            .collect();
        let other = (drafted_tokens[1] + 1) % 3;
        let target = |node: Option<u32>| match node {
            None => certain(drafted_tokens[0]),
            Some(0) => certain(other),
            Some(_) => certain(drafted_tokens[2]),
        };
        let drafted = Drafted {
            tree: &draft.tree,
            target: &target,
            draft: &|row| &draft.rows[row as usize],
        };
        let found = enumerate(|chance: &mut crate::branches::Branches| {
            assert!(chance.happens(1.0));
            verify_block(drafted, chance)
        });
        assert_eq!(found.len(), 1);
        let (_, verdicts) = &found[0];
        assert_eq!(verdicts.path, [0]);
        assert_eq!(verdicts.final_token.unwrap().0 as usize, other);
    }
}
