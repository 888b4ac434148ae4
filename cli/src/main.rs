//! The forerun binary. `args.rs` says what can be typed; each command has a file.

mod args;
mod batch;
mod bench;
mod codec;
mod devices;
mod driver;
#[cfg(test)]
mod fakes;
mod generate;
mod model_source;
mod openai;
mod pull;
mod runtime_dir;
mod session;
mod speculation;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use args::{Cli, Command, PullArgs};

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("FORERUN_LOG")
                .unwrap_or_else(|_| "warn,wgpu_hal=error,wgpu_core=error".into()),
        )
        .with_writer(io::stderr)
        .init();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // If it cannot be printed, nobody reads it.
            let _ = error.print();
            // Not clap's own status, 2, which says here that a batch has lines with errors.
            return if error.use_stderr() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    runtime_dir::ensure(&cli.command);
    match run(&cli.command) {
        Ok(status) => ExitCode::from(status),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command and returns its exit status.
fn run(command: &Command) -> Result<u8> {
    let mut out = io::stdout().lock();
    match command {
        Command::Generate(args) => generate::run(args, &mut out)?,
        Command::Batch(args) => return batch::run(args, &mut out),
        Command::Bench(command) => bench::run(command, &mut out)?,
        Command::Devices => devices::run(&mut out)?,
        Command::Pull(args) => pull_model(args, &mut out)?,
    }
    Ok(0)
}

fn pull_model(args: &PullArgs, out: &mut impl Write) -> Result<()> {
    let source = pull::ModelSource::parse(&args.name)?;
    let path = pull::pull(&source, model_source::progress(args.quiet))?;
    writeln!(out, "{}", path.display())?;
    Ok(())
}

/// Whoever read our output has gone (`forerun generate .. | head`): no reason to complain.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
