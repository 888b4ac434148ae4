//! Speculation: drafts, who makes them, how they are verified, and when they pay.
//!
//! ```text
//! config.rs      what the engine is configured with
//! params.rs      what a request asks for
//! report.rs      what it did
//! tree.rs        a draft: a token tree
//! drafter.rs     what makes drafts on the host
//! ngram.rs, suffix.rs, automaton.rs  those that come with the engine
//! device_drafter.rs, draft_cache.rs, draft_pass.rs  drafts of models
//! controller/    when drafts pay
//! speculator.rs, propose.rs  who drafts for which sequence in a step
//! verifier/      which drafts are kept, by definition
//! ```
//!
//! Neighbours: `engine.rs` asks for drafts before it plans a step; `scheduler.rs` clips them to what
//! fits; `step_batch/` lays them out; `commit.rs` walks the verdicts along them.

mod automaton;
mod config;
mod controller;
mod device_drafter;
mod draft_cache;
mod draft_pass;
mod drafter;
mod ngram;
mod params;
mod propose;
mod report;
mod speculator;
mod suffix;
mod tree;
mod verifier;

pub use config::{DraftModelConfig, SpeculationConfig};
pub(crate) use controller::{DrafterId, RequestEstimates, Shadow};
pub use drafter::{DraftContext, Drafter};
pub use ngram::{NgramDrafter, Occurrence};
pub use params::{SpecMethod, SpeculationParams, Verification};
pub use report::SpeculationReport;
pub(crate) use speculator::Speculator;
pub use suffix::SuffixDrafter;
pub use tree::{DraftDraw, DraftNode, DraftTree};
pub use verifier::{
    Chance, Drafted, Verdicts, verify_block, verify_greedy, verify_rejection, verify_shared_noise,
};
