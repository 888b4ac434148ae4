//! What can be wrong with a tokenizer or with a request to it.
//!
//! Neighbours: [`crate::loaders::error`] (errors of the file itself), [`super::chat_template`]
//! (errors of templates).

use std::path::PathBuf;

use super::chat_template::TemplateError;
use crate::loaders::LoadError;

/// A tokenizer could not be loaded or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The GGUF file could not be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The chat template is absent, wrong, or refused the conversation.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A file of the tokenizer could not be read.
    #[error("cannot read {}: {source}", file.display())]
    Io {
        /// File.
        file: PathBuf,
        /// Reason.
        source: std::io::Error,
    },
    /// A file of the tokenizer is not what it should be.
    #[error("{}: {detail}", file.display())]
    Malformed {
        /// File.
        file: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A tokenizer of a kind, or with a part, that is not supported.
    #[error("tokenizer {what} `{found}` is not supported; supported are {supported}")]
    Unsupported {
        /// Part of the tokenizer.
        what: &'static str,
        /// The value found.
        found: String,
        /// Values that would work.
        supported: &'static str,
    },
    /// An entry of the vocabulary has a wrong value.
    #[error("tokenizer {what}: expected {expected}, found {found}")]
    Vocabulary {
        /// Part of the vocabulary.
        what: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// BOS should be added, but the tokenizer has no such token.
    #[error("the tokenizer asks to prepend a BOS token (`{asked_by}` is true) but names none")]
    BosWithoutId {
        /// The setting that asks for BOS.
        asked_by: &'static str,
    },
    /// The tokenizer library failed on a text.
    #[error("the text cannot be tokenized: {0}")]
    Encode(String),
}

impl TextError {
    pub(super) fn vocabulary(
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Vocabulary {
            what: what.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }
}
