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

    /// Tokens that the grammar leaves no choice about, at most `num_tokens_max`: guesses for a draft,
    /// verified like any other. `mask_words` is `ceil(V / 32)`.
    ///
    /// This looks for masks with a single token. Implementations that know better (bytes that must come,
    /// as the tokenizer would cut them) say more.
    fn forced(&self, num_tokens_max: usize, mask_words: usize) -> Vec<TokenId> {
        let mut state = self.fork();
        let mut forced = Vec::new();
        let mut mask = vec![0; mask_words];
        while forced.len() < num_tokens_max && !state.is_finished() {
            mask.fill(0);
            let num_allowed = |mask: &[u32]| mask.iter().map(|word| word.count_ones()).sum::<u32>();
            if state.fill_mask(&mut mask).is_err() || num_allowed(&mask) != 1 {
                break;
            }
            let word = mask.iter().position(|&word| word != 0).unwrap_or(0);
            let token = TokenId(32 * word as u32 + mask[word].trailing_zeros());
            if state.accept(token).is_err() {
                break;
            }
            forced.push(token);
        }
        forced
    }

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
