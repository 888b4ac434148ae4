//! Seeds that failed once. A seed's workload changes with the generator, so each line also says what
//! was wrong; the scenarios hold what must not come back.
//!
//! Neighbours: `main.rs` runs them before any other seed.

/// Seeds and what they found.
pub(crate) const REGRESSIONS: [(u64, &str); 2] = [
    (
        1_004_962,
        "room for a sequence with windows was counted without the blocks of its cache hit",
    ),
    (
        1_013_886,
        "a beam without candidates ended its request without telling any sample",
    ),
];
