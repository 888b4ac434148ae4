//! Seeds by number, planted bugs, determinism.
//!
//! Neighbours: `simulate.rs` runs a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::faults::{CANARIES, Canary};
use crate::regressions::REGRESSIONS;
use crate::simulate::{Outcome, simulate};

/// Seeds that run unless the environment says otherwise.
const NUM_SEEDS: u64 = 300;

/// A planted bug must be found within so many seeds.
const CANARY_SEEDS: u64 = 100;

#[expect(
    clippy::disallowed_methods,
    reason = "a test's settings come from its environment; the engine has none"
)]
fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {value:?}, must be a number")),
    )
}

fn run(seed: u64, canary: Option<Canary>) -> Option<Outcome> {
    catch_unwind(AssertUnwindSafe(|| simulate(seed, canary, false))).ok()
}

#[test]
fn every_request_of_a_random_workload_ends_once_and_as_it_does_alone() {
    if let Some(seed) = setting("FORERUN_SIM_SEED") {
        let outcome = simulate(seed, None, true);
        println!("{outcome:?}");
        return;
    }
    let start = setting("FORERUN_SIM_START").unwrap_or(0);
    let count = setting("FORERUN_SIM_COUNT").unwrap_or(NUM_SEEDS);
    let seeds = REGRESSIONS.map(|(seed, _)| seed).into_iter();
    let mut failed = Vec::new();
    let mut total = Outcome::default();
    let mut num_overlapping = 0;
    for seed in seeds.chain(start..start + count) {
        let Some(outcome) = run(seed, None) else {
            println!("seed {seed} failed, replay it: cargo xtask sim --seed {seed}");
            failed.push(seed);
            continue;
        };
        total.num_steps += outcome.num_steps;
        total.num_requests += outcome.num_requests;
        total.num_preemptions += outcome.num_preemptions;
        total.num_copies += outcome.num_copies;
        total.num_cached += outcome.num_cached;
        total.num_accepted += outcome.num_accepted;
        num_overlapping += u64::from(outcome.has_overlap);
    }
    println!("{count} seeds from {start}: {total:?}, {num_overlapping} with steps in flight");
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
    // A workload in which these do not happen shows nothing about them.
    let count = usize::try_from(count).expect("seeds fit");
    assert!(total.num_preemptions >= count / 4, "pools are too ample");
    assert!(total.num_copies >= count / 4, "blocks are not shared");
    assert!(total.num_cached >= count, "prefixes do not come again");
    assert!(total.num_accepted >= 5 * count, "drafts are not accepted");
    assert!(num_overlapping as usize >= count / 4);
}

#[test]
fn a_seed_gives_the_same_steps_and_events_in_a_second_run() {
    for seed in 0..60 {
        let [first, second] = [(); 2].map(|()| simulate(seed, None, false));
        assert_eq!(first, second, "seed {seed}");
    }
}

/// A simulator that cannot fail shows nothing: each of these is a bug that it must see.
#[test]
fn planted_bugs_are_caught() {
    for (name, canary) in CANARIES {
        let caught = (0..CANARY_SEEDS).find(|&seed| run(seed, Some(canary)).is_none());
        let seed = caught.unwrap_or_else(|| panic!("{name} was not caught"));
        println!("{name}: caught by seed {seed}");
    }
}
