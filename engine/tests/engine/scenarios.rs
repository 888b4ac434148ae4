//! Situations that went wrong in other engines.

use forerun_engine::{
    EngineConfig, ExecutorError, FailureCause, FailureScope, FinishReason, KvGroupConfig,
    RequestId, StopCause, TokenId,
};

use crate::fake_model::NAN_TOKEN;
use crate::harness::{Harness, config, request};

fn failure(scope: FailureScope) -> ExecutorError {
    ExecutorError {
        scope,
        message: "the device is on fire".into(),
    }
}

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
        let mut harness = Harness::new(config);
        for i in 0..9 {
            harness.add(request(i, 3 + 11 * i as usize, 7 + i as u32));
            harness.step();
        }
        harness.run();
        harness.assert_all_oracle();
        assert!(harness.engine.executor().num_seqs_max_seen > 1);
    }
}

#[test]
fn preempted_requests_give_the_same_tokens_and_stream_each_once() {
    // 34 + 35 tokens each need 5 blocks of 16; both together do not fit 7.
    let mut harness = Harness::new(config(16, 7));
    let mut sampled = request(2, 34, 35);
    sampled.sampling.temperature = 0.8;
    sampled.stop.stop_strings = vec![b"abcabcab".to_vec()];
    harness.add(request(1, 34, 35));
    harness.add(sampled);
    harness.run();
    assert!(harness.num_preemptions > 0);
    harness.assert_all_oracle();
}

#[test]
fn the_newest_is_preempted_and_comes_back_before_later_arrivals() {
    let mut harness = Harness::new(config(4, 6));
    let first = harness.add(request(1, 7, 12));
    let second = harness.add(request(2, 7, 12));
    let third = harness.add(request(3, 7, 12));
    let mut order = Vec::new();
    while harness.engine.has_work() {
        harness.step();
        let ended = |id: &RequestId| harness.progress[id].end.is_some() && !order.contains(id);
        let ended: Vec<_> = [first, second, third].into_iter().filter(ended).collect();
        order.extend(ended);
    }
    assert!(harness.num_preemptions > 0);
    assert_eq!(order, [first, second, third]);
    harness.assert_all_oracle();
}

#[test]
fn a_waiting_prompt_is_not_overtaken_by_a_shorter_one() {
    let mut harness = Harness::new(config(4, 10));
    let first = harness.add(request(1, 20, 6));
    let long = harness.add(request(2, 30, 3));
    let short = harness.add(request(3, 2, 3));
    while harness.progress[&first].end.is_none() {
        harness.step();
        assert!(harness.progress[&short].tokens.is_empty());
    }
    harness.run();
    assert!(harness.progress[&long].end.is_some());
    harness.assert_all_oracle();
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
            let mut harness = Harness::new(config());
            harness.abort(RequestId(0));
            harness.abort(RequestId(99));
            let ids: Vec<_> = (0..3).map(|i| harness.add(request(i, 13, 9))).collect();
            for _ in 0..num_steps {
                harness.step();
            }
            let had_ended = harness.progress[&ids[place]].end.is_some();
            harness.abort(ids[place]);
            harness.abort(ids[place]);
            assert!(harness.engine.has_work() || num_steps == 60);
            harness.run();
            harness.abort(ids[place]);
            assert!(!harness.engine.has_work());
            for (i, &id) in ids.iter().enumerate() {
                if i != place || had_ended {
                    harness.assert_oracle(id);
                } else {
                    assert_eq!(harness.reason(id), &FinishReason::Aborted);
                    harness.assert_cut_short(id);
                }
            }
        }
    }
}

#[test]
fn the_last_request_aborted_still_ends_with_an_event() {
    let mut harness = Harness::new(config(4, 20));
    let id = harness.add(request(1, 5, 5));
    harness.abort(id);
    assert_eq!(harness.engine.num_requests(), 0);
    assert!(harness.engine.has_work());
    harness.step();
    assert_eq!(harness.reason(id), &FinishReason::Aborted);
    assert!(!harness.engine.has_work());
    harness.step();
    assert_eq!(harness.engine.executor().num_steps, 0);
}

#[test]
fn logits_that_are_not_finite_end_their_request_alone_without_a_token() {
    let mut harness = Harness::new(config(4, 40));
    let before = harness.add(request(1, 9, 8));
    let mut sick = request(2, 6, 8);
    sick.prompt[5] = TokenId(NAN_TOKEN);
    let sick = harness.add(sick);
    let after = harness.add(request(3, 11, 8));
    harness.run();
    let cause = FailureCause::NotFinite { position: 5 };
    assert_eq!(harness.reason(sick), &FinishReason::Error(cause));
    assert!(harness.progress[&sick].tokens.is_empty());
    harness.assert_oracle(before);
    harness.assert_oracle(after);
}

#[test]
fn a_failed_step_ends_the_requests_it_names_and_repeats_for_the_others() {
    // 10 tokens of prompt each and 9 a step: the second request runs from the second step on.
    for failing_step in 1..9 {
        let config = EngineConfig {
            step_seqs_max: 3,
            step_tokens_max: 9,
            ..config(4, 40)
        };
        let mut harness = Harness::new(config);
        let ids: Vec<_> = (0..3).map(|i| harness.add(request(i, 10, 25))).collect();
        for _ in 0..failing_step {
            harness.step();
        }
        let num_tokens = harness.progress[&ids[1]].tokens.len();
        assert!(num_tokens < 25);
        let error = failure(FailureScope::Requests(vec![ids[1]]));
        harness.engine.executor_mut().faults = [Some(error)].into();
        harness.run();
        assert_eq!(harness.reason(ids[1]), &failed());
        assert_eq!(harness.progress[&ids[1]].tokens.len(), num_tokens);
        harness.assert_cut_short(ids[1]);
        harness.assert_oracle(ids[0]);
        harness.assert_oracle(ids[2]);
    }
}

#[test]
fn a_failed_step_without_names_ends_its_requests_and_nobody_elses() {
    let config = EngineConfig {
        step_seqs_max: 2,
        ..config(4, 40)
    };
    let mut harness = Harness::new(config);
    let ids: Vec<_> = (0..4).map(|i| harness.add(request(i, 5, 6))).collect();
    harness.engine.executor_mut().faults = [None, None, Some(failure(FailureScope::All))].into();
    harness.run();
    for &id in &ids[..2] {
        assert_eq!(harness.reason(id), &failed());
        assert_eq!(harness.progress[&id].tokens.len(), 2);
    }
    harness.assert_oracle(ids[2]);
    harness.assert_oracle(ids[3]);
}

#[test]
fn an_error_that_names_nobody_in_the_step_does_not_repeat_it_for_ever() {
    let mut harness = Harness::new(config(4, 40));
    let id = harness.add(request(1, 5, 6));
    let error = || Some(failure(FailureScope::Requests(vec![RequestId(77)])));
    harness.engine.executor_mut().faults = std::iter::repeat_with(error).take(100).collect();
    harness.run();
    assert_eq!(harness.reason(id), &failed());
    assert_eq!(harness.engine.executor().num_steps, 1);
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
    let mut harness = Harness::new(config);
    harness.add(request(1, 50, 40));
    while harness.engine.has_work() {
        harness.step();
        let blocks = harness.engine.blocks();
        if harness.engine.num_requests() > 0 {
            // A window of 6 touches at most 3 blocks of 4.
            assert!(blocks.num_usable(1) - blocks.num_free(1) <= 3);
        }
    }
    harness.assert_all_oracle();
}

#[test]
fn each_stop_condition_ends_its_request_in_a_batch_as_it_does_alone() {
    let mut seen = [0; 4];
    let mut harness = Harness::new(config(8, 400));
    for salt in 0..60 {
        let mut request = request(salt, 5 + salt as usize % 7, 30);
        request.stop.ignore_eos = salt % 3 == 0;
        request.stop.stop_token_ids = vec![TokenId((salt % 37) as u32)];
        request.stop.stop_strings = vec![b"abc".to_vec(), b"cab".to_vec(), b"bcbc".to_vec()];
        harness.add(request);
    }
    harness.run();
    harness.assert_all_oracle();
    for &id in harness.requests.keys() {
        match harness.reason(id) {
            FinishReason::Stop(StopCause::Eos(_)) => seen[0] += 1,
            FinishReason::Stop(StopCause::Token(_)) => seen[1] += 1,
            FinishReason::Stop(StopCause::String(_)) => seen[2] += 1,
            FinishReason::Length => seen[3] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}
