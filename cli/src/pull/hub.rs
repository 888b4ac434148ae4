//! Models on the hub: a pinned file by its address, or the files of a repository by its listing.
//!
//! The listing (`/api/models/<repo>/tree/<revision>`) gives each file's size and, for large files,
//! its sha-256, so that what arrives can be checked without a table of ours.
//!
//! Neighbours: `source.rs` (ids), `download.rs` (one address to one file).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;

use serde::Deserialize;

use super::download::{Document, Wanted, shown};
use super::source::{HubModel, NamedModel, has_extension, is_plain_name};
use super::{PullError, Puller, create_dir};

/// Written last into a repository's folder: all its files are there.
pub(super) const COMPLETE_MARK: &str = ".complete";

const WEIGHTS: &str = "model.safetensors";
const WEIGHTS_INDEX: &str = "model.safetensors.index.json";

/// Everything besides weights that a loader, tokenizer or chat template may read; each is optional
/// here, the loaders say what they miss.
const SMALL_FILES: [&str; 10] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
];

/// One file of a repository, as the hub lists it.
#[derive(Debug, Deserialize)]
struct Entry {
    path: String,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    lfs: Option<Lfs>,
}

/// Present for large files: their `oid` is the sha-256 of the contents.
#[derive(Debug, Deserialize)]
struct Lfs {
    oid: String,
}

/// Downloads the pinned file of a named model to `target`.
pub(super) fn pull_pinned(
    puller: &Puller,
    model: &NamedModel,
    target: &Path,
) -> Result<(), PullError> {
    let url = file_url(puller, model.hub_repo, model.hub_revision, model.file);
    let wanted = Wanted {
        url: &url,
        token: puller.endpoints.token.as_deref(),
        size_bytes: Some(model.size_bytes),
        sha256: Some(model.sha256),
    };
    puller.downloader.file(&wanted, target, puller.progress)
}

/// Downloads a repository's files, or the one asked for, into `folder`.
pub(super) fn pull(puller: &Puller, model: &HubModel, folder: &Path) -> Result<(), PullError> {
    let entries = listing(puller, model)?;
    create_dir(folder)?;
    if let Some(file) = &model.file {
        let entry = entries
            .get(file.as_str())
            .ok_or_else(|| PullError::NoSuchFile {
                repo: model.repo.clone(),
                file: file.clone(),
                found: gguf_files(&entries),
            })?;
        return fetch(puller, model, entry, folder);
    }
    for entry in SMALL_FILES.iter().filter_map(|name| entries.get(*name)) {
        fetch(puller, model, entry, folder)?;
    }
    for name in weight_files(puller, model, &entries, folder)? {
        let entry = entries.get(&name).ok_or_else(|| PullError::NoSuchFile {
            repo: model.repo.clone(),
            file: name.clone(),
            found: gguf_files(&entries),
        })?;
        fetch(puller, model, entry, folder)?;
    }
    let mark = folder.join(COMPLETE_MARK);
    File::create(&mark).map_err(|cause| PullError::disk(&mark, cause))?;
    Ok(())
}

/// Names of the safetensors files: the shards that the index names, or the only one.
fn weight_files(
    puller: &Puller,
    model: &HubModel,
    entries: &BTreeMap<String, Entry>,
    folder: &Path,
) -> Result<BTreeSet<String>, PullError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    if let Some(entry) = entries.get(WEIGHTS_INDEX) {
        fetch(puller, model, entry, folder)?;
        let path = folder.join(WEIGHTS_INDEX);
        let text = fs::read_to_string(&path).map_err(|cause| PullError::disk(&path, cause))?;
        let url = file_url(puller, &model.repo, model.revision(), WEIGHTS_INDEX);
        let bad = |reason| PullError::BadListing {
            url: shown(&url),
            reason,
        };
        let index: Index = serde_json::from_str(&text).map_err(|cause| bad(cause.to_string()))?;
        let names: BTreeSet<_> = index.weight_map.into_values().collect();
        return match names.iter().find(|name| !is_plain_name(name)) {
            Some(name) => Err(bad(format!("shard name {name:?} is not a plain file name"))),
            None => Ok(names),
        };
    }
    if entries.contains_key(WEIGHTS) {
        return Ok(BTreeSet::from([WEIGHTS.to_owned()]));
    }
    Err(PullError::NoWeights {
        repo: model.repo.clone(),
        found: gguf_files(entries),
    })
}

/// Downloads one listed file unless it is already there.
fn fetch(puller: &Puller, model: &HubModel, entry: &Entry, folder: &Path) -> Result<(), PullError> {
    let target = folder.join(&entry.path);
    let url = file_url(puller, &model.repo, model.revision(), &entry.path);
    let wanted = Wanted {
        url: &url,
        token: puller.endpoints.token.as_deref(),
        size_bytes: entry.size,
        sha256: entry.lfs.as_ref().map(|lfs| lfs.oid.as_str()),
    };
    let size_here = target.metadata().ok().map(|meta| meta.len());
    if size_here.is_some() && size_here == entry.size {
        return Ok(());
    }
    puller.downloader.file(&wanted, &target, puller.progress)
}

/// The files at the top of a repository by name; anything in folders or with an unusual name is
/// left out, so that every key is safe as a file name.
fn listing(puller: &Puller, model: &HubModel) -> Result<BTreeMap<String, Entry>, PullError> {
    let Puller {
        endpoints,
        downloader,
        ..
    } = puller;
    let url = format!(
        "{}/api/models/{}/tree/{}",
        endpoints.hub,
        model.repo,
        model.revision()
    );
    let page: Document =
        downloader.document(&url, "application/json", endpoints.token.as_deref())?;
    let entries: Vec<Entry> =
        serde_json::from_str(&page.text).map_err(|cause| PullError::BadListing {
            url: shown(&url),
            reason: cause.to_string(),
        })?;
    let plain = entries
        .into_iter()
        .filter(|entry| is_plain_name(&entry.path));
    Ok(plain.map(|entry| (entry.path.clone(), entry)).collect())
}

fn gguf_files(entries: &BTreeMap<String, Entry>) -> Vec<String> {
    entries
        .keys()
        .filter(|name| has_extension(name, "gguf"))
        .cloned()
        .collect()
}

fn file_url(puller: &Puller, repo: &str, revision: &str, file: &str) -> String {
    format!("{}/{repo}/resolve/{revision}/{file}", puller.endpoints.hub)
}
