//! The door for structured output: what the engine asks a grammar, once per step.
//!
//! The engine knows no grammar formats. It asks which tokens may come, hands the mask to the
//! executor, and tells the grammar which token came.
//!
//! Neighbours: `request.rs` (who may carry one), `step_batch.rs` (masks travel with a step);
//! `forerun_models::grammar` implements it.

use crate::TokenId;

/// Which tokens may come next in one sequence. Implemented outside the engine (models: llguidance).
pub trait Grammar: std::fmt::Debug + Send {
    /// Sets bit `t` of `mask` (`[ceil(V / 32)]` words, zero when they come) for every token that
    /// may come next. The model's end tokens are set where the text may end here.
    ///
    /// # Errors
    /// No token may come, or the grammar gave up; the sequence cannot go on.
    fn fill_mask(&mut self, mask: &mut [u32]) -> Result<(), GrammarError>;

    /// Takes a token that the mask allowed.
    ///
    /// # Errors
    /// The token was not allowed, or the grammar gave up; the sequence cannot go on.
    fn accept(&mut self, token: TokenId) -> Result<(), GrammarError>;

    /// Nothing may follow: the sequence ends.
    fn is_finished(&self) -> bool;

    /// The same state for a forked sequence.
    fn fork(&self) -> Box<dyn Grammar>;
}

/// A grammar cannot go on, for the reason given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GrammarError {
    /// What happened.
    pub message: String,
}
