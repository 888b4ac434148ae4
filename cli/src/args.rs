//! The command line: what users type.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use forerun_models::devices::DeviceChoice;

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
    Generate(GenerateArgs),
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

    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// What to print on standard output.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
    /// Print no messages and no closing line on standard error.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Which model runs where.
#[derive(Args, Debug)]
#[command(next_help_heading = "Model and device")]
pub(crate) struct ModelArgs {
    /// A name (smollm2, gemma3-270m), a hub id (org/name), a folder with config.json, or a .gguf
    /// file.
    #[arg(long, short, default_value = "smollm2")]
    pub(crate) model: String,
    /// auto, cpu, wgpu, wgpu:N, cuda or cuda:N. `auto` takes CUDA, then a wgpu GPU, then the CPU.
    #[arg(long, short, default_value = "auto", value_parser = str::parse::<DeviceChoice>)]
    pub(crate) device: DeviceChoice,
    /// Number format of unquantised weights in memory; `auto` keeps the file's.
    #[arg(long, value_enum, default_value_t = DtypeArg::Auto)]
    pub(crate) dtype: DtypeArg,
    /// Memory for the KV cache, e.g. 512M or 2G. Default: one sequence of the model's full length,
    /// within limits.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) kv_memory: Option<u64>,
    /// Tokens per KV block: a power of two up to 256.
    #[arg(long, default_value_t = 16, value_name = "TOKENS")]
    pub(crate) block_size: usize,
    /// Threads of the CPU device. Default: all cores.
    #[arg(long, value_parser = parse_threads)]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// How tokens are chosen and when to stop.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Most tokens to generate.
    #[arg(long, short = 'n', default_value_t = 128, value_name = "TOKENS")]
    pub(crate) max_tokens: usize,
    /// 0 always takes the likeliest token; 1 samples from the model's own distribution.
    #[arg(long, short = 't', default_value_t = 0.0, value_parser = parse_temperature)]
    pub(crate) temperature: f32,
    /// Seed of the sampling noise: the same seed gives the same text. Default: a new one each run.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Stop before this text (may be given several times). \n, \t, \r and \\ are understood.
    #[arg(long, value_name = "TEXT", value_parser = parse_stop)]
    pub(crate) stop: Vec<String>,
    /// Go on when the model ends its text.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DtypeArg {
    /// As in the file.
    Auto,
    /// 32-bit floats.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// 16-bit brain floats.
    Bf16,
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err("expected a number with an optional K, M or G".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "expected a whole number of bytes".to_owned())?;
    number
        .checked_mul(factor)
        .ok_or_else(|| "more bytes than this machine can count".to_owned())
}

/// More than any machine has cores. Beyond it, a system may refuse to start them.
const THREADS_MAX: usize = 1024;

fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    match text.parse::<NonZeroUsize>() {
        Ok(threads) if threads.get() <= THREADS_MAX => Ok(threads),
        _ => Err(format!("expected a number from 1 to {THREADS_MAX}")),
    }
}

fn parse_temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("expected a number of at least 0".to_owned()),
    }
}

fn parse_stop(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("a stop text cannot be empty".to_owned());
    }
    let mut stop = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => stop.push('\n'),
                Some('t') => stop.push('\t'),
                Some('r') => stop.push('\r'),
                Some('\\') | None => stop.push('\\'),
                Some(other) => stop.extend(['\\', other]),
            },
            (c, false) => stop.push(c),
        }
    }
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn byte_counts_take_binary_suffixes() {
        assert_eq!(parse_bytes("512M"), Ok(512 << 20));
        assert_eq!(parse_bytes("2GiB"), Ok(2 << 30));
        assert_eq!(parse_bytes("77"), Ok(77));
        assert!(parse_bytes("2T").is_err());
        assert!(parse_bytes("M").is_err());
        assert!(parse_bytes("99999999999G").is_err());
    }

    #[test]
    fn stop_texts_understand_escapes() {
        assert_eq!(parse_stop("a\\n\\tb\\\\"), Ok("a\n\tb\\".to_owned()));
        assert_eq!(parse_stop("\\d"), Ok("\\d".to_owned()));
        assert!(parse_stop("").is_err());
    }

    #[test]
    fn threads_are_bounded() {
        assert_eq!(parse_threads("2").map(NonZeroUsize::get), Ok(2));
        assert!(parse_threads("0").is_err());
        assert!(parse_threads("1000000").is_err());
    }

    #[test]
    fn temperatures_below_zero_are_refused() {
        assert!(parse_temperature("-0.1").is_err());
        assert!(parse_temperature("nan").is_err());
        assert_eq!(parse_temperature("0.7"), Ok(0.7));
    }
}
