//! Chains of up to four and all trees of up to five drafts.
//!
//! Neighbours: `features.rs` has few shapes and everything else.

use crate::drafter::{Drafter, Draws, all_shapes, chain};
use crate::joint::{BLOCK, ERROR_MAX, REJECTION, joint_error, mean_accepted};
use crate::world::World;

#[test]
fn texts_with_chains_have_the_distribution_of_the_target() {
    for vocab_size in [3, 4, 5] {
        for len in 1..=4 {
            // A long chain emits most of a text at once.
            let text_len = if len + vocab_size <= 7 { 4 } else { 3 };
            for (draws, seed) in Draws::ALL
                .into_iter()
                .flat_map(|d| [(d, 1), (d, 3), (d, 5)])
            {
                let target = World::new(seed, vocab_size);
                let model = World::new(seed + 1, vocab_size);
                let drafter = Drafter::new(chain(len), draws, &model);
                for rule in [REJECTION, BLOCK] {
                    let error = joint_error(&target, &drafter, rule, text_len);
                    assert!(
                        error < ERROR_MAX,
                        "{len} of {vocab_size}, {draws:?}: {error:e}"
                    );
                }
            }
        }
    }
}

#[test]
fn texts_with_trees_have_the_distribution_of_the_target() {
    for vocab_size in [3, 4, 5] {
        for num_nodes in 1..=5 {
            // Steps behind other texts are of the same kind: the larger trees do with fewer.
            let len = if num_nodes + vocab_size <= 8 { 3 } else { 2 };
            for (seed, shape) in all_shapes(num_nodes).into_iter().enumerate() {
                let target = World::new(100 + seed as u64, vocab_size);
                let model = World::new(200 + seed as u64, vocab_size);
                for draws in Draws::ALL {
                    let drafter = Drafter::new(shape.clone(), draws, &model);
                    let error = joint_error(&target, &drafter, REJECTION, len);
                    assert!(
                        error < ERROR_MAX,
                        "{shape:?} of {vocab_size}, {draws:?}: {error:e}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_draft_model_that_is_the_target_is_always_accepted() {
    let model = World::new(9, 4);
    for rule in [REJECTION, BLOCK] {
        let drafter = Drafter::new(chain(3), Draws::Drawn, &model);
        let accepted = mean_accepted(&model, &drafter, rule, &[]);
        assert!((accepted - 3.0).abs() < 1e-12, "{accepted}");
        assert!(joint_error(&model, &drafter, rule, 3) < ERROR_MAX);
    }
}

#[test]
fn siblings_raise_acceptance_and_leave_the_distribution() {
    let (target, model) = (World::new(12, 5), World::new(13, 5));
    let accepted = [1, 2, 3].map(|num| {
        let drafter = Drafter::new(vec![None; num], Draws::Drawn, &model);
        mean_accepted(&target, &drafter, REJECTION, &[])
    });
    assert!(
        accepted[0] < accepted[1] && accepted[1] < accepted[2],
        "{accepted:?}"
    );
}

#[test]
fn as_many_siblings_as_tokens_are_always_enough() {
    let (target, model) = (World::new(14, 3), World::new(15, 3));
    for draws in Draws::ALL {
        let drafter = Drafter::new(vec![None; 3], draws, &model);
        let accepted = mean_accepted(&target, &drafter, REJECTION, &[]);
        assert!((accepted - 1.0).abs() < 1e-12, "{draws:?}: {accepted}");
    }
}

#[test]
fn a_drafter_may_stop_behind_a_token_it_has_drawn() {
    let (target, model) = (World::new(16, 3), World::new(17, 3));
    for draws in Draws::ALL {
        for rule in [REJECTION, BLOCK] {
            for token in 0..3 {
                let mut drafter = Drafter::new(chain(3), draws, &model);
                drafter.stops_behind = Some(token);
                let error = joint_error(&target, &drafter, rule, 4);
                assert!(error < ERROR_MAX, "{draws:?}, {token}: {error:e}");
            }
        }
    }
}

#[test]
fn draws_that_repeat_a_sibling_may_be_dropped() {
    let (target, model) = (World::new(18, 4), World::new(19, 4));
    for shape in (2..=4).flat_map(all_shapes) {
        let mut drafter = Drafter::new(shape.clone(), Draws::Drawn, &model);
        drafter.draws_whole_row = true;
        let error = joint_error(&target, &drafter, REJECTION, 2);
        assert!(error < ERROR_MAX, "{shape:?}: {error:e}");
    }
}
