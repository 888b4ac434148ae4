//! Flags of `forerun bench`.
//!
//! Neighbours: `bench/` runs it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{MessageArgs, MethodArg, ModelArgs, SpeculationArgs};

/// What to measure.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// What the prefix cache and shared blocks save: chats, documents, templates, samples, beams.
    Cache(BenchArgs),
    /// What scheduling does: continuous against static batches, chunk sizes, wasted slots.
    Sched(BenchArgs),
    /// What speculation does: acceptance, tokens per pass and speed-up per class of prompts, off and
    /// on in turn.
    Spec(Box<SpecBenchArgs>),
}

impl BenchCommand {
    /// The flags that every bench has.
    pub(crate) fn common(&self) -> &BenchArgs {
        match self {
            Self::Cache(args) | Self::Sched(args) => args,
            Self::Spec(args) => &args.common,
        }
    }
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

/// What `bench spec` compares.
#[derive(Args, Debug)]
pub(crate) struct SpecBenchArgs {
    /// Who drafts: each is measured on its own. `none` shows how much the numbers vary by chance.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "ngram,suffix,auto"
    )]
    pub(crate) methods: Vec<MethodArg>,
    /// Sampling temperatures.
    #[arg(long, value_delimiter = ',', default_value = "0,0.8", value_parser = parse_temperature)]
    pub(crate) temperatures: Vec<f32>,
    /// Only these classes of prompts. Default: all. Those that forerun brings: code-edit, extraction,
    /// chat, story, json, json-schema.
    #[arg(long, value_delimiter = ',', value_name = "CLASS")]
    pub(crate) classes: Vec<String>,
    /// Pairs of runs, off and on. Default: 3, with --quick 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: Option<u32>,
    /// Longest answers. Default: 128, with --quick 64.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) max_tokens: Option<u32>,
    /// Prompts of your own: DIR/CLASS/NAME.txt, or DIR/CLASS.txt, with a JSON schema that the answer
    /// must fit in NAME.schema.json beside it.
    #[arg(long, value_name = "DIR")]
    pub(crate) prompts_dir: Option<PathBuf>,
    /// Run N requests at once, of all classes in turn, instead of one after another.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) concurrent: Option<u32>,
    #[command(flatten)]
    pub(crate) common: BenchArgs,
    #[command(flatten)]
    pub(crate) speculation: SpeculationArgs,
}

fn parse_temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(temperature) if temperature.is_finite() && temperature >= 0.0 => Ok(temperature),
        _ => Err("expected a number that is not below 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: BenchCommand,
    }

    fn spec(words: &[&str]) -> Result<SpecBenchArgs, String> {
        let line = Line::try_parse_from(["test", "spec"].iter().chain(words));
        match line.map_err(|error| error.to_string())?.command {
            BenchCommand::Spec(args) => Ok(*args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn drafters_and_temperatures_are_lists() {
        let args = spec(&[]).unwrap();
        let methods = [MethodArg::Ngram, MethodArg::Suffix, MethodArg::Auto];
        assert_eq!(args.methods, methods);
        assert_eq!(args.temperatures, [0.0, 0.8]);
        let args = spec(&[
            "--methods",
            "layer-skip,none",
            "--temperatures",
            "1",
            "--classes",
            "chat,story",
            "--concurrent",
            "8",
            "--spec-tokens",
            "4",
        ]);
        let args = args.unwrap();
        assert_eq!(args.methods, [MethodArg::LayerSkip, MethodArg::None]);
        assert_eq!(args.temperatures, [1.0]);
        assert_eq!(args.classes, ["chat", "story"]);
        assert_eq!(
            (args.concurrent, args.speculation.spec_tokens),
            (Some(8), Some(4))
        );
    }

    #[test]
    fn values_without_a_meaning_are_refused() {
        let wrong = [
            ["--temperatures", "-1"],
            ["--temperatures", "NaN"],
            ["--methods", "magic"],
            ["--repeats", "0"],
            ["--concurrent", "0"],
            ["--max-tokens", "1"],
        ];
        for words in wrong {
            assert!(spec(&words).is_err(), "{words:?}");
        }
    }
}
