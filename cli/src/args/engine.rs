//! Flags that say how the engine schedules and caches.
//!
//! Neighbours: `session.rs` makes the engine's configuration of them.

use clap::{Args, ValueEnum};
use forerun_engine::SchedulingPolicy;

/// How steps are made.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineArgs {
    /// Most tokens of one step: longer prompts run in chunks.
    #[arg(long, default_value_t = 512, value_name = "TOKENS", value_parser = parse_count)]
    pub(crate) max_num_batched_tokens: usize,
    /// Compute every prompt from its beginning, even if an equal beginning is cached.
    #[arg(long)]
    pub(crate) no_prefix_cache: bool,
}

/// Who runs at once, and who first.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct SchedulingArgs {
    /// Most sequences that run at once. As many requests more are read ahead.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = parse_count)]
    pub(crate) max_num_seqs: usize,
    /// Most tokens of one prompt in a step, so that several prompts advance at once. Default: as many
    /// as the step has.
    #[arg(long, value_name = "TOKENS", value_parser = parse_count)]
    pub(crate) long_prefill_token_threshold: Option<usize>,
    /// Who is served first: who came first, or who has the smallest `priority`.
    #[arg(long, value_enum, default_value_t = PolicyArg::Fcfs)]
    pub(crate) scheduling_policy: PolicyArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    /// First come, first served.
    Fcfs,
    /// The smallest `priority` first.
    Priority,
}

impl From<PolicyArg> for SchedulingPolicy {
    fn from(policy: PolicyArg) -> Self {
        match policy {
            PolicyArg::Fcfs => Self::Fcfs,
            PolicyArg::Priority => Self::Priority,
        }
    }
}

/// More than any device runs at once; bounds what is allocated for it.
const COUNT_MAX: usize = 1 << 20;

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=COUNT_MAX).contains(&count) => Ok(count),
        _ => Err(format!("expected a number from 1 to {COUNT_MAX}")),
    }
}
