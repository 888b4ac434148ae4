//! The command: opens input, output and model, runs the loop, prints statistics.
//!
//! Neighbours: `args/batch.rs` has the flags; `run_loop.rs` does the work.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use forerun_engine::{Engine, StatisticsReport};

use super::lines::LineThread;
use super::progress::Progress;
use super::resume::{self, Answered};
use super::run_loop::{Batch, BatchParts, Summary};
use crate::args::BatchArgs;
use crate::codec::TokenizerCodec;
use crate::driver::Driver;
use crate::openai::Defaults;
use crate::session::{self, ModelGrammars, Session, new_seed};
use crate::speculation::Settings;

/// The name of standard input and output.
const STANDARD: &str = "-";

/// Bytes of the input that are read at once.
const INPUT_BUFFER_BYTES: usize = 64 << 10;

/// Runs the command and returns its exit status. `standard_output` is for `-o -`, and otherwise for
/// statistics.
pub(crate) fn run(args: &BatchArgs, standard_output: &mut impl Write) -> Result<u8> {
    let (lines, input_len) = open_input(&args.input)?;
    if args.output == STANDARD {
        let (summary, report) = run_to(
            args,
            lines,
            input_len,
            &mut *standard_output,
            Answered::default(),
        )?;
        print_statistics(args, &report, &mut io::stderr())?;
        return Ok(summary.exit_code());
    }
    let (file, answered) = open_output(args)?;
    let (summary, report) = run_to(args, lines, input_len, file, answered)?;
    print_statistics(args, &report, standard_output)?;
    Ok(summary.exit_code())
}

fn run_to(
    args: &BatchArgs,
    lines: LineThread,
    input_len: Option<u64>,
    out: impl Write,
    answered: Answered,
) -> Result<(Summary, StatisticsReport)> {
    if !args.messages.quiet && answered.len() > 0 {
        eprintln!(
            "{}: {} lines are answered already",
            args.output,
            answered.len()
        );
    }
    let (mut speculation, notes) = Settings::of(&args.speculation)?;
    if args.seed.is_some() {
        // Each line's seed follows from this one: what it says is to be the same in every run.
        speculation.prefer_shared_noise();
    }
    session::show_notes(&notes, args.messages.into());
    let session = Session::open_with(&args.model, &speculation, args.messages.into())?;
    let num_seqs_max = args.scheduling.max_num_seqs;
    let mut config = session.engine_config(args.engine, num_seqs_max);
    speculation.apply(&mut config.speculation);
    config.scheduling.policy = args.scheduling.scheduling_policy.into();
    config.scheduling.prefill_tokens_max = args.scheduling.long_prefill_token_threshold;
    config.scheduling.waiting_max = num_seqs_max;
    let Session {
        name,
        loaded,
        tokenizer,
        ..
    } = session;
    let codec = TokenizerCodec(&tokenizer);
    let grammars = ModelGrammars::new(&tokenizer, &config);
    let driver = Driver::new(Engine::new(config, loaded.runner, codec)?, grammars);
    let parts = BatchParts {
        lines,
        out,
        codec: &codec,
        model: &name,
        defaults: Defaults {
            max_tokens: args.max_tokens,
        },
        seed: args.seed.unwrap_or_else(new_seed),
        speculation,
        answered,
        progress: if args.messages.quiet {
            Progress::quiet()
        } else {
            Progress::shown(input_len)
        },
    };
    let started = Instant::now();
    let mut batch = Batch::new(parts, driver);
    let summary = batch.run()?;
    if !args.messages.quiet {
        let seconds = started.elapsed().as_secs_f64();
        eprintln!(
            "{}",
            closing_line(&summary, batch.driver().num_generated(), seconds)
        );
    }
    Ok((summary, batch.driver().engine().statistics()))
}

/// The input, and its length if that is known.
fn open_input(name: &str) -> Result<(LineThread, Option<u64>)> {
    if name == STANDARD {
        let reader = BufReader::with_capacity(INPUT_BUFFER_BYTES, io::stdin());
        return Ok((LineThread::start(reader)?, None));
    }
    let open = || {
        let file = File::open(name)?;
        let metadata = file.metadata()?;
        let len = metadata.is_file().then_some(metadata.len());
        let reader = BufReader::with_capacity(INPUT_BUFFER_BYTES, file);
        Ok::<_, io::Error>((LineThread::start(reader)?, len))
    };
    open().with_context(|| format!("cannot open the input {name}"))
}

/// The output at the end of what an earlier run has answered, for this run alone.
fn open_output(args: &BatchArgs) -> Result<(File, Answered)> {
    let name = &args.output;
    let path = Path::new(name);
    if let (Ok(input), Ok(output)) = (fs::canonicalize(&args.input), fs::canonicalize(path))
        && input == output
    {
        bail!("{name} is the input too: give another output");
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options
        .open(path)
        .with_context(|| format!("cannot open the output {name}"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!("another run is writing to {name}"),
        // Some file systems have no locks: then nobody watches.
        Err(TryLockError::Error(error)) => tracing::warn!("{name} cannot be locked: {error}"),
    }
    if args.overwrite {
        file.set_len(0)
            .with_context(|| format!("cannot empty {name}"))?;
        return Ok((file, Answered::default()));
    }
    let answered =
        resume::read(&mut file).with_context(|| format!("cannot go on with the output {name}"))?;
    Ok((file, answered))
}

fn closing_line(summary: &Summary, num_generated: u64, seconds: f64) -> String {
    let speed = if seconds > 0.0 {
        num_generated as f64 / seconds
    } else {
        0.0
    };
    format!(
        "{} lines answered, {} errors, {} answered before | {num_generated} tokens in {seconds:.1} s, \
         {speed:.1} tokens/s",
        summary.num_ok, summary.num_errors, summary.num_skipped,
    )
}

fn print_statistics(
    args: &BatchArgs,
    report: &StatisticsReport,
    out: &mut impl Write,
) -> Result<()> {
    match args.stats.as_deref() {
        None => Ok(()),
        Some("table") => Ok(writeln!(out, "{report}")?),
        Some("json") => {
            serde_json::to_writer(&mut *out, report)?;
            Ok(writeln!(out)?)
        }
        Some(name) => {
            let mut text = serde_json::to_vec(report)?;
            text.push(b'\n');
            fs::write(name, text).with_context(|| format!("cannot write statistics to {name}"))
        }
    }
}
