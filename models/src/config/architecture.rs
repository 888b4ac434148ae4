//! The kinds of model that the engine runs, as a table: what they are called in each kind of file,
//! and what holds for all models of the kind.
//!
//! Neighbours: [`super::hf`] and [`super::gguf`] (who look up), [`super::names`] (tensor names).

use forerun_kernels::spec::RopePairing;

/// A kind of decoder. To add one: a variant, a line in [`ENTRIES`], its names in
/// [`super::names`], and what its files leave out in [`super::hf`] and [`super::gguf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Llama 1 to 3 and what shares its shape: SmolLM2, TinyLlama.
    Llama,
    /// Gemma 3, text.
    Gemma3,
}

/// What holds for all models of a kind.
#[derive(Debug)]
pub(super) struct ArchitectureEntry {
    pub(super) architecture: Architecture,
    /// `model_type` of `config.json`.
    pub(super) hf_model_type: &'static str,
    /// `general.architecture`, which is the prefix of the metadata keys too.
    pub(super) gguf_name: &'static str,
    /// Whether the output matrix is the embedding where `config.json` does not say.
    pub(super) ties_embeddings: bool,
    /// GGUF files of the Llama family have the rows of q and k permuted.
    pub(super) gguf_pairing: RopePairing,
    /// Hugging Face checkpoints of Gemma store norm weights less this.
    pub(super) hf_norm_offset: f32,
    /// RMS norm of each head of q and k.
    pub(super) has_qk_norm: bool,
    /// A norm after attention and after the MLP, besides those before them.
    pub(super) has_sandwich_norms: bool,
}

pub(super) const ENTRIES: [ArchitectureEntry; 2] = [
    ArchitectureEntry {
        architecture: Architecture::Llama,
        hf_model_type: "llama",
        gguf_name: "llama",
        ties_embeddings: false,
        gguf_pairing: RopePairing::Interleaved,
        hf_norm_offset: 0.0,
        has_qk_norm: false,
        has_sandwich_norms: false,
    },
    ArchitectureEntry {
        architecture: Architecture::Gemma3,
        hf_model_type: "gemma3_text",
        gguf_name: "gemma3",
        ties_embeddings: true,
        gguf_pairing: RopePairing::Halves,
        hf_norm_offset: 1.0,
        has_qk_norm: true,
        has_sandwich_norms: true,
    },
];

pub(super) fn by_hf_model_type(name: &str) -> Option<&'static ArchitectureEntry> {
    ENTRIES.iter().find(|entry| entry.hf_model_type == name)
}

pub(super) fn by_gguf_name(name: &str) -> Option<&'static ArchitectureEntry> {
    ENTRIES.iter().find(|entry| entry.gguf_name == name)
}

impl Architecture {
    /// Factor on the rows of the embedding. Rounded to f32, as the reference does, and no further.
    pub(super) fn embedding_scale(self, d_model: usize) -> f32 {
        match self {
            Self::Llama => 1.0,
            Self::Gemma3 => (d_model as f64).sqrt() as f32,
        }
    }
}
