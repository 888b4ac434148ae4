//! What a request asks for of speculation.
//!
//! Neighbours: part of a `request.rs`; read by the speculator and `sampling_rows.rs`.

/// How a request is speculated. The default: as the engine is configured, sampled tokens verified
/// by shared noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeculationParams {
    /// Who drafts; `None`: whoever the engine is configured with.
    pub method: Option<SpecMethod>,
    /// Draft tokens per step, fixed; `None`: the controller decides.
    pub num_tokens: Option<u32>,
    /// How drafts are verified where the request samples. Greedy requests have no choice.
    pub verification: Verification,
    /// Requests with the same label share what is learnt about their acceptance.
    pub task: Option<u32>,
}

/// Who drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecMethod {
    /// Nobody.
    Off,
    /// The best, as measured, of those that need no extra weights, and of a draft model if there is
    /// one.
    Auto,
    /// The request's own text: the longest suffix n-gram seen before (prompt lookup).
    Ngram,
    /// A suffix automaton over the request and earlier outputs of its tenant.
    Suffix,
    /// A smaller model with the same tokenizer.
    DraftModel,
    /// The target's own first layers.
    LayerSkip,
    /// A drafter of the caller's own.
    Custom,
}

/// How drafts of a sampling request are verified. All are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verification {
    /// A position's token is a function of seed, position and distribution; a draft is kept where
    /// it equals that token. Output is the same with any draft, and with none.
    #[default]
    SharedNoise,
    /// Accepts with min(1, p / q), else draws from the residual (Leviathan et al. 2211.17192);
    /// siblings one after another (SpecInfer 2305.09781, Sequoia 2402.12374).
    Rejection,
    /// Decides on a whole chain at once (Sun et al. 2403.10444); trees fall back to
    /// [`Self::Rejection`].
    Block,
}
