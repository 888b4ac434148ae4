//! The command line: what users type.
//!
//! Neighbours: a file per group of flags; `main.rs` gives each command to its module.

mod batch;
mod bench;
mod engine;
mod model;
mod sampling;
mod speculation;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use batch::BatchArgs;
pub(crate) use bench::{BenchArgs, BenchCommand, SpecBenchArgs};
pub(crate) use engine::{EngineArgs, SchedulingArgs};
pub(crate) use model::ModelArgs;
pub(crate) use sampling::{FormArgs, OutputArgs, SamplingArgs};
pub(crate) use speculation::{MethodArg, SpeculationArgs};

/// Generate text with large language models on your own hardware: CUDA, Vulkan, Metal or plain
/// CPU, from one binary.
#[derive(Debug, Parser)]
#[command(name = "forerun", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Continue a text.
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(Box<GenerateArgs>),
    /// Answer a file of requests.
    #[command(after_help = batch::EXAMPLES)]
    Batch(BatchArgs),
    /// Measure what the engine's mechanisms are for.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// List the devices of this machine.
    Devices,
    /// Download a model into the cache.
    Pull(PullArgs),
}

const GENERATE_EXAMPLES: &str = "\
Examples:
  forerun generate 'The capital of France is'
  forerun generate --chat 'Explain what a paged KV cache is.' --max-tokens 200
  forerun generate --model gemma3-270m --device wgpu 'Once upon a time'
  forerun generate --temperature 0.8 --seed 7 --stop '\\n\\n' 'A haiku about rain:'
  forerun generate -t 1 --top-p 0.9 --samples 3 'Roses are'
  forerun generate --chat --choice yes --choice no 'Is water wet?'
  cat notes.txt | forerun generate - --output json";

/// Where the prompt comes from and how it is continued.
#[derive(Args, Debug)]
pub(crate) struct GenerateArgs {
    /// The text to continue; `-` reads it from standard input.
    #[arg(
        required_unless_present = "prompt_file",
        conflicts_with = "prompt_file"
    )]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Put the prompt into the model's chat template as a user's message. Text that looks like a
    /// control token stays text.
    #[arg(long, conflicts_with = "no_special")]
    pub(crate) chat: bool,
    /// Do not read control tokens such as <|im_start|> in the prompt: they stay text.
    #[arg(long)]
    pub(crate) no_special: bool,
    /// What to print on standard output.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,

    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) samples: OutputArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) speculation: SpeculationArgs,
    /// Show what was guessed: accepted, rejected, and the model's own tokens behind drafts.
    #[arg(long, help_heading = "Speculation")]
    pub(crate) show_drafts: bool,

    #[command(flatten)]
    pub(crate) messages: MessageArgs,
}

/// How much is said on standard error.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Messages")]
pub(crate) struct MessageArgs {
    /// Print no messages, no progress and no closing line on standard error.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Say how memory is used.
    #[arg(long, short, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// smollm2, gemma3-270m, or a hub id such as org/name or org/name:file.gguf.
    pub(crate) name: String,
    /// Show no progress.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The generated text as it is made.
    Text,
    /// One JSON object at the end.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
