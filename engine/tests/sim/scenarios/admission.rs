//! What is refused, and what waits for something outside.

use forerun_engine::{
    AdmissionError, BeamParams, EngineConfig, FailureCause, FinishReason, LogprobsKind,
    LogprobsParams, OutputParams, Promotion, Request, SchedulingConfig, Timestamp, TokenId,
    WaitReason,
};

use super::{EOS, VOCAB_SIZE, config, request};
use crate::fake_grammar::FakeGrammar;
use crate::job::Job;
use crate::world::World;

#[test]
fn a_full_queue_refuses_and_takes_again_when_it_has_emptied() {
    let config = EngineConfig {
        step_seqs_max: 1,
        scheduling: SchedulingConfig {
            waiting_max: 2,
            ..SchedulingConfig::default()
        },
        ..config(4, 40)
    };
    let mut world = World::new(config);
    world.add(request(1, 5, 3));
    world.step();
    world.add(request(2, 5, 3));
    world.add(request(3, 5, 3));
    let refused = world.try_add(request(4, 5, 3)).unwrap_err();
    let (num_waiting, waiting_max) = (2, 2);
    let full = AdmissionError::QueueFull {
        num_waiting,
        waiting_max,
    };
    assert_eq!(refused, full);
    world.run();
    world.add(request(4, 5, 3));
    world.run();
    world.assert_all_oracle();
}

/// A way to be wrong, and part of the message.
type Case = (fn(&mut Request), &'static str);

#[test]
fn odd_sampling_inputs_are_refused_by_field_and_their_neighbour_is_untouched() {
    let cases: [Case; 12] = [
        (
            |r| r.sampling.logit_bias = vec![(TokenId(99_999), 1.0)],
            "logit_bias[0] is token 99999",
        ),
        (
            |r| r.sampling.logit_bias = vec![(TokenId(1), f32::NAN)],
            "logit_bias is NaN",
        ),
        (
            |r| r.sampling.logit_bias = vec![(TokenId(1), 1.0), (TokenId(1), 2.0)],
            "names token 1 twice",
        ),
        (
            |r| {
                r.stop.stop_token_ids = vec![TokenId(400)];
                r.stop.min_tokens = 2;
            },
            "stop_token_ids[0] is token 400",
        ),
        (
            |r| r.stop.min_tokens = 7,
            "min_tokens is 7, max_tokens is 6",
        ),
        (|r| r.sampling.top_p = 0.0, "top_p is 0"),
        (|r| r.sampling.min_p = 1.5, "min_p is 1.5"),
        (
            |r| r.sampling.repetition_penalty = 0.0,
            "repetition_penalty is 0",
        ),
        (|r| r.output.num_samples = 0, "0 samples"),
        (|r| r.output.num_samples = 17, "runs 17 sequences at once"),
        (|r| r.output.best_of = Some(40), "runs 40 sequences at once"),
        (
            |r| r.output.prompt_logprobs = Some(41),
            "prompt_logprobs is 41, at most 40",
        ),
    ];
    let mut world = World::new(config(4, 30));
    let id = world.add(request(1, 9, 6));
    for (damage, message) in cases {
        world.step();
        let mut request = request(2, 5, 6);
        damage(&mut request);
        let refused = world.try_add(request).unwrap_err().to_string();
        assert!(refused.contains(message), "{refused:?} has no {message:?}");
    }
    world.run();
    world.assert_oracle(id);
    assert_eq!(world.jobs.len(), 1);
}

#[test]
fn top_k_off_small_and_beyond_the_vocabulary_share_a_batch() {
    let mut world = World::new(config(8, 100));
    for (salt, top_k) in [0, 1, 64, 9_999_999, u32::MAX].into_iter().enumerate() {
        for temperature in [0.0, 1.0] {
            let mut request = request(salt as u64, 9, 12);
            request.sampling.top_k = top_k;
            request.sampling.temperature = temperature;
            world.add(request);
        }
    }
    world.run();
    world.assert_all_oracle();
}

#[test]
fn every_option_at_once_gives_what_the_request_gives_alone() {
    let mut world = World::with_depth(config(4, 200), 2);
    for salt in 0..12 {
        let mut request = request(salt, 3 + salt as usize, 20);
        request.stop.ignore_eos = false;
        request.stop.min_tokens = 9;
        request.stop.stop_token_ids = vec![TokenId(3), EOS[0]];
        request.sampling.temperature = (salt % 3) as f32;
        request.sampling.repetition_penalty = 1.3;
        request.sampling.frequency_penalty = 0.4;
        request.sampling.presence_penalty = -0.2;
        request.sampling.logit_bias = vec![
            (TokenId(5), f32::NEG_INFINITY),
            (EOS[1], 9.0),
            (EOS[0], 9.0),
        ];
        request.output.logprobs = Some(LogprobsParams {
            num_top: 4,
            kind: [LogprobsKind::Raw, LogprobsKind::Processed][salt as usize % 2],
        });
        request.output.prompt_logprobs = Some(2);
        let id = world.add(request);
        world.run();
        assert!(
            world.num_tokens(id) >= 10,
            "end tokens are banned till then"
        );
    }
    world.assert_all_oracle();
}

#[test]
fn a_parked_request_is_no_work_until_what_it_waits_for_has_come() {
    let mut world = World::new(config(4, 40));
    let mut waits = request(1, 9, 5);
    waits.waits_for = Some(WaitReason::RemoteKv);
    let parked = world.add(waits);
    assert!(!world.engine.has_work());
    let other = world.add(request(2, 9, 5));
    world.step();
    assert!(!world.has_ended(parked) && world.num_tokens(parked) == 0);
    assert_eq!(world.engine.queue_lens().parked, 1);
    let wrong = world
        .engine
        .promote(parked, Promotion::InputComplete, Timestamp(1));
    assert!(matches!(wrong, Err(AdmissionError::NotParked { .. })));
    world.advance_parked(parked);
    let again = world
        .engine
        .promote(parked, Promotion::RemoteKv, Timestamp(1));
    assert!(matches!(again, Err(AdmissionError::NotParked { .. })));
    world.run();
    world.assert_oracle(parked);
    world.assert_oracle(other);
    // Too late for one that has ended: nothing happens.
    let late = Promotion::Failed(FailureCause::Outside("late".into()));
    assert_eq!(world.engine.promote(parked, late, Timestamp(1)), Ok(()));
}

#[test]
fn a_parked_request_whose_wait_fails_ends_with_the_reason() {
    let mut world = World::new(config(4, 40));
    let mut waits = request(1, 9, 5);
    waits.waits_for = Some(WaitReason::Grammar);
    waits.output.num_samples = 3;
    let parked = world.add(waits);
    world.fail_parked(parked);
    world.run();
    let cause = FailureCause::Outside("it did not come".into());
    for sample in &world.progress[&parked].samples {
        assert_eq!(sample.reason, Some(FinishReason::Error(cause.clone())));
    }
}

#[test]
fn a_prompt_that_comes_in_pieces_gives_what_the_whole_prompt_gives() {
    let mut world = World::new(config(4, 40));
    let mut job = Job::new(request(1, 30, 8));
    job.request.waits_for = Some(WaitReason::StreamingInput);
    job.request.sampling.repetition_penalty = 1.5;
    job.pieces = job.request.prompt[4..]
        .chunks(9)
        .map(<[_]>::to_vec)
        .collect();
    let id = world.try_add_job(job).unwrap();
    let too_long = vec![TokenId(1); 400];
    let refused = world.engine.append_prompt(id, &too_long).unwrap_err();
    assert!(matches!(refused, AdmissionError::DoesNotFit { .. }));
    let unknown = world.engine.append_prompt(id, &[TokenId(VOCAB_SIZE)]);
    assert!(matches!(
        unknown,
        Err(AdmissionError::TokenOutOfVocabulary { .. })
    ));
    while world.is_parked(id) {
        world.advance_parked(id);
        world.step();
    }
    let more = world.engine.append_prompt(id, &[TokenId(1)]);
    assert!(matches!(more, Err(AdmissionError::NotParked { .. })));
    world.run();
    world.assert_oracle(id);
    assert_eq!(world.progress[&id].usage.unwrap().prompt_tokens, 30);
}

#[test]
fn a_grammar_that_is_lost_in_a_step_that_fails_as_well_ends_its_request_once() {
    use crate::faults::Fault;
    use forerun_engine::{ExecutorError, FailureScope};
    // A state in which the grammar gives no mask at all.
    let lost = (0..400).map(|seed| FakeGrammar::new(seed, 40, &EOS, true));
    let lost = lost.filter(|grammar| {
        use forerun_engine::Grammar;
        grammar.clone().fill_mask(&mut [0; 2]).is_err()
    });
    let lost = lost.into_iter().next().unwrap();
    for fails in [false, true] {
        let mut world = World::new(config(4, 40));
        let mut job = Job::new(request(1, 6, 8));
        job.request.waits_for = Some(WaitReason::Grammar);
        job.request.output = OutputParams {
            num_samples: 2,
            beam: Some(BeamParams {
                width: 2,
                length_penalty: 1.0,
                early_stopping: false,
            }),
            ..OutputParams::default()
        };
        job.grammar = Some(lost.clone());
        let id = world.try_add_job(job).unwrap();
        let error = ExecutorError {
            scope: FailureScope::All,
            message: "planted".into(),
        };
        let fault = fails.then_some(Fault::Submit(error));
        world.engine.executor_mut().faults = [fault].into();
        world.advance_parked(id);
        world.run();
        assert!(matches!(world.reason(id), FinishReason::Error(_)));
    }
}
