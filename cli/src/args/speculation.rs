//! Flags that say who drafts and how drafts are verified.
//!
//! Neighbours: `speculation/settings.rs` reads them together with `--speculative-config`.

use clap::{Args, ValueEnum};
use forerun_engine::{SpecMethod, Verification};

/// Speculation: what is guessed ahead. It changes how fast text comes, never what it says.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculationArgs {
    /// Who drafts. Default: auto, the best that needs no extra weights, or the draft model if
    /// --spec-model names one.
    #[arg(long, value_enum)]
    pub(crate) spec_method: Option<MethodArg>,
    /// A smaller model with the same tokenizer, to draft.
    #[arg(long, value_name = "MODEL")]
    pub(crate) spec_model: Option<String>,
    /// Draft tokens in a step. Default: as many as pay, which may be none.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) spec_tokens: Option<u32>,
    /// Most guesses for the same place: 1 drafts chains, more draft trees.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) spec_tree: Option<u32>,
    /// How drafts of sampled text are verified. All are exact. Default: shared-noise with --seed,
    /// which gives the same text with any drafter and with none; rejection without.
    #[arg(long, value_enum)]
    pub(crate) spec_verify: Option<VerifyArg>,
    /// Layers of the target that draft with layer-skip. Default: a third of them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) spec_layers: Option<u32>,
    /// The same as vLLM takes it: an object with method, model, num_speculative_tokens,
    /// prompt_lookup_min, prompt_lookup_max, rejection_sample_method.
    #[arg(long, value_name = "JSON")]
    pub(crate) speculative_config: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodArg {
    /// Nobody: one token per pass.
    None,
    /// The longest suffix n-gram of the text that came before.
    Ngram,
    /// A suffix index over the text and earlier answers.
    Suffix,
    /// The model that --spec-model names.
    DraftModel,
    /// The model's own first layers.
    LayerSkip,
    /// The best of them, as measured.
    Auto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyArg {
    /// A position's token is fixed by seed and distribution; drafts are kept where they equal it.
    SharedNoise,
    /// Rejection sampling.
    Rejection,
    /// Rejection sampling of a whole chain at once.
    Block,
}

impl From<MethodArg> for SpecMethod {
    fn from(method: MethodArg) -> Self {
        match method {
            MethodArg::None => Self::Off,
            MethodArg::Ngram => Self::Ngram,
            MethodArg::Suffix => Self::Suffix,
            MethodArg::DraftModel => Self::DraftModel,
            MethodArg::LayerSkip => Self::LayerSkip,
            MethodArg::Auto => Self::Auto,
        }
    }
}

impl From<VerifyArg> for Verification {
    fn from(verify: VerifyArg) -> Self {
        match verify {
            VerifyArg::SharedNoise => Self::SharedNoise,
            VerifyArg::Rejection => Self::Rejection,
            VerifyArg::Block => Self::Block,
        }
    }
}
