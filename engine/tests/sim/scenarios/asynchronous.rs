//! Two steps in flight: the next is submitted before the verdicts of the last are read.

use forerun_engine::{
    EngineConfig, ExecutorError, FailureScope, FinishReason, RequestId, WaitReason,
};

use super::{EOS, config, request, sampled};
use crate::fake_grammar::FakeGrammar;
use crate::faults::Fault;
use crate::job::Job;
use crate::world::World;

/// Requests of several kinds, tokens and all.
fn mixed(world: &mut World) {
    for salt in 0..8 {
        let mut request = sampled(salt, 4 + 5 * salt as usize, 9 + salt as u32, 1);
        request.stop.ignore_eos = salt % 2 == 0;
        if salt % 3 == 0 {
            request.sampling.frequency_penalty = 0.7;
        }
        world.add(request);
    }
}

#[test]
fn the_next_step_is_submitted_before_the_last_is_read_and_changes_no_token() {
    let mut lens = Vec::new();
    for depth in [1, 2] {
        for computes_late in [false, true] {
            let config = EngineConfig {
                step_tokens_max: 24,
                ..config(4, 200)
            };
            let mut world = World::with_depth(config, depth);
            world.engine.executor_mut().computes_late = computes_late;
            mixed(&mut world);
            world.run();
            world.assert_all_oracle();
            assert_eq!(world.engine.executor().depth_max_seen, depth);
            let tokens = world.progress.values().map(|p| p.samples[0].tokens.clone());
            lens.push(tokens.collect::<Vec<_>>());
        }
    }
    assert!(lens.iter().all(|tokens| *tokens == lens[0]));
}

#[test]
fn a_synchronous_setting_keeps_one_step_in_flight_whatever_the_executor_takes() {
    let mut config = config(4, 200);
    config.scheduling.steps_in_flight_max = 1;
    let mut world = World::with_depth(config, 2);
    mixed(&mut world);
    world.run();
    world.assert_all_oracle();
    assert_eq!(world.engine.executor().depth_max_seen, 1);
}

#[test]
fn a_result_that_comes_after_a_preemption_is_dropped_whole() {
    // Blocks for one of them at its end, so that they preempt each other over and over.
    for num_blocks in 10..14 {
        let mut world = World::with_depth(config(4, num_blocks), 2);
        for salt in 0..3 {
            let mut request = sampled(salt, 9, 28, 1);
            request.sampling.presence_penalty = 0.5;
            request.output.logprobs = Some(forerun_engine::LogprobsParams {
                num_top: 2,
                kind: forerun_engine::LogprobsKind::Processed,
            });
            world.add(request);
        }
        world.run();
        assert!(world.num_preemptions > 1);
        world.assert_all_oracle();
    }
}

#[test]
fn a_request_skipped_for_a_step_goes_on_with_the_right_token() {
    // Four decode while only three tokens fit a step.
    for step_tokens_max in [4, 5, 6] {
        let config = EngineConfig {
            step_tokens_max,
            step_seqs_max: 4,
            ..config(4, 100)
        };
        let mut world = World::with_depth(config, 2);
        for salt in 0..7 {
            world.add(request(salt, 3 + 4 * salt as usize, 12));
            world.step();
        }
        world.run();
        world.assert_all_oracle();
    }
}

#[test]
fn penalties_count_the_token_in_flight_also_for_who_joins_later() {
    for depth in [1, 2] {
        let mut world = World::with_depth(config(4, 100), depth);
        let plain = world.add(request(1, 6, 30));
        for _ in 0..5 {
            world.step();
        }
        let mut penalised = request(2, 6, 30);
        penalised.sampling.repetition_penalty = 1.5;
        penalised.sampling.frequency_penalty = 1.0;
        let penalised = world.add(penalised);
        world.run();
        world.assert_oracle(plain);
        world.assert_oracle(penalised);
    }
}

#[test]
fn a_grammar_waits_for_its_token_while_others_overlap() {
    let mut world = World::with_depth(config(4, 100), 2);
    let grammar = FakeGrammar::new(5, 40, &EOS, false);
    let mut job = Job::new(request(1, 6, 15));
    job.request.waits_for = Some(WaitReason::Grammar);
    job.grammar = Some(grammar);
    let structured = world.try_add_job(job).unwrap();
    world.advance_parked(structured);
    let plain = world.add(request(2, 6, 15));
    world.run();
    assert_eq!(world.engine.executor().depth_max_seen, 2);
    world.assert_oracle(structured);
    world.assert_oracle(plain);
}

#[test]
fn a_reset_of_the_cache_with_steps_in_flight_drops_them_and_changes_no_token() {
    for reset_after in 0..12 {
        let mut world = World::with_depth(config(4, 60), 2);
        mixed(&mut world);
        for _ in 0..reset_after {
            world.step();
        }
        world.engine.reset_prefix_cache();
        world.engine.check_integrity().unwrap();
        assert_eq!(world.engine.blocks().num_cached(0), 0);
        assert_eq!(world.engine.queue_lens().running, 0);
        world.run();
        world.assert_all_oracle();
    }
}

#[test]
fn a_failed_step_takes_the_step_behind_it_along_and_all_go_on() {
    for failing_step in 0..14 {
        for fail in [Fault::Submit as fn(_) -> _, Fault::Collect] {
            let mut world = World::with_depth(config(4, 60), 2);
            mixed(&mut world);
            let victim = RequestId(3);
            let error = ExecutorError {
                scope: FailureScope::Requests(vec![victim]),
                message: "planted".into(),
            };
            let faults = &mut world.engine.executor_mut().faults;
            faults.extend((0..failing_step).map(|_| None));
            faults.push_back(Some(fail(error)));
            world.run();
            for &id in world.jobs.keys() {
                if id == victim && matches!(world.reason(id), FinishReason::Error(_)) {
                    world.assert_cut_short(id);
                } else if !matches!(world.reason(id), FinishReason::Error(_)) {
                    world.assert_oracle(id);
                }
            }
            assert!(matches!(world.reason(victim), FinishReason::Error(_)) || failing_step > 10);
        }
    }
}

#[test]
fn an_abort_with_steps_in_flight_harms_nobody() {
    for num_steps in 0..14 {
        for victim in 0..8 {
            let mut world = World::with_depth(config(4, 40), 2);
            mixed(&mut world);
            for _ in 0..num_steps {
                world.step();
            }
            let had_ended = world.has_ended(RequestId(victim));
            world.abort(RequestId(victim));
            world.abort(RequestId(victim));
            world.run();
            for &id in world.jobs.keys() {
                if id != RequestId(victim) || had_ended {
                    world.assert_oracle(id);
                } else {
                    assert_eq!(world.reason(id), &FinishReason::Aborted);
                    world.assert_cut_short(id);
                }
            }
        }
    }
}
