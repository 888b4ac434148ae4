//! Every filter, penalty, bias and mask, alone and together, with every kind of draft.
//!
//! Neighbours: `world.rs` is the logits chain, `shapes.rs` has all shapes without features.

use forerun_engine::{SamplingParams, TokenId};

use crate::drafter::{Drafter, Draws, Shape, chain};
use crate::joint::{BLOCK, ERROR_MAX, REJECTION, joint_error};
use crate::world::World;

fn features() -> Vec<(&'static str, SamplingParams)> {
    let off = SamplingParams {
        temperature: 1.0,
        ..SamplingParams::default()
    };
    let with = |change: fn(&mut SamplingParams)| {
        let mut params = off.clone();
        change(&mut params);
        params
    };
    vec![
        ("temperature 0.7", with(|p| p.temperature = 0.7)),
        ("temperature 1.8", with(|p| p.temperature = 1.8)),
        ("top-k", with(|p| p.top_k = 2)),
        ("top-p", with(|p| p.top_p = 0.6)),
        ("typical-p", with(|p| p.typical_p = 0.5)),
        ("min-p", with(|p| p.min_p = 0.3)),
        ("repetition penalty", with(|p| p.repetition_penalty = 1.7)),
        ("presence penalty", with(|p| p.presence_penalty = 1.1)),
        ("frequency penalty", with(|p| p.frequency_penalty = 2.0)),
        ("frequency reward", with(|p| p.frequency_penalty = -2.0)),
        (
            "bias",
            with(|p| p.logit_bias = vec![(TokenId(0), 1.5), (TokenId(2), f32::NEG_INFINITY)]),
        ),
        (
            "all",
            SamplingParams {
                temperature: 0.7,
                seed: 0,
                top_k: 3,
                top_p: 0.9,
                min_p: 0.05,
                typical_p: 0.95,
                repetition_penalty: 1.2,
                presence_penalty: 0.3,
                frequency_penalty: 0.4,
                logit_bias: vec![(TokenId(2), 1.0)],
            },
        ),
    ]
}

/// A target for each feature.
pub(crate) fn worlds(seed: u64, vocab_size: usize) -> Vec<(&'static str, World)> {
    let world = |(name, params)| (name, World::with(seed, vocab_size, params));
    let mut worlds: Vec<_> = features().into_iter().map(world).collect();
    let mut grammar = World::new(seed, vocab_size);
    grammar.has_grammar = true;
    worlds.push(("grammar", grammar));
    let mut min_tokens = World::new(seed, vocab_size);
    min_tokens.num_tokens_min = 2;
    worlds.push(("min tokens", min_tokens));
    // All at once; the draft model then has none of it.
    let (_, all) = features().pop().unwrap();
    let mut everything = World::with(seed, vocab_size, all);
    everything.has_grammar = true;
    everything.num_tokens_min = 2;
    worlds.push(("everything", everything));
    worlds
}

/// Three siblings, behind the first of which a chain goes on.
fn tree() -> Shape {
    vec![None, Some(0), None, None]
}

#[test]
fn every_filter_penalty_and_mask_is_kept_by_chains_and_trees_of_every_draw() {
    for vocab_size in [3, 4] {
        for (name, target) in worlds(11, vocab_size) {
            let model = World::new(23, vocab_size);
            for draws in Draws::ALL {
                for shape in [chain(2), tree()] {
                    let drafter = Drafter::new(shape.clone(), draws, &model);
                    let error = joint_error(&target, &drafter, REJECTION, 3);
                    assert!(error < ERROR_MAX, "{name}, {draws:?}, {shape:?}: {error:e}");
                }
                let drafter = Drafter::new(chain(3), draws, &model);
                let error = joint_error(&target, &drafter, BLOCK, 3);
                assert!(error < ERROR_MAX, "{name}, {draws:?}, block: {error:e}");
            }
        }
    }
}

#[test]
fn a_draft_model_may_have_filters_penalties_and_masks_of_its_own() {
    for (name, model) in worlds(31, 4) {
        let target = World::new(37, 4);
        for rule in [REJECTION, BLOCK] {
            for shape in [chain(2), tree()] {
                let drafter = Drafter::new(shape, Draws::Drawn, &model);
                let error = joint_error(&target, &drafter, rule, 3);
                assert!(error < ERROR_MAX, "{name}: {error:e}");
            }
        }
    }
}

#[test]
fn texts_end_where_no_token_is_left_as_often_as_without_drafts() {
    // Behind some texts the grammar allows only what is banned.
    let ban = |token| (TokenId(token), f32::NEG_INFINITY);
    let params = SamplingParams {
        temperature: 1.0,
        logit_bias: vec![ban(0)],
        ..SamplingParams::default()
    };
    let texts = (0..3).flat_map(|a| [vec![a], vec![a, 0], vec![a, 1], vec![a, 2]]);
    let texts: Vec<_> = texts.collect();
    let mut targets = (0..100).map(|seed| {
        let mut target = World::with(seed, 3, params.clone());
        target.has_grammar = true;
        target
    });
    let has_both = |target: &World| {
        let num_dead = texts
            .iter()
            .filter(|text| target.distribution(text).is_none());
        target.distribution(&[]).is_some() && (1..6).contains(&num_dead.count())
    };
    let target = targets.find(has_both).unwrap();
    let model = World::new(6, 3);
    for rule in [REJECTION, BLOCK] {
        for draws in Draws::ALL {
            for shape in [chain(3), tree()] {
                let drafter = Drafter::new(shape, draws, &model);
                let error = joint_error(&target, &drafter, rule, 4);
                assert!(error < ERROR_MAX, "{draws:?}: {error:e}");
            }
        }
    }
}
