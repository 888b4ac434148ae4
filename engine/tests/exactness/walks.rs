//! Greedy requests and shared noise: the text is the one without drafts, token for token.
//!
//! Neighbours: `shapes.rs` has the rules that only keep the distribution.

use std::cell::RefCell;
use std::collections::BTreeMap;

use forerun_engine::{Chance, TokenId, verify_greedy, verify_shared_noise};

use crate::branches::{Branches, enumerate};
use crate::drafter::{Drafter, Draws, all_shapes, chain, text_behind};
use crate::joint::{REJECTION, mean_accepted};
use crate::world::World;

/// The token behind a text, drawn by noise that is a function of the text.
struct Noise<'a> {
    target: &'a World,
    chance: RefCell<&'a mut Branches>,
    drawn: RefCell<BTreeMap<Vec<u32>, u32>>,
}

impl Noise<'_> {
    fn token(&self, text: &[u32]) -> u32 {
        let draw = || {
            let distribution = self.target.distribution(text).unwrap();
            self.chance.borrow_mut().draw(&distribution) as u32
        };
        *self
            .drawn
            .borrow_mut()
            .entry(text.to_vec())
            .or_insert_with(draw)
    }
}

#[test]
fn shared_noise_gives_the_text_without_drafts_for_every_tree() {
    let mut num_accepted = 0;
    for shape in (1..=4).flat_map(all_shapes) {
        for draws in Draws::ALL {
            let (target, model) = (World::new(41, 3), World::new(42, 3));
            let drafter = Drafter::new(shape.clone(), draws, &model);
            for (_, draft) in enumerate(|chance| drafter.draft(&[], chance)) {
                enumerate(|chance| {
                    let noise = Noise {
                        target: &target,
                        chance: RefCell::new(chance),
                        drawn: RefCell::default(),
                    };
                    let verdicts = verify_shared_noise(&draft.tree, &|node| {
                        Some(TokenId(noise.token(&text_behind(&[], &draft.tree, node))))
                    });
                    let found = verdicts.tokens(&draft.tree);
                    let mut plain = Vec::new();
                    for token in found {
                        assert_eq!(token.0, noise.token(&plain));
                        plain.push(token.0);
                    }
                    let last = verdicts.path.last().copied();
                    assert_eq!(draft.tree.child(last, verdicts.final_token.unwrap()), None);
                    num_accepted += verdicts.path.len();
                });
            }
        }
    }
    assert!(num_accepted > 1000);
}

#[test]
fn shared_noise_accepts_deterministic_drafts_as_often_as_rejection_does() {
    for shape in (1..=3).flat_map(all_shapes) {
        let (target, model) = (World::new(43, 3), World::new(44, 3));
        let drafter = Drafter::new(shape, Draws::Deterministic, &model);
        let shared = mean_accepted(
            &target,
            &drafter,
            &|drafted, chance| {
                let chance = RefCell::new(chance);
                verify_shared_noise(drafted.tree, &|node| {
                    let distribution = (drafted.target)(node)?;
                    Some(TokenId(chance.borrow_mut().draw(&distribution) as u32))
                })
            },
            &[],
        );
        let rejection = mean_accepted(&target, &drafter, REJECTION, &[]);
        assert!((shared - rejection).abs() < 1e-12, "{shared}, {rejection}");
    }
}

#[test]
fn greedy_gives_the_likeliest_tokens_for_every_tree() {
    let target = World::new(45, 4);
    let likeliest = |text: &[u32]| {
        let distribution = target.distribution(text).unwrap();
        let most = distribution.iter().copied().fold(0.0, f64::max);
        distribution.iter().position(|&p| p >= most).unwrap() as u32
    };
    for shape in (1..=4).flat_map(all_shapes) {
        // The target's own guesses are always right, the other model's sometimes.
        for model in [World::new(45, 4), World::new(46, 4)] {
            for draws in Draws::ALL {
                let drafter = Drafter::new(shape.clone(), draws, &model);
                for (_, draft) in enumerate(|chance| drafter.draft(&[], chance)) {
                    let verdicts = verify_greedy(&draft.tree, &|node| {
                        target.distribution(&text_behind(&[], &draft.tree, node))
                    });
                    let mut plain = Vec::new();
                    for token in verdicts.tokens(&draft.tree) {
                        assert_eq!(token.0, likeliest(&plain));
                        plain.push(token.0);
                    }
                    let last = verdicts.path.last().copied();
                    assert_eq!(draft.tree.child(last, verdicts.final_token.unwrap()), None);
                    if draws == Draws::Deterministic && model.seed == target.seed {
                        assert!(!verdicts.path.is_empty());
                    }
                }
            }
        }
    }
}

#[test]
fn of_equal_tokens_the_first_is_taken_and_a_row_that_is_not_finite_ends_the_walk() {
    let model = World::new(47, 3);
    let drafter = Drafter::new(chain(2), Draws::Deterministic, &model);
    for (_, draft) in enumerate(|chance| drafter.draft(&[], chance)) {
        let first = draft.tree.nodes()[0].token.0 as usize;
        let verdicts = verify_greedy(&draft.tree, &|node| {
            let mut even = vec![0.0; 3];
            even[first..].fill(0.5);
            node.is_none().then_some(even)
        });
        assert_eq!(verdicts.path, [0]);
        assert_eq!(verdicts.final_token, None);
    }
}
