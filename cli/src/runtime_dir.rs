//! `XDG_RUNTIME_DIR` for the probes of window systems.
//!
//! Looking for wgpu adapters loads Vulkan and EGL drivers, which complain on stderr, several times,
//! where `XDG_RUNTIME_DIR` is unset: in containers, services and cron jobs. A process cannot change
//! its own environment safely once threads may run, so the program starts itself again with it.

use forerun_models::devices::DeviceChoice;

use crate::args::Command;

/// Starts the program again with `XDG_RUNTIME_DIR`, if `command` looks for adapters and it is
/// unset. Returns where there is nothing to do, or where that failed: then drivers complain.
pub(crate) fn ensure(command: &Command) {
    let probes = match command {
        Command::Devices => true,
        Command::Generate(args) => args.model.device != DeviceChoice::Cpu,
        Command::Batch(args) => args.model.device != DeviceChoice::Cpu,
        Command::Bench(bench) => bench.common().model.device != DeviceChoice::Cpu,
        Command::Pull(_) => false,
    };
    if probes && std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        restart();
    }
}

#[cfg(target_os = "linux")]
fn restart() {
    use std::os::unix::process::CommandExt;

    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let error = std::process::Command::new(program)
        .args(std::env::args_os().skip(1))
        .env("XDG_RUNTIME_DIR", std::env::temp_dir())
        .exec();
    tracing::debug!("cannot start again with XDG_RUNTIME_DIR: {error}");
}

#[cfg(not(target_os = "linux"))]
fn restart() {}
