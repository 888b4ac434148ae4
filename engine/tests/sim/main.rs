//! The engine against a simulated device: one seed decides a whole workload, and everything that
//! comes out is compared with what each request gives alone.
//!
//! `workload.rs` makes requests and limits from a seed, `simulate.rs` runs them, `fake_executor.rs`
//! computes tokens through the block tables it is given from a KV pool of its own, so that a wrong
//! slot gives a wrong token; `oracle.rs` and `beam_oracle.rs` answer each request without engine,
//! blocks or batches; `checkers.rs` and `world.rs` compare, after every step and at the end;
//! `faults.rs` lists what goes wrong and the bugs that are planted to prove that they are found.
//! The scenarios are situations that went wrong in other engines.
//!
//! `FORERUN_SIM_SEED=N` replays one seed with a trace; `FORERUN_SIM_COUNT` seeds (300) run from
//! `FORERUN_SIM_START` (0).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::print_stdout,
    reason = "a seed is replayed by its printed trace"
)]

mod batch_checks;
mod beam_oracle;
mod checkers;
mod fake_executor;
mod fake_grammar;
mod fake_model;
mod faults;
mod job;
mod kv_pool;
mod oracle;
mod regressions;
mod scenarios;
mod scripted_drafter;
mod seeds;
mod simulate;
mod trace;
mod workload;
mod world;
