//! What an earlier run has answered: read from its output, whose torn last line is cut off.
//!
//! Lines are known by their `custom_id`. Results without one, of lines that had none or one of
//! another line, are known by the line's number, which is part of their id.
//!
//! Neighbours: `results.rs` wrote the lines; `run_loop.rs` skips what is here.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::lines::{Line, LineReader, Lines, NextLine};
use super::results::ID_PREFIX;

/// A name by its hash, so that remembering one takes 16 bytes whatever its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NameHash([u8; 16]);

impl NameHash {
    pub(super) fn of(name: &str) -> Self {
        let digest = Sha256::digest(name.as_bytes());
        let mut hash = [0; 16];
        hash.copy_from_slice(&digest[..16]);
        Self(hash)
    }

    /// A seed of its own for each name: the same in every run and wherever the line stands.
    pub(super) fn seed(self, seed: u64) -> u64 {
        seed ^ (u128::from_le_bytes(self.0) as u64)
    }
}

/// Lines that need no answer any more.
#[derive(Debug, Default)]
pub(super) struct Answered {
    /// By `custom_id`.
    pub(super) names: HashSet<NameHash>,
    /// By number, those without a `custom_id` of their own.
    pub(super) numbers: HashSet<u64>,
    /// How many of them are errors.
    pub(super) num_errors: u64,
}

/// An output that cannot be resumed.
#[derive(Debug, Error)]
pub(super) enum ResumeError {
    /// It cannot be read or cut.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It holds something else than results.
    #[error(
        "line {number} of the output is no result of `forerun batch` ({detail}): give another \
         output, or --overwrite to start anew"
    )]
    Foreign {
        /// Line of the output.
        number: u64,
        /// What is wrong with it.
        detail: String,
    },
}

#[derive(Deserialize)]
struct WrittenLine {
    id: String,
    custom_id: Option<String>,
    response: WrittenResponse,
}

#[derive(Deserialize)]
struct WrittenResponse {
    status_code: u16,
}

/// Reads what `file` holds, cuts off a torn last line, and leaves the file at its end.
pub(super) fn read(file: &mut File) -> Result<Answered, ResumeError> {
    let len = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let mut answered = Answered::default();
    let mut whole_len = 0;
    let mut lines = LineReader::with_limit(BufReader::new(&*file), usize::MAX);
    while let NextLine::Line(Line { number, bytes, end }) = lines.next_line(true)? {
        // The last line, if its end was not written.
        let bytes = bytes.unwrap_or_default();
        if end == whole_len + bytes.len() as u64 {
            break;
        }
        answered
            .note(&bytes)
            .map_err(|detail| ResumeError::Foreign { number, detail })?;
        whole_len = end;
    }
    if whole_len < len {
        file.set_len(whole_len)?;
    }
    file.seek(SeekFrom::Start(whole_len))?;
    Ok(answered)
}

impl Answered {
    fn note(&mut self, line: &[u8]) -> Result<(), String> {
        let written: WrittenLine =
            serde_json::from_slice(line).map_err(|error| error.to_string())?;
        self.num_errors += u64::from(written.response.status_code != 200);
        if let Some(id) = written.custom_id {
            self.names.insert(NameHash::of(&id));
            return Ok(());
        }
        let number = written.id.strip_prefix(ID_PREFIX);
        let number = number.and_then(|number| number.parse().ok());
        self.numbers
            .insert(number.ok_or_else(|| format!("its id is {:?}", written.id))?);
        Ok(())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.names.len() + self.numbers.len()
    }
}
