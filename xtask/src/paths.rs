//! The folders that the tasks work in.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::shell::Shell;

pub(crate) struct Paths {
    /// The repository.
    pub(crate) root: PathBuf,
    /// Cargo's target folder; often outside the repository, shared with CI.
    pub(crate) target: PathBuf,
    /// Per-user data folder of the platform, where the LLVM bundle is looked for by its build script.
    pub(crate) data_local: PathBuf,
}

impl Paths {
    pub(crate) fn find() -> Result<Self> {
        // As cargo says it for this run: the binary may have been built in another checkout that
        // shares the target folder.
        let manifest_dir = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir
            .parent()
            .context("xtask has a parent folder")?
            .to_owned();
        let metadata = Shell::cargo(&root)
            .args(["metadata", "--no-deps", "--format-version=1"])
            .read()
            .context("asking cargo for the workspace")?;
        let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
        let target = metadata["target_directory"]
            .as_str()
            .context("cargo names a target folder")?;
        Ok(Self {
            root,
            target: PathBuf::from(target),
            data_local: data_local_dir()?,
        })
    }

    /// A program that the release build made.
    pub(crate) fn built(&self, name: &str) -> PathBuf {
        self.target
            .join("release")
            .join(format!("{name}{}", env::consts::EXE_SUFFIX))
    }

    /// Where `setup` keeps what belongs to forerun alone.
    pub(crate) fn own_data(&self) -> PathBuf {
        self.data_local.join("forerun")
    }

    /// Laid out like a CUDA toolkit, as far as forerun needs one.
    pub(crate) fn cuda(&self) -> PathBuf {
        self.own_data().join("cuda")
    }
}

/// The same folder as `dirs::data_local_dir()`, which the LLVM bundler uses.
fn data_local_dir() -> Result<PathBuf> {
    if cfg!(windows) {
        return env::var_os("LOCALAPPDATA")
            .map(PathBuf::from)
            .context("LOCALAPPDATA is not set");
    }
    let home = env::home_dir().context("no home folder: set HOME")?;
    if cfg!(target_os = "macos") {
        return Ok(home.join("Library").join("Application Support"));
    }
    let xdg = env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    Ok(xdg.unwrap_or_else(|| home.join(".local").join("share")))
}
