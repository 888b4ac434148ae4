//! Requests that are refused, and what they leave behind: nothing.

use forerun_engine::{AdmissionError, EngineConfig, FinishReason, Request, TokenId};

use super::{config, request};
use crate::world::World;

#[test]
fn a_prompt_may_be_one_shorter_than_the_model_length_whatever_the_chunk() {
    for step_tokens_max in [16, 23, 512] {
        let config = EngineConfig {
            max_seq_len: 61,
            step_tokens_max,
            ..config(8, 40)
        };
        let mut world = World::new(config);
        let longest = world.add(request(1, 60, 50));
        for num_prompt in [61, 62] {
            let refused = world.try_add(request(2, num_prompt, 50)).unwrap_err();
            assert_eq!(
                refused,
                AdmissionError::PromptTooLong {
                    prompt_tokens: num_prompt,
                    prompt_tokens_max: 60,
                    max_seq_len: 61,
                }
            );
        }
        let normal = world.add(request(3, 7, 5));
        world.run();
        assert_eq!(world.num_tokens(longest), 1);
        assert_eq!(world.reason(longest), &FinishReason::Length);
        assert_eq!(world.num_tokens(normal), 5);
        world.assert_all_oracle();
    }
}

#[test]
fn a_model_length_above_the_pool_is_fitted_and_the_refusal_names_the_fitted_length() {
    let config = EngineConfig {
        max_seq_len: 4096,
        ..config(16, 20)
    };
    let mut world = World::new(config);
    assert_eq!(world.engine.seq_len_max(), 320);
    let refused = world.try_add(request(1, 400, 5)).unwrap_err();
    assert!(refused.to_string().contains("320"), "{refused}");
    let normal = world.add(request(2, 11, 5));
    world.run();
    world.assert_oracle(normal);
}

#[test]
fn the_fitted_length_ends_a_sequence_that_fills_the_whole_pool() {
    let mut world = World::new(config(4, 5));
    let id = world.add(request(1, 3, 300));
    world.run();
    assert_eq!(world.num_tokens(id), 17);
    world.assert_oracle(id);
}

#[test]
fn a_prompt_larger_than_the_pool_is_refused_with_the_numbers_and_blocks_nobody() {
    let mut world = World::new(config(16, 8));
    let refused = world.try_add(request(1, 200, 5)).unwrap_err();
    assert!(
        refused.to_string().contains("needs 13 blocks, have 8"),
        "{refused}"
    );
    let normal = world.add(request(2, 10, 5));
    world.run();
    world.assert_oracle(normal);
    assert_eq!(world.progress.len(), 1);
}

#[test]
fn malformed_requests_are_refused_by_field_and_their_neighbour_is_untouched() {
    let good = request(1, 9, 6);
    let with = |change: fn(&mut Request)| {
        let mut request = request(2, 5, 6);
        change(&mut request);
        request
    };
    let cases = [
        (with(|r| r.prompt.clear()), "the prompt is empty"),
        (with(|r| r.prompt[3] = TokenId(40)), "prompt[3] is token 40"),
        (
            with(|r| r.stop.stop_token_ids = vec![TokenId(1), TokenId(400)]),
            "stop_token_ids[1]",
        ),
        (
            with(|r| r.sampling.temperature = f32::NAN),
            "temperature is NaN",
        ),
        (
            with(|r| r.sampling.temperature = -0.5),
            "temperature is -0.5",
        ),
        (
            with(|r| r.sampling.temperature = f32::INFINITY),
            "temperature is inf",
        ),
        (with(|r| r.stop.max_tokens = Some(0)), "max_tokens is 0"),
        (
            with(|r| r.stop.stop_strings = vec![b"x".to_vec(), vec![]]),
            "stop_strings[1] is empty",
        ),
    ];
    let mut world = World::new(config(4, 30));
    let id = world.add(good);
    for (request, message) in cases {
        world.step();
        let refused = world.try_add(request).unwrap_err().to_string();
        assert!(
            refused.contains(message),
            "{refused:?} should contain {message:?}"
        );
    }
    world.run();
    world.assert_oracle(id);
}
