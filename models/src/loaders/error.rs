//! What can be wrong with a model file. Every variant names the file, and the tensor or key where
//! there is one, with what was expected and what was found.
//!
//! Neighbours: [`super`] (who returns it), [`crate::config`] (wraps it).

use std::io;
use std::path::{Path, PathBuf};

/// A model file could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The operating system refused.
    #[error("cannot read {}: {source}", file.display())]
    Io {
        /// File or folder.
        file: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The path holds nothing that can be loaded.
    #[error("{}: expected {expected}, found {found}", file.display())]
    NotAModel {
        /// File or folder.
        file: PathBuf,
        /// What would have been accepted.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The file ends inside a part that its header announces.
    #[error(
        "{} is cut short: {what} needs {needed_bytes} bytes at byte {offset}, but only \
         {available_bytes} are left; download the file again", file.display()
    )]
    Truncated {
        /// File.
        file: PathBuf,
        /// Part of the file.
        what: String,
        /// Where it begins.
        offset: u64,
        /// Bytes it needs.
        needed_bytes: u64,
        /// Bytes from `offset` to the end of the file.
        available_bytes: u64,
    },
    /// A field holds a value that the format forbids.
    #[error("{}: {what}: expected {expected}, found {found}", file.display())]
    Malformed {
        /// File.
        file: PathBuf,
        /// Field.
        what: String,
        /// What the format allows.
        expected: String,
        /// What the file says.
        found: String,
    },
    /// A metadata key is missing.
    #[error("{}: metadata key `{key}` is missing", file.display())]
    MissingKey {
        /// File.
        file: PathBuf,
        /// Key.
        key: String,
    },
    /// A metadata value has another type, or a value out of range.
    #[error("{}: metadata key `{key}`: expected {expected}, found {found}", file.display())]
    WrongValue {
        /// File.
        file: PathBuf,
        /// Key.
        key: String,
        /// Type and range that were asked for.
        expected: &'static str,
        /// Type or value in the file.
        found: String,
    },
    /// Files that belong to the model are not there.
    #[error("{} needs files that are missing: {}", file.display(), list(missing))]
    MissingFiles {
        /// The file that names them.
        file: PathBuf,
        /// The absent files.
        missing: Vec<PathBuf>,
    },
    /// The tensor is not in the model.
    #[error("{} has no tensor `{tensor}`", file.display())]
    MissingTensor {
        /// File or folder.
        file: PathBuf,
        /// Tensor.
        tensor: String,
    },
    /// The tensor is stored in a format that cannot be used here.
    #[error("{}: tensor `{tensor}` is stored as {found}, expected one of {expected}", file.display())]
    UnsupportedFormat {
        /// File.
        file: PathBuf,
        /// Tensor.
        tensor: String,
        /// Formats that would have been accepted.
        expected: String,
        /// Format in the file.
        found: String,
    },
    /// The tensor has another shape than the configuration implies.
    #[error("{}: tensor `{tensor}` has shape {found:?}, expected {expected:?}", file.display())]
    WrongShape {
        /// File.
        file: PathBuf,
        /// Tensor.
        tensor: String,
        /// Shape implied by the configuration, row-major.
        expected: Vec<usize>,
        /// Shape in the file, row-major.
        found: Vec<usize>,
    },
    /// The shape of a tensor is impossible or does not fit its bytes.
    #[error("{}: tensor `{tensor}`: expected {expected}, found {found}", file.display())]
    MalformedTensor {
        /// File.
        file: PathBuf,
        /// Tensor.
        tensor: String,
        /// What the format allows.
        expected: String,
        /// What the file says.
        found: String,
    },
    /// The data of a tensor reaches past the end of the file.
    #[error(
        "{} is cut short: tensor `{tensor}` ends at byte {end}, the file at byte {file_bytes}: \
         {} bytes are missing; download the file again", file.display(), end - file_bytes
    )]
    TensorPastEnd {
        /// File.
        file: PathBuf,
        /// Tensor.
        tensor: String,
        /// Byte after the tensor, counted from the start of the file.
        end: u64,
        /// Length of the file.
        file_bytes: u64,
    },
    /// Two tensors share bytes.
    #[error("{}: tensors `{first}` and `{second}` overlap at byte {offset}", file.display())]
    TensorOverlap {
        /// File.
        file: PathBuf,
        /// The one that begins first.
        first: String,
        /// The other.
        second: String,
        /// Where the second begins, counted from the start of the file.
        offset: u64,
    },
    /// Tensors that no layer asked for: the model is not what its configuration says.
    #[error(
        "{} holds {} tensors that no layer of this model uses: {}",
        file.display(), tensors.len(), first_names(tensors)
    )]
    UnreadTensors {
        /// File or folder.
        file: PathBuf,
        /// All of them.
        tensors: Vec<String>,
    },
}

impl LoadError {
    pub(crate) fn io(file: &Path, source: io::Error) -> Self {
        Self::Io {
            file: file.to_path_buf(),
            source,
        }
    }

    pub(crate) fn malformed(
        file: &Path,
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Malformed {
            file: file.to_path_buf(),
            what: what.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(crate) fn tensor(
        file: &Path,
        tensor: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::MalformedTensor {
            file: file.to_path_buf(),
            tensor: tensor.to_owned(),
            expected: expected.into(),
            found: found.into(),
        }
    }
}

fn list(files: &[PathBuf]) -> String {
    files
        .iter()
        .map(|file| file.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The first few names: a wrong configuration may leave hundreds unread.
fn first_names(names: &[String]) -> String {
    const SHOWN_MAX: usize = 8;
    let shown = names
        .iter()
        .take(SHOWN_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > SHOWN_MAX {
        format!("{shown}, ...")
    } else {
        shown
    }
}
