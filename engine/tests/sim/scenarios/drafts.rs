//! Drafts where they went wrong in other engines: stops and limits inside a draft, penalties along it,
//! rollback over block edges, budgets, preemption, prefixes.

use forerun_engine::{
    EngineConfig, FinishReason, Request, SpecMethod, SpeculationConfig, SpeculationParams,
    StopCause, TokenId,
};

use super::{EOS, config, request, sampled};
use crate::oracle;
use crate::scripted_drafter::Script;
use crate::world::World;

const SCRIPTS: [Script; 4] = [Script::Right, Script::Wrong, Script::Mixed, Script::Tree];

fn drafted(request: Request, num_tokens: u32) -> Request {
    Request {
        speculation: SpeculationParams {
            method: Some(SpecMethod::Custom),
            num_tokens: Some(num_tokens),
            ..SpeculationParams::default()
        },
        ..request
    }
}

fn world(config: EngineConfig, script: Script) -> World {
    let mut world = World::new(config);
    world.script(script);
    world
}

/// What a request comes to alone.
fn answer(world: &World, request: &Request) -> Vec<TokenId> {
    let job = crate::job::Job::new(request.clone());
    let answer = oracle::answer(&job, world.engine.config());
    answer.samples[0].tokens.clone()
}

/// B01, B04, B05: whatever place in a draft ends the text, nothing comes after it.
#[test]
fn a_stop_inside_a_draft_is_the_end_wherever_it_lies() {
    for script in SCRIPTS {
        for place in 0..12 {
            let mut world = world(config(4, 60), script);
            let plain = request(3, 9, 32);
            let tokens = answer(&world, &plain);
            let mut stopped = drafted(plain, 5);
            stopped.stop.stop_token_ids = vec![tokens[place]];
            let first = tokens.iter().position(|token| *token == tokens[place]);
            let id = world.add(stopped);
            world.run();
            world.assert_oracle(id);
            assert_eq!(
                world.num_tokens(id),
                first.unwrap() + 1,
                "{script:?}, {place}"
            );
            let cause = StopCause::Token(tokens[place]);
            assert_eq!(world.reason(id), &FinishReason::Stop(cause));
        }
    }
}

/// B01 with the model's own end tokens, and B03: the earlier of two events wins.
#[test]
fn end_tokens_and_lengths_end_drafts_in_the_order_in_which_they_come() {
    for script in SCRIPTS {
        let mut world = world(config(4, 200), script);
        for salt in 0..40 {
            let mut ends = drafted(sampled(salt, 5, 6 + salt as u32 % 5, 1), 8);
            ends.stop.ignore_eos = false;
            ends.stop.stop_strings = vec![b"ab".to_vec(), b"c".to_vec()];
            world.add(ends);
        }
        world.run();
        world.assert_all_oracle();
    }
    assert_eq!(EOS.len(), 2);
}

/// B02: drafts and the token behind them never overshoot.
#[test]
fn max_tokens_is_exact_with_any_draft_length() {
    for script in SCRIPTS {
        for num_drafts in [1, 4, 5] {
            let mut world = world(config(4, 200), script);
            for max_tokens in [1, 2, 3, num_drafts, num_drafts + 1] {
                let id = world.add(drafted(request(7, 5, max_tokens), num_drafts));
                world.run();
                assert_eq!(world.num_tokens(id), max_tokens as usize);
                assert_eq!(world.reason(id), &FinishReason::Length);
                world.assert_oracle(id);
            }
        }
    }
}

/// B06 and B07: positions end with the model's length, and so do blocks.
#[test]
fn drafts_end_with_the_model_length() {
    for script in SCRIPTS {
        let config = EngineConfig {
            max_seq_len: 32,
            ..config(4, 8)
        };
        let mut world = world(config, script);
        for (num_prompt, num_tokens) in [(30, 2), (31, 1), (20, 12)] {
            let id = world.add(drafted(request(1, num_prompt, 100), 5));
            world.run();
            assert_eq!(world.num_tokens(id), num_tokens);
            world.assert_oracle(id);
        }
    }
}

/// B15 and B16: a position counts the drafts before it, and rejected ones leave no trace.
#[test]
fn penalties_and_least_lengths_count_tokens_along_a_draft() {
    for script in SCRIPTS {
        for penalty in [-2.0, 0.5, 2.0] {
            let mut world = world(config(4, 400), script);
            for salt in 0..12 {
                let mut request = drafted(sampled(salt, 6, 20, 1), 4);
                request.sampling.frequency_penalty = penalty;
                request.sampling.repetition_penalty = 1.2;
                request.stop.ignore_eos = false;
                request.stop.min_tokens = 6;
                world.add(request);
            }
            world.run();
            world.assert_all_oracle();
        }
    }
}

/// B28, B30, B31, B33: after a rollback over block edges every block is accounted for (the world checks
/// after each step), and all are free at the end of each of many requests.
#[test]
fn rollback_over_block_edges_loses_no_block() {
    for block_size in [1, 4, 16] {
        for script in SCRIPTS {
            let mut world = world(config(block_size, 96 / block_size), script);
            for salt in 0..50 {
                let id = world.add(drafted(request(salt, 7, 24), 3));
                world.run();
                world.assert_oracle(id);
                assert_eq!(world.engine.blocks().num_referenced(0), 0);
            }
        }
    }
}

/// B34, B38: a prompt of whole blocks, fully cached, still has a token to run, with drafts as without.
#[test]
fn cached_prefixes_give_the_same_with_drafts() {
    for script in SCRIPTS {
        for num_prompt in [4, 8, 9] {
            let mut world = world(config(4, 60), script);
            for _ in 0..3 {
                let id = world.add(drafted(request(5, num_prompt, 12), 5));
                world.run();
                world.assert_oracle(id);
            }
            let again = world.add(drafted(request(5, num_prompt, 12), 5));
            world.run();
            assert!(world.num_cached(again) > 0);
        }
    }
}

/// What was generated through drafts is found by the next turn, and holds what it should.
#[test]
fn text_that_came_of_drafts_is_reused_by_the_next_turn() {
    for script in [Script::Right, Script::Tree] {
        let mut world = world(config(4, 100), script);
        let first = drafted(request(8, 10, 21), 6);
        let mut turn = first.prompt.clone();
        turn.extend(answer(&world, &first));
        let id = world.add(first);
        world.run();
        world.assert_oracle(id);
        turn.extend([TokenId(1), TokenId(2)]);
        let second = world.add(drafted(
            Request {
                prompt: turn,
                ..request(9, 1, 12)
            },
            6,
        ));
        world.run();
        world.assert_oracle(second);
        assert!(
            world.num_cached(second) >= 28,
            "{}",
            world.num_cached(second)
        );
    }
}

/// B42 and B49: a preemption drops drafts in flight whole, and the sequence goes on as it was.
#[test]
fn preempted_sequences_with_drafts_go_on_where_they_were() {
    for depth in [1, 2] {
        for script in SCRIPTS {
            let mut world = World::with_depth(config(4, 16), depth);
            world.script(script);
            for salt in 0..4 {
                let mut request = drafted(sampled(salt, 9, 30, 1), 1 + salt as u32);
                request.sampling.frequency_penalty = 0.3;
                world.add(request);
            }
            world.run();
            assert!(world.num_preemptions > 0);
            world.assert_all_oracle();
        }
    }
}

/// B48: drafts count for the budget of a step, and never take another sequence's next token.
#[test]
fn a_step_with_drafts_keeps_its_budget_and_leaves_the_rest_to_prompts() {
    let config = EngineConfig {
        step_tokens_max: 32,
        step_seqs_max: 8,
        ..config(4, 400)
    };
    let mut world = world(config, Script::Right);
    for salt in 0..6 {
        world.add(drafted(request(salt, 3, 40), 4));
    }
    world.step();
    let prompt = world.add(request(99, 100, 4));
    world.step();
    let plan = world.engine.last_plan();
    assert_eq!(plan.num_tokens, 32);
    let last = plan.scheduled.last().unwrap();
    assert_eq!(
        (last.num_scheduled, last.num_drafts),
        (2, 0),
        "the prompt's share"
    );
    world.run();
    world.assert_all_oracle();
    assert_eq!(world.num_tokens(prompt), 4);
}

/// Where the budget is below what all would draft, everybody still gets a token in each step.
#[test]
fn a_tight_budget_cuts_drafts_and_nobodys_token() {
    let config = EngineConfig {
        step_tokens_max: 6,
        step_seqs_max: 4,
        ..config(4, 400)
    };
    let mut world = world(config, Script::Right);
    for salt in 0..4 {
        world.add(drafted(request(salt, 1, 30), 5));
    }
    world.step();
    for _ in 0..3 {
        world.step();
        let plan = world.engine.last_plan();
        assert_eq!((plan.scheduled.len(), plan.num_tokens), (4, 6));
    }
    world.run();
    world.assert_all_oracle();
}

/// B32: more branches never accept less.
#[test]
fn right_drafts_are_accepted_whole() {
    let mut world = world(config(4, 100), Script::Right);
    let id = world.add(drafted(request(4, 6, 31), 5));
    world.run();
    world.assert_oracle(id);
    // The first token comes of the prompt, then six at a time.
    assert_eq!(world.engine.executor().trace.num_steps, 1 + 5);
    assert_eq!(world.engine.executor().num_accepted, 25);
}

/// A request may turn drafts off where the engine speculates, and back on.
#[test]
fn requests_choose_their_own_method() {
    let mut settings = config(4, 100);
    settings.speculation = SpeculationConfig {
        method: SpecMethod::Custom,
        ..SpeculationConfig::default()
    };
    let mut world = world(settings, Script::Right);
    let mut off = request(1, 5, 20);
    off.speculation.method = Some(SpecMethod::Off);
    world.add(off);
    world.run();
    assert_eq!(world.engine.executor().num_accepted, 0);
    world.add(drafted(request(1, 5, 20), 4));
    world.run();
    assert!(world.engine.executor().num_accepted > 10);
    world.assert_all_oracle();
}
