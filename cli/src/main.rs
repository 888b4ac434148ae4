//! The forerun binary. `args.rs` says what can be typed; each command has a file.

mod args;
mod devices;
mod generate;
mod model_source;
mod pull;
mod report;
mod runtime_dir;
mod text_sink;

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
    let cli = Cli::parse();
    runtime_dir::ensure(&cli.command);
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let mut out = io::stdout().lock();
    match command {
        Command::Generate(args) => generate::run(args, &mut out),
        Command::Devices => devices::run(&mut out),
        Command::Pull(args) => pull_model(args, &mut out),
    }
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
