//! `forerun bench`: what the engine's mechanisms are for, as ratios within one run.
//!
//! ```text
//! cache.rs      prefix cache on and off; shared blocks against separate requests
//! sched.rs      continuous and static batches; chunk sizes; wasted slots
//! spec/         speculation off and on, on texts
//! workload.rs   random requests of given lengths
//! measure.rs    runs requests and keeps the numbers
//! report.rs     sections of numbers: text and JSON
//! html.rs       the same as a page with plots
//! ```
//!
//! Prompts are random tokens, which cost what text costs, and answers have fixed lengths; only
//! speculation depends on what is said, and is measured on texts.
//!
//! Neighbours: `driver/` runs the engine; `session.rs` opens the model.

mod cache;
mod html;
mod measure;
mod report;
mod sched;
mod spec;
#[cfg(test)]
mod tests;
mod workload;

use std::fs;
use std::io::Write;

use anyhow::{Context, Result};
use forerun_engine::{EngineConfig, Executor};

use self::report::{Report, Section};
use self::workload::Workload;
use crate::args::{BenchArgs, BenchCommand, EngineArgs};
use crate::session::Session;

/// Most tokens of a step, where a bench does not vary it.
const STEP_TOKENS_MAX: usize = 512;
/// Most sequences at once, where a bench does not vary it.
const NUM_SEQS_MAX: usize = 8;

/// What every bench gets.
struct Bench<'a, E> {
    executor: &'a mut E,
    config: EngineConfig,
    workload: Workload,
    /// Whether to do less.
    is_quick: bool,
}

/// Lengths of the workloads are for models that take so many tokens; for others they shrink.
const FULL_SEQ_LEN: usize = 1024;

impl<E: Executor> Bench<'_, E> {
    /// A length in tokens, shorter if the model takes only short sequences.
    fn tokens(&self, len: usize) -> usize {
        let seq_len_max = self.config.seq_len_max().min(FULL_SEQ_LEN);
        (len * seq_len_max / FULL_SEQ_LEN).max(2)
    }

    /// A count, smaller if the bench is to be quick.
    fn scaled(&self, count: usize) -> usize {
        if self.is_quick {
            (count / 4).max(1)
        } else {
            count
        }
    }
}

/// Runs the command and prints its tables to `out`.
pub(crate) fn run(command: &BenchCommand, out: &mut impl Write) -> Result<()> {
    type Run<E> = fn(&mut Bench<'_, E>) -> Result<Vec<Section>>;
    let (args, name, sections): (_, _, Run<_>) = match command {
        BenchCommand::Cache(args) => (args, "cache", cache::run),
        BenchCommand::Sched(args) => (args, "sched", sched::run),
        BenchCommand::Spec(args) => return spec::run(args, out),
    };
    let mut session = Session::open(&args.model, args.messages.into())?;
    let engine = EngineArgs {
        max_num_batched_tokens: STEP_TOKENS_MAX,
        no_prefix_cache: false,
    };
    let config = session.engine_config(engine, NUM_SEQS_MAX);
    let mut bench = Bench {
        workload: Workload::new(args.seed, config.vocab_size),
        config,
        executor: &mut session.loaded.runner,
        is_quick: args.quick,
    };
    let sections = sections(&mut bench)?;
    let report = report(name, args, (&session.name, &session.device), sections);
    write!(out, "{report}")?;
    write_files(args, &report)
}

/// The report of a bench that has run on this model and device.
fn report(
    bench: &'static str,
    args: &BenchArgs,
    (model, device): (&str, &str),
    sections: Vec<Section>,
) -> Report {
    Report {
        bench,
        model: model.to_owned(),
        device: device.to_owned(),
        num_cores: std::thread::available_parallelism().map_or(0, usize::from),
        version: env!("CARGO_PKG_VERSION"),
        seed: args.seed,
        is_quick: args.quick,
        sections,
    }
}

fn write_files(args: &BenchArgs, report: &Report) -> Result<()> {
    if let Some(file) = &args.json {
        let mut text = serde_json::to_vec_pretty(report)?;
        text.push(b'\n');
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(file) = &args.html {
        let page = html::page(report);
        fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
