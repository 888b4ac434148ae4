//! Files on their way: the `.part` name, hashing, syncing, the rename that makes a file count.
//!
//! Neighbours: `download.rs` fills parts from the network, `pypi.rs` from wheels.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use sha2::{Digest, Sha256};

use super::PullError;

const BUFFER_BYTES: usize = 256 << 10;

/// Gives a complete and checked `part` its final name.
pub(super) fn finish(part: &Path, target: &Path) -> Result<(), PullError> {
    let disk = |cause| PullError::disk(target, cause);
    File::open(part)
        .and_then(|file| file.sync_all())
        .map_err(disk)?;
    fs::rename(part, target).map_err(disk)
}

pub(super) fn part_path(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

pub(super) fn remove_if_there(path: &Path) -> Result<(), PullError> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(PullError::disk(path, cause)),
        _ => Ok(()),
    }
}

/// Copies all of `from` into `to`, adding it to `hash` and moving `bar`.
pub(super) fn copy_hashed(
    from: &mut impl Read,
    to: &mut impl Write,
    hash: &mut Sha256,
    bar: &ProgressBar,
) -> io::Result<u64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut copied = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(count) => count,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            Err(cause) => return Err(cause),
        };
        hash.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
        copied += count as u64;
        bar.inc(count as u64);
    }
}

pub(super) fn hex(hash: Sha256) -> String {
    use std::fmt::Write as _;
    hash.finalize()
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

pub(super) fn sha256_of(path: &Path) -> Result<String, PullError> {
    let mut hash = Sha256::new();
    let mut file = File::open(path).map_err(|cause| PullError::disk(path, cause))?;
    copy_hashed(
        &mut file,
        &mut io::sink(),
        &mut hash,
        &ProgressBar::hidden(),
    )
    .map_err(|cause| PullError::disk(path, cause))?;
    Ok(hex(hash))
}

pub(super) fn file_len(path: &Path) -> u64 {
    path.metadata().map_or(0, |meta| meta.len())
}
