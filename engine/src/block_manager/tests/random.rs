//! Random operations on a simulated KV cache: every count stays right, and every position that can
//! be seen holds what the sequence's own tokens put there.

use proptest::prelude::*;

use super::simulated::Simulation;
use super::*;

const NUM_SEQUENCES: usize = 5;

#[derive(Clone, Debug)]
enum Op {
    Start {
        place: usize,
        tenant: usize,
        tokens: Vec<TokenId>,
    },
    Grow {
        place: usize,
        tokens: Vec<TokenId>,
        are_final: bool,
    },
    RollBack(usize),
    Fork(usize, usize),
    Step,
    Publish(usize),
    ReleaseOutsideWindows(usize),
    Preempt {
        place: usize,
        publishes: bool,
    },
    End {
        place: usize,
        publishes: bool,
    },
    Pin(usize),
    Unpin,
    Reset,
}

/// Few different tokens, so that sequences often begin alike.
fn some_tokens(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<TokenId>> {
    let token = prop_oneof![9 => Just(1_u32), 1 => 0..3_u32];
    prop::collection::vec(token, len).prop_map(tokens)
}

fn op() -> impl Strategy<Value = Op> {
    let place = || 0..NUM_SEQUENCES;
    prop_oneof![
        6 => (place(), 0..2_usize, some_tokens(1..40))
            .prop_map(|(place, tenant, tokens)| Op::Start { place, tenant, tokens }),
        6 => (place(), some_tokens(1..9), prop::bool::weighted(0.7))
            .prop_map(|(place, tokens, are_final)| Op::Grow { place, tokens, are_final }),
        1 => place().prop_map(Op::RollBack),
        2 => (place(), place()).prop_map(|(from, to)| Op::Fork(from, to)),
        9 => Just(Op::Step),
        4 => place().prop_map(Op::Publish),
        2 => place().prop_map(Op::ReleaseOutsideWindows),
        5 => (place(), prop::bool::weighted(0.8))
            .prop_map(|(place, publishes)| Op::End { place, publishes }),
        1 => (place(), prop::bool::weighted(0.8))
            .prop_map(|(place, publishes)| Op::Preempt { place, publishes }),
        1 => place().prop_map(Op::Pin),
        1 => Just(Op::Unpin),
        1 => prop::bool::weighted(0.2).prop_map(|resets| if resets { Op::Reset } else { Op::Unpin }),
    ]
}

fn run(simulation: &mut Simulation, op: Op) {
    match op {
        Op::Start {
            place,
            tenant,
            tokens,
        } => simulation.start(place, tenant, &tokens),
        Op::Grow {
            place,
            tokens,
            are_final,
        } => simulation.grow(place, &tokens, are_final),
        Op::RollBack(place) => simulation.roll_back(place),
        Op::Fork(from, to) => simulation.fork(from, to),
        Op::Step => simulation.step(),
        Op::Publish(place) => simulation.publish(place),
        Op::ReleaseOutsideWindows(place) => simulation.release_outside_windows(place),
        Op::Preempt { place, publishes } => simulation.preempt(place, publishes),
        Op::End { place, publishes } => simulation.end(place, publishes),
        Op::Pin(place) => simulation.pin(place),
        Op::Unpin => simulation.unpin(),
        Op::Reset => simulation.reset(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn random_operations_keep_integrity_and_every_position_its_contents(
        shift in 0..5_u32,
        windows in prop::collection::vec(prop::option::of(1..30_usize), 1..4),
        num_blocks in 6..40_usize,
        by_blocks in any::<bool>(),
        ops in prop::collection::vec(op(), 0..80),
    ) {
        let groups: Vec<_> = windows.into_iter().map(|window| (num_blocks, window)).collect();
        let mut config = config(1 << shift, &groups);
        if by_blocks {
            config.prefix_cache.granularity = PrefixGranularity::Block;
        }
        let mut simulation = Simulation::new(&config, NUM_SEQUENCES);
        for op in ops {
            run(&mut simulation, op);
            simulation.check();
        }
        simulation.step();
        for place in 0..NUM_SEQUENCES {
            simulation.end(place, true);
        }
        simulation.reset();
        prop_assert_eq!(simulation.blocks.num_referenced(0), 0);
    }
}

/// The test above is worth something only if its sequences do find each other.
#[test]
fn random_operations_reach_hits_copies_and_evictions() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let ops = prop::collection::vec(op(), 3000)
        .new_tree(&mut runner)
        .unwrap()
        .current();
    let mut simulation = Simulation::new(&config(4, &[(40, None), (40, Some(9))]), NUM_SEQUENCES);
    for op in ops {
        run(&mut simulation, op);
    }
    let num_evicted = simulation.blocks.groups[0].num_lost;
    let reached = (simulation.num_hit, simulation.num_copied, num_evicted);
    assert!(
        reached.0 > 1000 && reached.1 > 100 && reached.2 > 100,
        "(tokens hit, blocks copied, blocks lost): {reached:?}"
    );
}
