//! Flags of `forerun bench`.
//!
//! Neighbours: `bench/` runs it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{MessageArgs, ModelArgs};

/// What to measure.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// What the prefix cache and shared blocks save: chats, documents, templates, samples, beams.
    Cache(BenchArgs),
    /// What scheduling does: continuous against static batches, chunk sizes, wasted slots.
    Sched(BenchArgs),
}

/// How to measure and where to write it.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Less work: seconds instead of a minute or two, and rougher numbers.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of the workloads.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also write the numbers as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Also write a page with tables and plots.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) messages: MessageArgs,
}
