//! What can be wrong with a model's configuration. Every variant names the file and the field, with
//! what was found and what would have been accepted.
//!
//! Neighbours: [`super::hf`] and [`super::gguf`] (who return it), [`crate::loaders::error`].

use std::path::{Path, PathBuf};

use crate::loaders::LoadError;

/// The configuration of a model cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file itself is at fault.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Not JSON, or a field of another type.
    #[error("{}: {source}", file.display())]
    Json {
        /// File.
        file: PathBuf,
        /// Line, column and reason.
        source: serde_json::Error,
    },
    /// A field without a default is missing.
    #[error("{}: `{field}` is missing", file.display())]
    Missing {
        /// File.
        file: PathBuf,
        /// Field or metadata key.
        field: String,
    },
    /// A field holds a value that is impossible, or that is not supported.
    #[error("{}: `{field}`: expected {expected}, found {found}", file.display())]
    Invalid {
        /// File.
        file: PathBuf,
        /// Field or metadata key.
        field: String,
        /// What would have been accepted.
        expected: String,
        /// What the file says.
        found: String,
    },
    /// The model is of a kind that the engine does not run.
    #[error("{}: architecture `{found}` is not supported; supported are {supported}", file.display())]
    UnsupportedArchitecture {
        /// File.
        file: PathBuf,
        /// What the file says.
        found: String,
        /// Names that are accepted in this kind of file.
        supported: String,
    },
    /// The kind of rotary scaling is unknown, or known and not written yet.
    #[error("{}: rope type `{found}` is not supported yet; supported are {supported}", file.display())]
    UnsupportedRope {
        /// File.
        file: PathBuf,
        /// What the file says.
        found: String,
        /// Names that are accepted in this kind of file.
        supported: &'static str,
    },
    /// The configuration says that the output matrix is not the embedding, and there is none.
    #[error(
        "{}: `tie_word_embeddings` is false, but the weights have no `{tensor}`: the file is \
         incomplete, or the setting is wrong and must be true", location.display()
    )]
    MissingOutputMatrix {
        /// File or folder of the weights.
        location: PathBuf,
        /// Name it would have.
        tensor: String,
    },
}

impl ConfigError {
    pub(super) fn missing(file: &Path, field: impl Into<String>) -> Self {
        Self::Missing {
            file: file.to_path_buf(),
            field: field.into(),
        }
    }

    pub(super) fn invalid(
        file: &Path,
        field: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Invalid {
            file: file.to_path_buf(),
            field: field.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }
}
