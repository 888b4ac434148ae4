//! Speculation: drafts, who makes them, how they are verified, and when they pay.
//!
//! ```text
//! config.rs      what the engine is configured with
//! params.rs      what a request asks for
//! report.rs      what it did
//! tree.rs        a draft: a token tree
//! drafter.rs     what makes drafts on the host
//! verifier/      which drafts are kept, by definition
//! ```
//!
//! Neighbours: `engine.rs` asks for drafts before it plans a step; `scheduler.rs` clips them to what
//! fits; `step_batch/` lays them out; `commit.rs` walks the verdicts along them.

mod config;
mod drafter;
mod params;
mod report;
mod tree;
mod verifier;

pub use config::{DraftModelConfig, SpeculationConfig};
pub use drafter::{DraftContext, Drafter};
pub use params::{SpecMethod, SpeculationParams, Verification};
pub use report::SpeculationReport;
pub use tree::{DraftDraw, DraftNode, DraftTree};
pub use verifier::{
    Chance, Drafted, Verdicts, verify_block, verify_greedy, verify_rejection, verify_shared_noise,
};
