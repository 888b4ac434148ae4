//! One file in GGUF: header, metadata and tensor table. A model may be split over several.
//!
//! Source: the GGUF specification (`docs/gguf.md` of the ggml repository), versions 2 and 3.
//! Neighbours: [`super`] (joins the parts), [`super::metadata`], [`super::tensors`].

use std::collections::BTreeMap;
use std::path::Path;

use super::super::error::LoadError;
use super::super::mapped::MappedFile;
use super::metadata::{Metadata, RawValue, read_values};
use super::reader::Reader;
use super::tensors::{TensorEntry, read_table};
use super::value::{MetaType, MetaValue};

/// Alignment of the tensors where the file does not say.
const ALIGNMENT: usize = 32;

/// A parsed file.
#[derive(Debug)]
pub(super) struct GgufPart {
    pub(super) map: MappedFile,
    values: BTreeMap<String, RawValue>,
    pub(super) tensors: Vec<TensorEntry>,
}

impl GgufPart {
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        let map = MappedFile::open(path)?;
        let mut reader = Reader::new(map.path(), map.bytes());
        read_version(&mut reader)?;
        let num_tensors = reader.u64(&"the number of tensors")?;
        let num_values = reader.u64(&"the number of metadata keys")?;
        let values = read_values(&mut reader, num_values)?;
        let metadata = Metadata {
            file: map.path(),
            bytes: map.bytes(),
            values: &values,
        };
        let alignment = alignment(&metadata)?;
        let tensors = read_table(&mut reader, num_tensors, alignment, map.bytes().len())?;
        Ok(Self {
            map,
            values,
            tensors,
        })
    }

    pub(super) fn metadata(&self) -> Metadata<'_> {
        Metadata {
            file: self.map.path(),
            bytes: self.map.bytes(),
            values: &self.values,
        }
    }
}

fn read_version(reader: &mut Reader<'_>) -> Result<(), LoadError> {
    let magic = reader.magic()?;
    if &magic != b"GGUF" {
        return Err(LoadError::NotAModel {
            file: reader.file().to_path_buf(),
            expected: "a GGUF file, which begins with the letters GGUF",
            found: format!("the bytes {magic:02x?}"),
        });
    }
    let version = reader.u32(&"the version")?;
    if !(2..=3).contains(&version) {
        let found = match version.swap_bytes() {
            swapped @ 1..=3 => format!("{swapped} in big-endian order"),
            _ => version.to_string(),
        };
        return Err(LoadError::malformed(
            reader.file(),
            "GGUF version",
            "2 or 3, little-endian",
            found,
        ));
    }
    Ok(())
}

fn alignment(metadata: &Metadata<'_>) -> Result<usize, LoadError> {
    const KEY: &str = "general.alignment";
    const EXPECTED: &str = "a power of two stored as U32";
    let Some(value) = metadata.get(KEY)? else {
        return Ok(ALIGNMENT);
    };
    match value {
        MetaValue::Unsigned(alignment)
            if metadata.stored_type(KEY) == Some(MetaType::U32) && alignment.is_power_of_two() =>
        {
            // A U32 fits.
            Ok(alignment as usize)
        }
        other => Err(metadata.wrong(KEY, EXPECTED, super::value::describe(&other))),
    }
}
