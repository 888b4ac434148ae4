//! GGUF files, version 2 and 3: typed metadata and tensors, straight from the memory map.
//!
//! A model may be split over files named `<name>-00001-of-00003.gguf`; naming any of them opens
//! all. The first holds the model's metadata.
//!
//! Source: the GGUF specification (`docs/gguf.md` of the ggml repository).
//! Neighbours: [`super`] (the [`Checkpoint`] contract), [`part`] (one file), [`metadata`],
//! [`tensors`].

mod metadata;
mod part;
mod reader;
mod tensors;
mod value;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;

use forerun_kernels::packed::format::WeightFormat;

use self::part::GgufPart;
use self::tensors::{TensorEntry, TensorType};
use super::error::LoadError;
use super::{Checkpoint, TensorView, format_names};

pub use self::metadata::Metadata;
pub use self::value::{MetaArray, MetaType, MetaValue};

/// An open model in GGUF.
#[derive(Debug)]
pub struct GgufFile {
    /// In order of their numbers, at least one.
    parts: Vec<GgufPart>,
    /// Part and place in its table, by name.
    places: BTreeMap<String, (usize, usize)>,
}

impl GgufFile {
    /// Opens a file and, if it is one part of several, the others beside it.
    ///
    /// # Errors
    /// Any [`LoadError`] about the file; [`LoadError::MissingFiles`] with every part that is absent.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let part = GgufPart::open(path)?;
        let num_parts = part.metadata().u32("split.count")?.unwrap_or(1);
        let parts = if num_parts > 1 {
            open_parts(&part, num_parts)?
        } else {
            vec![part]
        };
        let places = index(&parts)?;
        Ok(Self { parts, places })
    }

    /// Metadata of the model (of the first part, where there are several).
    pub fn metadata(&self) -> Metadata<'_> {
        self.parts[0].metadata()
    }

    /// `general.architecture`.
    pub fn architecture(&self) -> Result<&str, LoadError> {
        self.metadata().architecture()
    }

    /// Path of the (first) file.
    pub fn path(&self) -> &Path {
        self.parts[0].map.path()
    }

    /// Shape of a tensor, row-major, without counting as a read of it.
    pub fn shape_of(&self, name: &str) -> Option<&[usize]> {
        self.entry(name).map(|(_, entry)| entry.shape.as_slice())
    }

    fn entry(&self, name: &str) -> Option<(&GgufPart, &TensorEntry)> {
        let (part, place) = *self.places.get(name)?;
        let part = &self.parts[part];
        Some((part, &part.tensors[place]))
    }
}

impl Checkpoint for GgufFile {
    fn location(&self) -> &Path {
        self.path()
    }

    fn tensor(&self, name: &str) -> Result<TensorView<'_>, LoadError> {
        let Some((part, entry)) = self.entry(name) else {
            return Err(LoadError::MissingTensor {
                file: self.path().to_path_buf(),
                tensor: name.to_owned(),
            });
        };
        let TensorType::Usable(format) = entry.stored_type else {
            return Err(LoadError::UnsupportedFormat {
                file: part.map.path().to_path_buf(),
                tensor: name.to_owned(),
                expected: format_names(&WeightFormat::ALL),
                found: entry.stored_type.describe(),
            });
        };
        entry.was_read.store(true, Ordering::Relaxed);
        Ok(TensorView {
            name: &entry.name,
            file: part.map.path(),
            format,
            shape: &entry.shape,
            bytes: &part.map.bytes()[entry.range.clone()],
        })
    }

    fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    fn names(&self) -> Vec<&str> {
        self.places.keys().map(String::as_str).collect()
    }

    fn unread(&self) -> Vec<&str> {
        let unread = |name: &&String| {
            self.entry(name)
                .is_some_and(|(_, entry)| !entry.was_read.load(Ordering::Relaxed))
        };
        self.places
            .keys()
            .filter(unread)
            .map(String::as_str)
            .collect()
    }
}

fn index(parts: &[GgufPart]) -> Result<BTreeMap<String, (usize, usize)>, LoadError> {
    let mut places = BTreeMap::new();
    for (number, part) in parts.iter().enumerate() {
        for (place, entry) in part.tensors.iter().enumerate() {
            if places.insert(entry.name.clone(), (number, place)).is_some() {
                let file = part.map.path();
                return Err(LoadError::tensor(
                    file,
                    &entry.name,
                    "each name once",
                    "it twice",
                ));
            }
        }
    }
    Ok(places)
}

/// Opens all parts of a split model, of which `part` is one.
fn open_parts(part: &GgufPart, num_parts: u32) -> Result<Vec<GgufPart>, LoadError> {
    let path = part.map.path();
    let stem = split_stem(path, num_parts).ok_or_else(|| {
        let expected = format!("a name ending in -00001-of-{num_parts:05}.gguf or another part's");
        LoadError::malformed(
            path,
            "file name of a split model",
            expected,
            path.display().to_string(),
        )
    })?;
    let mut missing = Vec::new();
    let mut paths = Vec::new();
    for number in 1..=num_parts {
        let path = path.with_file_name(format!("{stem}-{number:05}-of-{num_parts:05}.gguf"));
        if !path.is_file() {
            missing.push(path.clone());
        }
        paths.push(path);
    }
    if !missing.is_empty() {
        return Err(LoadError::MissingFiles {
            file: path.to_path_buf(),
            missing,
        });
    }
    let parts = paths
        .iter()
        .map(|path| GgufPart::open(path))
        .collect::<Result<Vec<_>, _>>()?;
    for (number, part) in (0..).zip(&parts) {
        check_part(part, number, num_parts)?;
    }
    check_tensor_count(&parts)?;
    Ok(parts)
}

/// The name without `-00001-of-00003.gguf`, if it has that form with these numbers.
fn split_stem(path: &Path, num_parts: u32) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let rest = name.strip_suffix(&format!("-of-{num_parts:05}.gguf"))?;
    let (stem, number) = rest.rsplit_once('-')?;
    let number = number.parse::<u32>().ok()?;
    (1..=num_parts).contains(&number).then_some(stem)
}

fn check_part(part: &GgufPart, number: u32, num_parts: u32) -> Result<(), LoadError> {
    let metadata = part.metadata();
    let found = (metadata.u32("split.no")?, metadata.u32("split.count")?);
    if found == (Some(number), Some(num_parts)) {
        return Ok(());
    }
    let expected = format!("split.no {number}, split.count {num_parts}");
    let found = format!("split.no {:?}, split.count {:?}", found.0, found.1);
    Err(LoadError::malformed(
        part.map.path(),
        "place among the parts",
        expected,
        found,
    ))
}

fn check_tensor_count(parts: &[GgufPart]) -> Result<(), LoadError> {
    let Some(expected) = parts[0].metadata().u64("split.tensors.count")? else {
        return Ok(());
    };
    let found = parts
        .iter()
        .map(|part| part.tensors.len() as u64)
        .sum::<u64>();
    if found == expected {
        return Ok(());
    }
    let what = format!("tensors in all {} parts", parts.len());
    Err(LoadError::malformed(
        parts[0].map.path(),
        what,
        expected.to_string(),
        found.to_string(),
    ))
}
