//! Speculation as users see it: what they ask for, and what it did.
//!
//! ```text
//! settings.rs  flags and --speculative-config, as one
//! report.rs    the "speculation" object of answers
//! shown.rs     drafts in colours, for --show-drafts
//! ```
//!
//! Neighbours: `args/speculation.rs` has the flags; `openai/speculation.rs` what a request may say;
//! the engine does the rest.

mod report;
mod settings;
mod shown;
#[cfg(test)]
mod tests;

pub(crate) use report::SpeculationBody;
pub(crate) use settings::{METHODS, Settings, VERIFICATIONS, method_of, verification_of};
pub(crate) use shown::DraftView;
