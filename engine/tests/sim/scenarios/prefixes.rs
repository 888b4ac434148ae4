//! Reuse of what was computed before.

use forerun_engine::{
    CacheKeys, EngineConfig, KvGroupConfig, PinError, PrefixCacheConfig, PrefixGranularity,
    Request, Timestamp, TokenId,
};

use super::{NAN_TOKEN, config, request};
use crate::world::World;

fn with_cache(
    block_size: usize,
    num_blocks: usize,
    granularity: PrefixGranularity,
) -> EngineConfig {
    EngineConfig {
        prefix_cache: PrefixCacheConfig {
            granularity,
            pinned_blocks_per_tenant_max: 100,
            ..PrefixCacheConfig::default()
        },
        ..config(block_size, num_blocks)
    }
}

/// Runs `request` to its end and returns how many of its tokens were cached.
fn cached(world: &mut World, request: Request) -> usize {
    let id = world.add(request);
    world.run();
    world.assert_oracle(id);
    world.num_cached(id)
}

#[test]
fn a_prompt_of_whole_blocks_leaves_a_token_to_compute() {
    for step_tokens_max in [16, 512] {
        for (num_prompt, by_block, by_token) in [(4, 0, 3), (8, 4, 7), (9, 8, 8)] {
            let expected = [
                (PrefixGranularity::Block, by_block),
                (PrefixGranularity::Token, by_token),
            ];
            for (granularity, expected) in expected {
                let config = EngineConfig {
                    step_tokens_max,
                    ..with_cache(4, 40, granularity)
                };
                let mut world = World::new(config);
                assert_eq!(cached(&mut world, request(1, num_prompt, 5)), 0);
                assert_eq!(cached(&mut world, request(1, num_prompt, 5)), expected);
            }
        }
    }
}

#[test]
fn the_same_prompts_again_and_in_turns_give_the_same_tokens() {
    for enabled in [true, false] {
        let mut config = config(4, 40);
        config.prefix_cache.enabled = enabled;
        let mut world = World::new(config);
        for salt in [1, 1, 1, 2, 1, 2] {
            let num_cached = cached(&mut world, request(salt, 11, 9));
            assert!(enabled || num_cached == 0);
        }
    }
}

#[test]
fn a_long_conversation_then_its_own_beginning() {
    let mut world = World::new(with_cache(4, 40, PrefixGranularity::Block));
    let long = request(1, 49, 3);
    let mut short = long.clone();
    short.prompt.truncate(13);
    cached(&mut world, long);
    assert_eq!(cached(&mut world, short), 12);
}

#[test]
fn the_next_turn_reuses_what_was_generated() {
    let mut world = World::new(config(16, 40));
    let first = request(1, 20, 30);
    let id = world.add(first.clone());
    world.run();
    let mut turn = first;
    turn.prompt.extend(&world.progress[&id].samples[0].tokens);
    turn.prompt.extend([1, 2, 3].map(TokenId));
    // All but the last token, which was never run.
    assert_eq!(cached(&mut world, turn), 49);
}

#[test]
fn prompt_scores_are_all_there_also_when_the_prompt_is_cached() {
    for step_tokens_max in [16, 512] {
        let config = EngineConfig {
            step_tokens_max,
            ..config(16, 40)
        };
        let mut world = World::new(config);
        for num_prompt in [33, 33, 1, 2] {
            let mut request = request(1, num_prompt, 4);
            request.output.prompt_logprobs = Some(1);
            let id = world.add(request);
            world.run();
            let told = &world.progress[&id].prompt_scores;
            assert_eq!(told.len(), num_prompt);
            assert!(told[0].1.is_none() && told[1..].iter().all(|score| score.1.is_some()));
            assert_eq!(world.num_cached(id), 0);
        }
        world.assert_all_oracle();
    }
}

#[test]
fn neither_tenants_nor_adapters_share_a_prefix_or_imitate_each_other() {
    let mut world = World::new(config(4, 80));
    let name = || Some("x".to_string());
    let keys = [
        CacheKeys::default(),
        CacheKeys {
            tenant: name(),
            ..CacheKeys::default()
        },
        CacheKeys {
            adapter: name(),
            ..CacheKeys::default()
        },
        CacheKeys {
            extra: vec![("x".into(), b"x".to_vec())],
            ..CacheKeys::default()
        },
    ];
    for round in 0..2 {
        for cache_keys in &keys {
            let mut request = request(1, 17, 4);
            request.cache_keys = cache_keys.clone();
            let num_cached = cached(&mut world, request);
            assert_eq!(num_cached, if round == 0 { 0 } else { 16 });
        }
    }
}

#[test]
fn a_prefix_in_use_survives_whoever_fills_the_pool() {
    let mut world = World::new(config(4, 8));
    cached(&mut world, request(1, 12, 2));
    let first = world.add(request(1, 12, 18));
    world.step();
    let other = world.add(request(2, 20, 10));
    world.run();
    assert!(world.num_cached(first) >= 11);
    world.assert_oracle(first);
    world.assert_oracle(other);
}

#[test]
fn logits_that_are_not_finite_publish_nothing() {
    let mut world = World::new(with_cache(4, 40, PrefixGranularity::Token));
    let mut sick = request(1, 4, 5);
    sick.prompt.push(TokenId(NAN_TOKEN));
    let id = world.add(sick.clone());
    world.run();
    world.assert_oracle(id);
    let id = world.add(sick);
    world.run();
    assert_eq!(world.num_cached(id), 0, "nothing of a sick request is kept");
}

#[test]
fn a_pinned_prefix_survives_a_full_pool_and_expires() {
    let mut world = World::new(with_cache(4, 12, PrefixGranularity::Block));
    let keys = CacheKeys::default();
    let kept = request(1, 17, 2);
    let missing = world.engine.pin_prefix(&keys, &kept.prompt, None);
    assert_eq!(missing, Err(PinError::NotCached { num_tokens: 17 }));
    cached(&mut world, kept.clone());
    let expires_at = Some(Timestamp(world.now + 100_000));
    let pin = world.engine.pin_prefix(&keys, &kept.prompt, expires_at);
    assert_eq!(pin.unwrap().num_tokens, 16);
    for salt in 2..8 {
        let id = world.add(request(salt, 17, 12));
        while world.engine.has_work() {
            world.step();
        }
        world.assert_oracle(id);
    }
    assert_eq!(world.engine.blocks().num_referenced(0), 4);
    let id = world.add(kept);
    while world.engine.has_work() {
        world.step();
    }
    assert_eq!(world.num_cached(id), 16);
    world.now += 100_000;
    world.step();
    assert_eq!(world.engine.blocks().num_referenced(0), 0);
}

#[test]
fn a_pin_is_broken_for_a_request_that_could_not_run_otherwise() {
    for pins_all in [false, true] {
        let mut world = World::new(with_cache(4, 8, PrefixGranularity::Block));
        let kept = request(1, 17, 8);
        cached(&mut world, kept.clone());
        let keys = CacheKeys::default();
        world.engine.pin_prefix(&keys, &kept.prompt, None).unwrap();
        // It fits beside the pin at first and then does not, or not at all.
        let num_prompt = if pins_all { 30 } else { 9 };
        let id = world.add(request(2, num_prompt, 22));
        world.run();
        world.assert_oracle(id);
    }
}

#[test]
fn a_sequence_that_needs_every_block_is_not_kept_waiting_by_a_block_to_copy_from() {
    let mut world = World::new(with_cache(4, 6, PrefixGranularity::Token));
    cached(&mut world, request(1, 10, 2));
    let mut longest = request(1, 10, 12);
    longest.prompt.truncate(6);
    longest.prompt.extend((0..17).map(TokenId));
    cached(&mut world, longest);
}

#[test]
fn a_window_group_reuses_a_shared_beginning_whatever_the_chunk() {
    let windowed = KvGroupConfig {
        num_blocks: 60,
        window: Some(6),
    };
    for step_tokens_max in [16, 512] {
        let config = EngineConfig {
            groups: vec![
                KvGroupConfig {
                    num_blocks: 60,
                    window: None,
                },
                windowed.clone(),
            ],
            step_tokens_max,
            ..with_cache(4, 60, PrefixGranularity::Block)
        };
        let mut world = World::new(config);
        let first = request(1, 40, 3);
        let mut second = request(2, 40, 3);
        second.prompt[..21].copy_from_slice(&first.prompt[..21]);
        cached(&mut world, first);
        assert_eq!(cached(&mut world, second), 20);
    }
}
