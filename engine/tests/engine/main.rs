//! The engine as its callers see it, over a fake executor that keeps a KV pool of its own.
//!
//! `fake_executor.rs` reads every token through the block tables it is given, so that a wrong slot
//! gives a wrong token; `oracle.rs` says what a request gives when it runs alone, without blocks,
//! batches or steps.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod allocations;
mod fake_executor;
mod fake_model;
mod harness;
mod limits;
mod oracle;
mod random;
mod scenarios;
