//! `forerun batch`: a file of requests in, a file of answers out.
//!
//! ```text
//! command.rs    opens files and model
//! lines.rs      the input, line by line, no further than the engine's queue takes
//! entry.rs      what a line says
//! run_loop.rs   feed, step, write, until the input ends
//! results.rs    the output, whole lines only
//! resume.rs     what an earlier run has answered
//! progress.rs   the bar on standard error
//! ```
//!
//! Memory is bounded but for the names of lines, which are remembered as 16 bytes each, so that none
//! is answered twice.
//!
//! Neighbours: `openai/` reads requests and makes answers; `driver/` runs the engine; `session.rs`
//! opens the model.

mod command;
mod entry;
mod lines;
mod progress;
mod results;
mod resume;
mod run_loop;
#[cfg(test)]
mod tests;

pub(crate) use command::run;
