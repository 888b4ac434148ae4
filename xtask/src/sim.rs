//! `cargo xtask sim`: the engine's simulator with as many seeds as wanted, or one with its trace.
//!
//! Neighbours: the simulator is the test target `sim` of `forerun-engine`, which reads its settings
//! from the environment; `shell.rs` runs it.

use anyhow::Result;

use crate::paths::Paths;
use crate::shell::{Shell, timed};

/// The one test of the target that takes seeds.
const TEST: &str = "every_request_of_a_random_workload";

pub(crate) fn run(paths: &Paths, count: Option<u64>, seed: Option<u64>) -> Result<()> {
    let mut cargo = Shell::cargo(&paths.root)
        .args(["test", "--release", "--package", "forerun-engine"])
        .args(["--test", "sim", "--", "--nocapture", TEST]);
    for (name, value) in settings(count, seed) {
        cargo = cargo.env(name, value.to_string());
    }
    timed("simulate", || cargo.run())
}

/// What the test target reads from its environment.
fn settings(count: Option<u64>, seed: Option<u64>) -> Vec<(&'static str, u64)> {
    match (count, seed) {
        (None, Some(seed)) => vec![("FORERUN_SIM_SEED", seed)],
        (count, seed) => {
            let count = count.map(|count| ("FORERUN_SIM_COUNT", count));
            let start = seed.map(|seed| ("FORERUN_SIM_START", seed));
            count.into_iter().chain(start).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_alone_is_replayed_and_a_count_runs_from_it() {
        assert_eq!(settings(None, Some(7)), [("FORERUN_SIM_SEED", 7)]);
        let from = [("FORERUN_SIM_COUNT", 20), ("FORERUN_SIM_START", 7)];
        assert_eq!(settings(Some(20), Some(7)), from);
        assert_eq!(settings(None, None), []);
    }
}
