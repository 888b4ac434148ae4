//! Situations that went wrong in other engines.

use forerun_engine::{
    EngineConfig, ExecutorError, FailureCause, FailureScope, FinishReason, KvGroupConfig,
    RequestId, StopCause, TokenId,
};

use super::{NAN_TOKEN, config, request};
use crate::faults::Fault;
use crate::world::World;

fn error(scope: FailureScope) -> ExecutorError {
    ExecutorError {
        scope,
        message: "the device is on fire".into(),
    }
}

/// The ways in which a step fails.
const FAILURES: [fn(ExecutorError) -> Fault; 2] = [Fault::Submit, Fault::Collect];

fn failed() -> FinishReason {
    FinishReason::Error(FailureCause::Executor("the device is on fire".into()))
}

#[test]
fn a_batch_of_prefills_and_decodes_gives_each_request_what_it_gives_alone() {
    for step_tokens_max in [5, 16, 31, 512] {
        let config = EngineConfig {
            step_tokens_max,
            step_seqs_max: 5,
            ..config(8, 200)
        };
        let mut world = World::new(config);
        for i in 0..9 {
            world.add(request(i, 3 + 11 * i as usize, 7 + i as u32));
            world.step();
        }
        world.run();
        world.assert_all_oracle();
        assert!(world.engine.executor().num_seqs_max_seen > 1);
    }
}

#[test]
fn preempted_requests_give_the_same_tokens_and_stream_each_once() {
    // 34 + 35 tokens each need 5 blocks of 16; both together do not fit 7.
    let mut world = World::new(config(16, 7));
    let mut sampled = request(2, 34, 35);
    sampled.sampling.temperature = 0.8;
    sampled.stop.stop_strings = vec![b"abcabcab".to_vec()];
    world.add(request(1, 34, 35));
    world.add(sampled);
    world.run();
    assert!(world.num_preemptions > 0);
    world.assert_all_oracle();
}

#[test]
fn the_newest_is_preempted_and_comes_back_before_later_arrivals() {
    let mut world = World::new(config(4, 6));
    let first = world.add(request(1, 7, 12));
    let second = world.add(request(2, 7, 12));
    let third = world.add(request(3, 7, 12));
    let mut order = Vec::new();
    while world.engine.has_work() {
        world.step();
        let ended = |id: &RequestId| world.has_ended(*id) && !order.contains(id);
        let ended: Vec<_> = [first, second, third].into_iter().filter(ended).collect();
        order.extend(ended);
    }
    assert!(world.num_preemptions > 0);
    assert_eq!(order, [first, second, third]);
    world.assert_all_oracle();
}

#[test]
fn a_waiting_prompt_is_not_overtaken_by_a_shorter_one() {
    let mut world = World::new(config(4, 10));
    let first = world.add(request(1, 20, 6));
    let long = world.add(request(2, 30, 3));
    let short = world.add(request(3, 2, 3));
    while !world.has_ended(first) {
        world.step();
        assert!((world.num_tokens(short) == 0));
    }
    world.run();
    assert!(world.has_ended(long));
    world.assert_all_oracle();
}

#[test]
fn an_abort_at_any_point_is_idempotent_and_harms_nobody() {
    let config = || EngineConfig {
        step_seqs_max: 2,
        step_tokens_max: 8,
        ..config(4, 20)
    };
    // Aborted after so many steps: waiting, in its prefill, decoding, ended.
    for num_steps in [0, 1, 2, 3, 6, 11, 60] {
        for place in 0..3 {
            let mut world = World::new(config());
            world.abort(RequestId(0));
            world.abort(RequestId(99));
            let ids: Vec<_> = (0..3).map(|i| world.add(request(i, 13, 9))).collect();
            for _ in 0..num_steps {
                world.step();
            }
            let had_ended = world.has_ended(ids[place]);
            world.abort(ids[place]);
            world.abort(ids[place]);
            assert!(world.engine.has_work() || num_steps == 60);
            world.run();
            world.abort(ids[place]);
            assert!(!world.engine.has_work());
            for (i, &id) in ids.iter().enumerate() {
                if i != place || had_ended {
                    world.assert_oracle(id);
                } else {
                    assert_eq!(world.reason(id), &FinishReason::Aborted);
                    world.assert_cut_short(id);
                }
            }
        }
    }
}

#[test]
fn the_last_request_aborted_still_ends_with_an_event() {
    let mut world = World::new(config(4, 20));
    let id = world.add(request(1, 5, 5));
    world.abort(id);
    assert_eq!(world.engine.num_requests(), 0);
    assert!(world.engine.has_work());
    world.step();
    assert_eq!(world.reason(id), &FinishReason::Aborted);
    assert!(!world.engine.has_work());
    world.step();
    assert_eq!(world.engine.executor().trace.num_steps, 0);
}

#[test]
fn logits_that_are_not_finite_end_their_request_alone_without_a_token() {
    let mut world = World::new(config(4, 40));
    let before = world.add(request(1, 9, 8));
    let mut sick = request(2, 6, 8);
    sick.prompt[5] = TokenId(NAN_TOKEN);
    let sick = world.add(sick);
    let after = world.add(request(3, 11, 8));
    world.run();
    let cause = FailureCause::NotFinite { position: 5 };
    assert_eq!(world.reason(sick), &FinishReason::Error(cause));
    assert!((world.num_tokens(sick) == 0));
    world.assert_oracle(before);
    world.assert_oracle(after);
}

#[test]
fn a_failed_step_ends_the_requests_it_names_and_repeats_for_the_others() {
    // 10 tokens of prompt each and 9 a step: the second request runs from the second step on.
    for (failing_step, failure) in (1..9).flat_map(|step| FAILURES.map(|f| (step, f))) {
        let config = EngineConfig {
            step_seqs_max: 3,
            step_tokens_max: 9,
            ..config(4, 40)
        };
        let mut world = World::new(config);
        let ids: Vec<_> = (0..3).map(|i| world.add(request(i, 10, 25))).collect();
        for _ in 0..failing_step {
            world.step();
        }
        let num_tokens = world.num_tokens(ids[1]);
        assert!(num_tokens < 25);
        let error = error(FailureScope::Requests(vec![ids[1]]));
        world.engine.executor_mut().faults = [Some(failure(error))].into();
        world.run();
        assert_eq!(world.reason(ids[1]), &failed());
        assert_eq!(world.num_tokens(ids[1]), num_tokens);
        world.assert_cut_short(ids[1]);
        world.assert_oracle(ids[0]);
        world.assert_oracle(ids[2]);
    }
}

#[test]
fn a_failed_step_without_names_ends_its_requests_and_nobody_elses() {
    for failure in FAILURES {
        let config = EngineConfig {
            step_seqs_max: 2,
            ..config(4, 40)
        };
        let mut world = World::new(config);
        let ids: Vec<_> = (0..4).map(|i| world.add(request(i, 5, 6))).collect();
        let fault = failure(error(FailureScope::All));
        world.engine.executor_mut().faults = [None, None, Some(fault)].into();
        world.run();
        for &id in &ids[..2] {
            assert_eq!(world.reason(id), &failed());
            assert_eq!(world.num_tokens(id), 2);
        }
        world.assert_oracle(ids[2]);
        world.assert_oracle(ids[3]);
    }
}

#[test]
fn an_error_that_names_nobody_in_the_step_does_not_repeat_it_for_ever() {
    for failure in FAILURES {
        let mut world = World::new(config(4, 40));
        let id = world.add(request(1, 5, 6));
        let error = || error(FailureScope::Requests(vec![RequestId(77)]));
        let fault = || Some(failure(error()));
        world.engine.executor_mut().faults = std::iter::repeat_with(fault).take(100).collect();
        world.run();
        assert_eq!(world.reason(id), &failed());
        assert_eq!(world.engine.executor().trace.num_steps, 1);
    }
}

#[test]
fn a_window_gives_blocks_back_while_the_sequence_runs() {
    let groups = vec![
        KvGroupConfig {
            num_blocks: 41,
            window: None,
        },
        KvGroupConfig {
            num_blocks: 41,
            window: Some(6),
        },
    ];
    let config = EngineConfig {
        groups,
        step_tokens_max: 16,
        ..config(4, 40)
    };
    let mut world = World::new(config);
    world.add(request(1, 50, 40));
    while world.engine.has_work() {
        world.step();
        let blocks = world.engine.blocks();
        if world.engine.num_requests() > 0 {
            // A window of 6 touches at most 3 blocks of 4.
            assert!(blocks.num_usable(1) - blocks.num_free(1) <= 3);
        }
    }
    world.assert_all_oracle();
}

#[test]
fn each_stop_condition_ends_its_request_in_a_batch_as_it_does_alone() {
    let mut seen = [0; 4];
    let mut world = World::new(config(8, 400));
    for salt in 0..60 {
        let mut request = request(salt, 5 + salt as usize % 7, 30);
        request.stop.ignore_eos = salt % 3 == 0;
        request.stop.stop_token_ids = vec![TokenId((salt % 37) as u32)];
        request.stop.stop_strings = vec![b"abc".to_vec(), b"cab".to_vec(), b"bcbc".to_vec()];
        world.add(request);
    }
    world.run();
    world.assert_all_oracle();
    for &id in world.jobs.keys() {
        match world.reason(id) {
            FinishReason::Stop(StopCause::Eos(_)) => seen[0] += 1,
            FinishReason::Stop(StopCause::Token(_)) => seen[1] += 1,
            FinishReason::Stop(StopCause::String(_)) => seen[2] += 1,
            FinishReason::Length => seen[3] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}
