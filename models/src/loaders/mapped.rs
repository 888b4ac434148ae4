//! A file as bytes, through a read-only memory map: nothing is read before it is used.
//!
//! Neighbours: [`super::gguf`] and [`super::safetensors`], which parse the bytes.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::error::LoadError;

/// A mapped file and its path.
#[derive(Debug)]
pub(super) struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

impl MappedFile {
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        let file = File::open(path).map_err(|source| LoadError::io(path, source))?;
        let metadata = file
            .metadata()
            .map_err(|source| LoadError::io(path, source))?;
        if !metadata.is_file() {
            return Err(LoadError::NotAModel {
                file: path.to_path_buf(),
                expected: "a file",
                found: "a folder or a device".to_owned(),
            });
        }
        #[expect(unsafe_code, reason = "the only way to map a file")]
        // SAFETY: the map is private to this value, read-only and lives as long as every slice of
        // it. Its bytes change only if another process rewrites the file while we run; every
        // length and offset is checked against the map before use, and bytes are read as plain
        // numbers for which every bit pattern is valid.
        let map = unsafe { Mmap::map(&file) }.map_err(|source| LoadError::io(path, source))?;
        Ok(Self {
            path: path.to_path_buf(),
            map,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }
}
