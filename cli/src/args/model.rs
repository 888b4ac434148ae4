//! Flags that say which model runs where.
//!
//! Neighbours: `session.rs` opens the model they name.

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
use forerun_models::devices::DeviceChoice;
use forerun_models::model::WeightFormat;

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

impl DtypeArg {
    /// The format to convert to, if any.
    pub(crate) fn format(self) -> Option<WeightFormat> {
        match self {
            Self::Auto => None,
            Self::F32 => Some(WeightFormat::F32),
            Self::F16 => Some(WeightFormat::F16),
            Self::Bf16 => Some(WeightFormat::Bf16),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn threads_are_bounded() {
        assert_eq!(parse_threads("2").map(NonZeroUsize::get), Ok(2));
        assert!(parse_threads("0").is_err());
        assert!(parse_threads("1000000").is_err());
    }
}
