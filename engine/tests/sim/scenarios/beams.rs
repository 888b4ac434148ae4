//! Beam search.

use forerun_engine::{BeamParams, EngineConfig, OutputParams, TokenId};

use super::{config, request};
use crate::fake_model::log_softmax;
use crate::job::Job;
use crate::oracle::Walk;
use crate::world::World;

fn beams(width: u32, num_samples: u32, length_penalty: f32) -> OutputParams {
    OutputParams {
        num_samples,
        beam: Some(BeamParams {
            width,
            length_penalty,
            early_stopping: false,
        }),
        ..OutputParams::default()
    }
}

#[test]
fn beams_equal_a_naive_search_on_full_logits() {
    for (salt, width) in [(1, 1), (2, 2), (3, 3), (4, 5), (5, 8)] {
        for length_penalty in [0.0, 1.0, 1.7, -0.5] {
            let mut world = World::with_depth(config(4, 200), 2);
            let mut job = request(salt, 7, 9);
            job.stop.ignore_eos = false;
            job.output = beams(width, width.div_ceil(2), length_penalty);
            world.add(job);
            world.add(request(9, 5, 9));
            world.run();
            world.assert_all_oracle();
        }
    }
}

#[test]
fn beams_in_a_pool_for_one_of_them_give_the_same() {
    for num_blocks in 5..9 {
        let mut world = World::new(config(4, num_blocks));
        let mut job = request(6, 7, 11);
        job.output = beams(4, 4, 1.0);
        world.add(job);
        world.run();
        assert!(world.num_preemptions > 0);
        world.assert_all_oracle();
    }
}

#[test]
fn asking_for_log_probabilities_changes_no_beam() {
    let mut tokens = Vec::new();
    for num_top in [0, 3, 30] {
        let mut world = World::new(config(4, 200));
        let mut job = request(4, 7, 9);
        job.stop.ignore_eos = false;
        job.stop.stop_token_ids = (0..20).map(TokenId).collect();
        job.output = beams(3, 3, 1.0);
        job.output.logprobs = Some(forerun_engine::LogprobsParams {
            num_top,
            kind: forerun_engine::LogprobsKind::Processed,
        });
        let id = world.add(job);
        world.run();
        world.assert_all_oracle();
        let samples = world.progress[&id].samples.iter();
        tokens.push(samples.map(|s| s.tokens.clone()).collect::<Vec<_>>());
    }
    assert!(tokens.iter().all(|other| *other == tokens[0]));
}

/// Every continuation of `depth` tokens with its log-probability.
fn all_continuations(job: &Job, config: &EngineConfig, depth: usize) -> Vec<(f64, Vec<TokenId>)> {
    let mut all = vec![(0.0, Vec::new())];
    for _ in 0..depth {
        let mut longer = Vec::new();
        for (sum, tokens) in all {
            let mut context = job.request.prompt.clone();
            context.extend(&tokens);
            let walk = Walk::new(config, &context);
            let logits = walk.logits_after(context.len() - 1).unwrap();
            for (token, logprob) in log_softmax(&logits).into_iter().enumerate() {
                let mut tokens = tokens.clone();
                tokens.push(TokenId(token as u32));
                longer.push((sum + f64::from(logprob), tokens));
            }
        }
        all = longer;
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all
}

#[test]
fn as_many_beams_as_there_are_texts_find_the_best_of_all_texts() {
    for (vocab_size, depth) in [(2_usize, 5_u32), (3, 3), (5, 2)] {
        let width = vocab_size.pow(depth);
        let config = EngineConfig {
            vocab_size,
            eos_token_ids: Vec::new(),
            step_seqs_max: width,
            step_tokens_max: 2 * width,
            ..config(4, 300)
        };
        for salt in 0..5 {
            let mut world = World::new(config.clone());
            let mut request = request(salt, 6, depth);
            for token in &mut request.prompt {
                token.0 %= vocab_size as u32;
            }
            request.output = beams(width as u32, width as u32, 0.0);
            let id = world.add(request);
            world.run();
            let expected = all_continuations(&world.jobs[&id], &config, depth as usize);
            let samples = &world.progress[&id].samples;
            assert_eq!(samples.len(), expected.len());
            for (sample, (_, tokens)) in samples.iter().zip(&expected) {
                assert_eq!(&sample.tokens, tokens);
            }
        }
    }
}

#[test]
fn beams_share_blocks_and_give_all_back() {
    let mut world = World::new(config(16, 60));
    let mut job = request(2, 40, 20);
    job.output = beams(6, 1, 1.0);
    world.add(job);
    let mut most = 0;
    while world.engine.has_work() {
        world.step();
        most = most.max(world.engine.blocks().num_referenced(0));
    }
    // Alone each would hold 4 blocks of 16 in the end.
    assert!(most < 6 * 4, "{most} blocks");
    assert!(world.engine.executor().num_copies > 0);
    world.check_idle();
    world.assert_all_oracle();
}
