//! Several samples of one prompt.

use forerun_engine::{
    EngineConfig, ExecutorError, FailureScope, FinishReason, OutputParams, RequestId,
};

use super::{config, request, sampled};
use crate::faults::Fault;
use crate::world::World;

#[test]
fn sample_i_equals_the_only_sample_of_a_request_with_seed_plus_i() {
    for depth in [1, 2] {
        let mut world = World::with_depth(config(4, 200), depth);
        let group = world.add(sampled(40, 13, 20, 4));
        let mut singles = Vec::new();
        for i in 0..4 {
            let mut single = sampled(40, 13, 20, 1);
            single.sampling.seed += i;
            singles.push(world.add(single));
        }
        world.run();
        for (place, single) in singles.iter().enumerate() {
            let single = &world.progress[single].samples[0];
            assert_eq!(&world.progress[&group].samples[place], single);
        }
        let samples = &world.progress[&group].samples;
        assert!(samples[0].tokens != samples[1].tokens);
        world.assert_all_oracle();
    }
}

#[test]
fn samples_share_the_blocks_of_their_prompt() {
    // 34 tokens of prompt: two whole blocks of 16 are shared, the third is copied on write.
    let mut world = World::new(config(16, 100));
    world.add(sampled(1, 34, 10, 5));
    world.step();
    assert_eq!(world.engine.blocks().num_referenced(0), 3);
    world.step();
    assert_eq!(world.engine.blocks().num_referenced(0), 2 + 5);
    assert_eq!(
        world.engine.executor().num_copies,
        4,
        "the last writes in place"
    );
    world.run();
    assert_eq!(world.engine.executor().num_copies, 4);
    world.assert_all_oracle();
}

#[test]
fn the_best_of_several_samples_come_at_the_end_best_first() {
    for num_samples in 1..4 {
        let mut world = World::new(config(4, 200));
        let mut request = sampled(3, 9, 15, num_samples);
        request.stop.ignore_eos = false;
        request.output.best_of = Some(6);
        let id = world.add(request);
        let mut num_before = 0;
        while !world.has_ended(id) {
            num_before += world.num_tokens(id);
            world.step();
        }
        assert_eq!(num_before, 0, "nothing is told before all have ended");
        world.assert_oracle(id);
    }
}

#[test]
fn samples_that_are_preempted_come_back_and_repeat_nothing() {
    let mut world = World::new(config(4, 12));
    world.add(sampled(1, 9, 20, 3));
    world.add(sampled(2, 9, 20, 2));
    world.run();
    assert!(world.num_preemptions > 0);
    world.assert_all_oracle();
}

#[test]
fn samples_may_end_with_their_first_token() {
    let mut world = World::new(config(4, 40));
    for max_tokens in [1, 2] {
        world.add(sampled(max_tokens.into(), 9, max_tokens, 4));
    }
    world.run();
    world.assert_all_oracle();
}

#[test]
fn a_request_waits_until_there_is_a_place_for_each_of_its_samples() {
    let config = EngineConfig {
        step_seqs_max: 4,
        ..config(4, 100)
    };
    let mut world = World::new(config);
    world.add(request(1, 5, 12));
    world.add(request(2, 5, 6));
    let wide = world.add(sampled(3, 5, 6, 3));
    let after = world.add(request(4, 5, 6));
    for _ in 0..5 {
        world.step();
        assert_eq!(world.num_tokens(wide) + world.num_tokens(after), 0);
    }
    world.run();
    world.assert_all_oracle();
}

#[test]
fn an_abort_ends_every_sample_once_whenever_it_comes() {
    for num_samples in [1, 3] {
        for best_of in [None, Some(5)] {
            for num_steps in 0..8 {
                let mut world = World::with_depth(config(4, 60), 2);
                let mut request = sampled(1, 9, 5, num_samples);
                request.output = OutputParams {
                    best_of,
                    ..request.output
                };
                let id = world.add(request);
                for _ in 0..num_steps {
                    world.step();
                }
                let had_ended = world.has_ended(id);
                world.abort(id);
                world.abort(RequestId(17));
                world.run();
                if had_ended {
                    world.assert_oracle(id);
                    continue;
                }
                world.assert_cut_short(id);
                let aborted =
                    |s: &crate::job::SampleOutput| s.reason == Some(FinishReason::Aborted);
                assert!(world.progress[&id].samples.iter().all(aborted));
            }
        }
    }
}

#[test]
fn a_copy_that_a_failed_step_may_not_have_made_is_not_trusted() {
    for failing_step in 0..6 {
        // The device makes the copies of a failed step or not, in turns.
        for num_before in 0..2 {
            let mut world = World::new(config(4, 60));
            let victim = world.add(request(7, 5, 30));
            for _ in 0..num_before {
                world.step();
            }
            let group = world.add(sampled(1, 10, 12, 3));
            let error = ExecutorError {
                scope: FailureScope::Requests(vec![victim]),
                message: "planted".into(),
            };
            let faults = &mut world.engine.executor_mut().faults;
            faults.extend((0..failing_step).map(|_| None));
            faults.push_back(Some(Fault::Collect(error)));
            world.run();
            world.assert_oracle(group);
            let again = world.add(sampled(1, 10, 12, 3));
            world.run();
            world.assert_oracle(again);
        }
    }
}
