//! A cursor over the bytes of a GGUF file. Every read is checked against the end of the file, so
//! that no number in the file can make the parser read, or allocate, more than the file holds.
//!
//! Neighbours: [`super::metadata`] and [`super::tensors`], which read through it.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

use super::super::error::LoadError;

/// Reads little-endian values in order. `what` names the field for the error.
pub(super) struct Reader<'a> {
    file: &'a Path,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a Path, bytes: &'a [u8]) -> Self {
        Self {
            file,
            bytes,
            position: 0,
        }
    }

    pub(super) fn file(&self) -> &'a Path {
        self.file
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Passes over `len` bytes and returns where they are.
    pub(super) fn skip(&mut self, len: u64, what: &dyn Display) -> Result<Range<usize>, LoadError> {
        let left = self.bytes.len() - self.position;
        match usize::try_from(len) {
            Ok(len) if len <= left => {
                let start = self.position;
                self.position += len;
                Ok(start..self.position)
            }
            _ => Err(LoadError::Truncated {
                file: self.file.to_path_buf(),
                what: what.to_string(),
                offset: self.position as u64,
                needed_bytes: len,
                available_bytes: left as u64,
            }),
        }
    }

    fn array<const N: usize>(&mut self, what: &dyn Display) -> Result<[u8; N], LoadError> {
        let range = self.skip(N as u64, what)?;
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[range]);
        Ok(value)
    }

    pub(super) fn magic(&mut self) -> Result<[u8; 4], LoadError> {
        self.array(&"the magic number")
    }

    pub(super) fn u32(&mut self, what: &dyn Display) -> Result<u32, LoadError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &dyn Display) -> Result<u64, LoadError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string: its length as u64, then its bytes. Returns where the bytes are.
    pub(super) fn string(&mut self, what: &dyn Display) -> Result<Range<usize>, LoadError> {
        let len = self.u64(what)?;
        self.skip(len, what)
    }

    /// A string that must be UTF-8.
    pub(super) fn name(&mut self, what: &dyn Display) -> Result<&'a str, LoadError> {
        let range = self.string(what)?;
        std::str::from_utf8(&self.bytes[range]).map_err(|error| {
            LoadError::malformed(self.file, what.to_string(), "UTF-8", error.to_string())
        })
    }
}
