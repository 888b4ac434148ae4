//! Safetensors models: one file, or shards named by an index.
//!
//! Opening parses headers and checks that every tensor lies within its file; data stays in the
//! memory map until it is used.
//!
//! Source: the safetensors format page of Hugging Face; file names and index as their hub has them.
//! Neighbours: [`super`] (the [`Checkpoint`] contract), [`header`] (one file).

mod header;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::Ordering;

use forerun_kernels::packed::format::WeightFormat;

use self::header::{HeaderEntry, SafetensorsFile};
use super::error::LoadError;
use super::{Checkpoint, TensorView, format_names};

const SINGLE_NAME: &str = "model.safetensors";
const INDEX_NAME: &str = "model.safetensors.index.json";
const FORMATS: [WeightFormat; 3] = [WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16];

/// An open model in safetensors.
#[derive(Debug)]
pub struct SafetensorsModel {
    /// What was opened: a file or a folder.
    location: PathBuf,
    files: Vec<SafetensorsFile>,
    /// File and place in its header, by name.
    places: BTreeMap<String, (usize, usize)>,
}

/// The part of an index that matters.
#[derive(serde::Deserialize)]
struct ShardIndex {
    weight_map: BTreeMap<String, String>,
}

impl SafetensorsModel {
    /// Opens a `.safetensors` file, or the model in a folder: `model.safetensors`, else the shards
    /// that `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// Any [`LoadError`] about the files; [`LoadError::MissingFiles`] with every shard that is
    /// absent.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        if !path.is_dir() {
            return Self::open_single(path, path);
        }
        let single = path.join(SINGLE_NAME);
        if single.is_file() {
            return Self::open_single(path, &single);
        }
        let index = path.join(INDEX_NAME);
        if index.is_file() {
            return Self::open_shards(path, &index);
        }
        Err(LoadError::NotAModel {
            file: path.to_path_buf(),
            expected: "a folder with model.safetensors or model.safetensors.index.json",
            found: "neither".to_owned(),
        })
    }

    fn open_single(location: &Path, path: &Path) -> Result<Self, LoadError> {
        let file = SafetensorsFile::open(path)?;
        let places = (0..)
            .zip(&file.tensors)
            .map(|(place, entry)| (entry.name.clone(), (0, place)));
        Ok(Self {
            location: location.to_path_buf(),
            places: places.collect(),
            files: vec![file],
        })
    }

    fn open_shards(folder: &Path, index: &Path) -> Result<Self, LoadError> {
        let weight_map = read_index(index)?;
        let names = weight_map.values().collect::<BTreeSet<_>>();
        for name in &names {
            check_file_name(index, name)?;
        }
        let paths = names
            .iter()
            .map(|name| folder.join(name))
            .collect::<Vec<_>>();
        let missing = paths
            .iter()
            .filter(|path| !path.is_file())
            .cloned()
            .collect::<Vec<_>>();
        if !missing.is_empty() {
            return Err(LoadError::MissingFiles {
                file: index.to_path_buf(),
                missing,
            });
        }
        let files = paths
            .iter()
            .map(|path| SafetensorsFile::open(path))
            .collect::<Result<Vec<_>, _>>()?;
        let shard_names = names.into_iter().cloned().collect::<Vec<_>>();
        let places = place_shards(&weight_map, &shard_names, &files)?;
        Ok(Self {
            location: folder.to_path_buf(),
            files,
            places,
        })
    }

    fn entry(&self, name: &str) -> Option<(&SafetensorsFile, &HeaderEntry)> {
        let (file, place) = *self.places.get(name)?;
        let file = &self.files[file];
        Some((file, &file.tensors[place]))
    }
}

fn read_index(index: &Path) -> Result<BTreeMap<String, String>, LoadError> {
    let bytes = std::fs::read(index).map_err(|source| LoadError::io(index, source))?;
    let parsed: ShardIndex = serde_json::from_slice(&bytes).map_err(|error| {
        let expected = "JSON with a map `weight_map` from tensor to file name";
        LoadError::malformed(index, "shard index", expected, error.to_string())
    })?;
    if parsed.weight_map.is_empty() {
        return Err(LoadError::malformed(
            index,
            "weight_map",
            "at least one tensor",
            "none",
        ));
    }
    Ok(parsed.weight_map)
}

/// Shards lie beside their index: a name with folders in it could reach any file of the machine.
fn check_file_name(index: &Path, name: &str) -> Result<(), LoadError> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(_)), None) => Ok(()),
        _ => Err(LoadError::malformed(
            index,
            "shard name",
            "a plain file name",
            name,
        )),
    }
}

/// Finds every tensor of the index in the shard it names. Tensors that only a shard knows are
/// placed too, so that they can be reported as unread.
fn place_shards(
    weight_map: &BTreeMap<String, String>,
    shard_names: &[String],
    files: &[SafetensorsFile],
) -> Result<BTreeMap<String, (usize, usize)>, LoadError> {
    let mut places = BTreeMap::new();
    for (number, file) in files.iter().enumerate() {
        for (place, entry) in file.tensors.iter().enumerate() {
            if weight_map
                .get(&entry.name)
                .is_some_and(|shard| *shard != shard_names[number])
            {
                continue;
            }
            if places.insert(entry.name.clone(), (number, place)).is_some() {
                let expected = "one shard";
                return Err(LoadError::tensor(
                    file.path(),
                    &entry.name,
                    expected,
                    "several",
                ));
            }
        }
    }
    for (name, shard) in weight_map {
        if !places.contains_key(name) {
            let number = shard_names.iter().position(|known| known == shard);
            let file =
                number.map_or_else(|| PathBuf::from(shard), |n| files[n].path().to_path_buf());
            return Err(LoadError::MissingTensor {
                file,
                tensor: name.clone(),
            });
        }
    }
    Ok(places)
}

impl Checkpoint for SafetensorsModel {
    fn location(&self) -> &Path {
        &self.location
    }

    fn tensor(&self, name: &str) -> Result<TensorView<'_>, LoadError> {
        let Some((file, entry)) = self.entry(name) else {
            return Err(LoadError::MissingTensor {
                file: self.location.clone(),
                tensor: name.to_owned(),
            });
        };
        let Some(format) = entry.format() else {
            return Err(LoadError::UnsupportedFormat {
                file: file.path().to_path_buf(),
                tensor: name.to_owned(),
                expected: format_names(&FORMATS),
                found: entry.dtype.clone(),
            });
        };
        entry.was_read.store(true, Ordering::Relaxed);
        Ok(TensorView {
            name: &entry.name,
            file: file.path(),
            format,
            shape: &entry.shape,
            bytes: file.bytes(entry),
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
