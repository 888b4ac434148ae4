//! `cargo xtask device-check`: one archive that checks every kernel on a machine that has a GPU and
//! perhaps nothing else: no network, no toolchain. It carries the prebuilt test binary, CUDA's
//! `libdevice` and a start script.
//!
//! Neighbours: the binary is `tests/src/bin/device_check.rs`; `setup/cuda.rs` brings `libdevice`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::setup::{self, Ready};
use crate::shell::{Shell, timed};

const ARCHIVE_BYTES_MAX: u64 = 64 << 20;
const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";
/// The archive is tried on these, where they can be had, before it leaves.
const SOFTWARE_DEVICES: [&str; 2] = ["cpu", "wgpu"];
/// Software devices may take longer than a GPU.
const SOFTWARE_SECONDS: &str = "900";

const RUN_SCRIPT: &str = r#"#!/bin/sh
# Checks forerun's kernels on the device of this machine. Needs the GPU's driver and nothing else.
#   ./run.sh                   CUDA
#   ./run.sh --device wgpu     another device (cuda, wgpu, cpu)
# Ends after two minutes (CHECK_SECONDS) whatever happens; status 124 means that it was cut off.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export CUDA_PATH="$here/cuda"
[ "$#" -gt 0 ] || set -- --device cuda
if command -v timeout >/dev/null 2>&1; then
    exec timeout "${CHECK_SECONDS:-120}" "$here/device-check" "$@"
fi
exec "$here/device-check" "$@"
"#;

pub(crate) fn run(paths: &Paths) -> Result<()> {
    let ready = setup::machine(paths)?;
    timed("build device-check", || {
        setup::build(paths, &["--bin", "device-check"])
    })?;
    // Inside the repository wherever cargo's target folder is: that is what gets copied elsewhere.
    let folder = paths.root.join("target").join("device-check");
    timed("stage", || stage(paths, &folder))?;
    let archive = timed("pack", || pack(&folder))?;
    let (here, missing): (Vec<_>, Vec<_>) = SOFTWARE_DEVICES
        .into_iter()
        .partition(|device| ready.expects(device));
    for device in missing {
        println!("SKIPPED {device}: this machine has none");
    }
    for device in here {
        timed(&format!("try it on {device}"), || {
            try_on(paths, &ready, &archive, device)
        })?;
    }
    let shown = archive
        .strip_prefix(&paths.root)
        .unwrap_or(&archive)
        .display();
    println!(
        "\n{shown}: {:.1} MiB. On the machine with the GPU:",
        mebibytes(&archive)?
    );
    println!("  tar -xf device-check.tar.xz && device-check/run.sh");
    Ok(())
}

fn stage(paths: &Paths, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let libdevice = folder.join("cuda").join(LIBDEVICE);
    fs::create_dir_all(libdevice.parent().context("libdevice lies in a folder")?)?;
    fs::copy(paths.cuda().join(LIBDEVICE), &libdevice).context("libdevice (is this Linux?)")?;
    let binary = folder.join("device-check");
    fs::copy(paths.built("device-check"), &binary).context("copying the binary")?;
    Shell::new("strip").arg(&binary).run()?;
    let script = folder.join("run.sh");
    fs::write(&script, RUN_SCRIPT)?;
    setup::make_executable(&script)
}

fn pack(folder: &Path) -> Result<PathBuf> {
    let archive = folder.with_extension("tar.xz");
    let parent = folder.parent().context("the stage has a parent")?;
    Shell::new("tar")
        .dir(parent)
        .env("XZ_OPT", "-T0 -6")
        .args(["-cJf"])
        .arg(&archive)
        .arg("device-check")
        .run()?;
    let bytes = archive.metadata()?.len();
    if bytes >= ARCHIVE_BYTES_MAX {
        bail!(
            "{} has {bytes} bytes; the limit is {ARCHIVE_BYTES_MAX}",
            archive.display()
        );
    }
    Ok(archive)
}

/// Unpacks the archive somewhere else and starts it there, as its users will.
fn try_on(paths: &Paths, ready: &Ready, archive: &Path, device: &str) -> Result<()> {
    let folder = paths.root.join("target").join("device-check-try");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Shell::new("tar")
        .dir(&folder)
        .arg("-xf")
        .arg(archive)
        .run()?;
    let script = folder.join("device-check").join("run.sh");
    let shell = ready
        .program(paths, &script)
        .env("CHECK_SECONDS", SOFTWARE_SECONDS);
    shell.args(["--device", device]).run()?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}

fn mebibytes(path: &Path) -> Result<f64> {
    Ok(path.metadata()?.len() as f64 / f64::from(1 << 20))
}
