//! What `--model` names: a path, or a model in the cache, which is downloaded if it is not there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::pull::{self, ModelSource, Progress};

/// The path of the model `name`.
pub(crate) fn resolve(name: &str, is_quiet: bool) -> Result<PathBuf> {
    let path = Path::new(name);
    if path.exists() {
        return Ok(path.to_path_buf());
    }
    let source = ModelSource::parse(name)
        .with_context(|| format!("--model {name} is neither a file nor a folder here"))?;
    match pull::find(&source) {
        Some(path) => Ok(path),
        None => Ok(pull::pull(&source, progress(is_quiet))?),
    }
}

/// How downloads show what they do.
pub(crate) fn progress(is_quiet: bool) -> Progress {
    if is_quiet {
        Progress::Quiet
    } else {
        Progress::Shown
    }
}
