//! What a grammar is to the engine: which tokens may come next.
//!
//! Neighbours: compiled outside (`forerun-models`, `grammar/`) while its request is parked; a
//! sequence owns one; `step_batch/` asks it for masks and `sequence/mod.rs` feeds it tokens.

use std::fmt::Debug;

use thiserror::Error;

use crate::TokenId;

/// Which tokens may come next in one sequence. Implemented outside the engine.
pub trait Grammar: Debug + Send {
    /// Sets bit `t` of `mask` (`[ceil(V / 32)]` words, zero when they come) for every token that
    /// may come next. The model's end tokens are set where the text may end here.
    ///
    /// # Errors
    /// [`GrammarError`] if the grammar cannot go on.
    fn fill_mask(&mut self, mask: &mut [u32]) -> Result<(), GrammarError>;

    /// Takes a token that the mask allowed.
    ///
    /// # Errors
    /// [`GrammarError`] if it does not fit.
    fn accept(&mut self, token: TokenId) -> Result<(), GrammarError>;

    /// Nothing may follow: the sequence ends.
    fn is_finished(&self) -> bool;

    /// The same state for a forked sequence.
    fn fork(&self) -> Box<dyn Grammar>;
}

/// A grammar that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct GrammarError {
    /// What happened, for whoever sent the request.
    pub message: String,
}
