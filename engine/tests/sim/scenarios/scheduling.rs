//! Who runs when.

use forerun_engine::{EngineConfig, RequestId, SchedulingConfig, SchedulingPolicy};

use super::{config, request};
use crate::world::World;

fn with_policy(policy: SchedulingPolicy, wait_steps_max: u64) -> EngineConfig {
    EngineConfig {
        step_seqs_max: 1,
        scheduling: SchedulingConfig {
            policy,
            wait_steps_max,
            ..SchedulingConfig::default()
        },
        ..config(4, 40)
    }
}

/// Requests in the order in which they end.
fn ends(world: &mut World) -> Vec<RequestId> {
    let mut order = Vec::new();
    while world.engine.has_work() {
        world.step();
        let ended = |id: &&RequestId| world.has_ended(**id) && !order.contains(*id);
        let ended: Vec<_> = world.jobs.keys().filter(ended).copied().collect();
        order.extend(ended);
    }
    order
}

#[test]
fn the_smallest_priority_is_served_first_and_equals_in_order_of_arrival() {
    for (policy, expected) in [
        (SchedulingPolicy::Fcfs, [0, 1, 2, 3, 4]),
        (SchedulingPolicy::Priority, [2, 4, 1, 3, 0]),
    ] {
        let mut world = World::new(with_policy(policy, 1000));
        for (salt, priority) in [7, 0, -3, 0, -3].into_iter().enumerate() {
            let mut request = request(salt as u64, 5, 3);
            request.priority = priority;
            world.add(request);
        }
        assert_eq!(ends(&mut world), expected.map(RequestId));
        world.assert_all_oracle();
    }
}

#[test]
fn whoever_has_waited_too_long_is_not_overtaken_any_more() {
    let mut world = World::new(with_policy(SchedulingPolicy::Priority, 20));
    let mut last = request(0, 5, 3);
    last.priority = 100;
    let last = world.add(last);
    let mut num_before = 0;
    for salt in 1..100 {
        let mut urgent = request(salt, 5, 3);
        urgent.priority = 0;
        world.add(urgent);
        for _ in 0..3 {
            world.step();
        }
        if world.has_ended(last) {
            break;
        }
        num_before += 1;
    }
    assert!((5..12).contains(&num_before), "{num_before} went first");
    world.run();
    world.assert_all_oracle();
}

#[test]
fn a_long_prompt_never_holds_up_the_next_token_of_others() {
    let config = EngineConfig {
        step_tokens_max: 8,
        step_seqs_max: 4,
        ..config(4, 100)
    };
    let mut world = World::new(config);
    let decoding = world.add(request(1, 4, 30));
    world.step();
    let long = world.add(request(2, 100, 3));
    while world.num_tokens(long) == 0 && !world.has_ended(decoding) {
        let before = world.num_tokens(decoding);
        world.step();
        assert_eq!(world.num_tokens(decoding), before + 1);
        assert!(world.engine.last_plan().num_tokens <= 8);
    }
    world.run();
    world.assert_all_oracle();
}

#[test]
fn a_share_of_the_step_lets_several_prompts_advance_at_once() {
    let config = EngineConfig {
        step_tokens_max: 32,
        scheduling: SchedulingConfig {
            prefill_tokens_max: Some(8),
            ..SchedulingConfig::default()
        },
        ..config(4, 100)
    };
    let mut world = World::new(config);
    let ids: Vec<_> = (0..4).map(|salt| world.add(request(salt, 40, 3))).collect();
    world.step();
    let shares = &world.engine.last_plan().scheduled;
    assert!(shares.len() == 4 && shares.iter().all(|s| s.num_scheduled == 8));
    world.run();
    assert!(ids.iter().all(|&id| world.has_ended(id)));
    world.assert_all_oracle();
}

#[test]
fn a_prefill_gets_what_decodes_leave_of_the_budget() {
    let config = EngineConfig {
        step_tokens_max: 8,
        step_seqs_max: 8,
        ..config(4, 200)
    };
    let mut world = World::new(config);
    for salt in 0..6 {
        world.add(request(salt, 1, 40));
    }
    world.step();
    world.add(request(9, 50, 4));
    world.step();
    let shares = &world.engine.last_plan().scheduled;
    assert_eq!(shares.len(), 7);
    assert_eq!(shares[6].num_scheduled, 2);
    world.run();
    world.assert_all_oracle();
}

#[test]
fn under_priority_the_least_urgent_gives_up_its_blocks() {
    let mut config = with_policy(SchedulingPolicy::Priority, 1000);
    config.step_seqs_max = 4;
    config.groups[0].num_blocks = 9;
    let mut world = World::new(config);
    let mut relaxed = request(1, 8, 20);
    relaxed.priority = 5;
    let relaxed = world.add(relaxed);
    world.step();
    let urgent = world.add(request(2, 8, 20));
    while !world.has_ended(urgent) {
        world.step();
    }
    assert!(world.num_preemptions > 0);
    assert!(!world.has_ended(relaxed));
    world.run();
    world.assert_all_oracle();
}
