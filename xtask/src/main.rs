//! `cargo xtask`: everything that is done to this repository besides editing it.
//!
//! Neighbours: `setup/` (what a machine needs), `test.rs`, `sim.rs`, `check.rs` with `tidy/`, `device_check.rs`;
//! `shell.rs` runs commands and `paths.rs` knows the folders. CI runs `check` and `test`, nothing else.
#![expect(clippy::print_stdout, reason = "a command line tool talks on stdout")]

mod check;
mod device_check;
mod paths;
mod setup;
mod shell;
mod sim;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use paths::Paths;

/// Sets up, runs, tests and checks forerun.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is missing: LLVM libraries, CUDA's libdevice and ptxas, a software Vulkan driver,
    /// check tools; build forerun and pull the default model. Safe to repeat.
    Setup,
    /// Set up, then run forerun with the arguments after `--`; without any, a short demonstration.
    Run {
        /// Arguments of forerun, for example: -- generate "Once upon a time" --device cpu
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Set up, pull both test models and run every test.
    Test {
        /// Run only suites whose name contains this, and skip the doc tests.
        #[arg(long)]
        suite: Option<String>,
        /// Arguments of the test binaries, for example: -- paged_attention
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// All static checks, cheapest first: tidy, fmt, typos, dependencies, clippy, docs.
    Check,
    /// `check`, then `test`.
    Ci,
    /// Run the engine's simulator: random workloads against a simulated device.
    Sim {
        /// How many seeds run: 300 if neither this nor --seed is given.
        #[arg(long)]
        count: Option<u64>,
        /// The first seed. Without --count: this one alone, with a trace of its steps.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Pack one prebuilt test binary that checks every kernel on a CUDA machine without network.
    DeviceCheck,
    /// Only the repository's own rules: sizes, boundaries, unsafe, leftovers. Seconds.
    Tidy,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    let paths = Paths::find()?;
    match task {
        Task::Setup => setup::for_developers(&paths),
        Task::Run { args } => setup::everything(&paths)?.run_forerun(&paths, &args),
        Task::Test { suite, args } => test::run(&paths, suite.as_deref(), &args),
        Task::Sim { count, seed } => sim::run(&paths, count, seed),
        Task::Check => check::run(&paths),
        Task::Ci => check::run(&paths).and_then(|()| test::run(&paths, None, &[])),
        Task::DeviceCheck => device_check::run(&paths),
        Task::Tidy => tidy::run(&paths),
    }
}
