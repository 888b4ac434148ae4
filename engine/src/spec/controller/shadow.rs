//! A draft that is compared with the tokens that come after it was made. Whether it was verified does
//! not matter, so that what is not tried is learnt about as well.
//!
//! Neighbours: kept by `speculator.rs` for each sequence; what it finds goes to [`super::Controller`].

use super::Offer;
use crate::TokenId;

/// The likeliest path of a draft, waiting for what comes.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    pub(crate) offer: Offer,
    guesses: Vec<TokenId>,
    /// Tokens that the sequence had when it was made.
    base: usize,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Not all of it can be judged yet.
    Open,
    /// So many guesses came true, and then one did not if the flag is set.
    Judged(usize, bool),
}

impl Shadow {
    pub(crate) fn new(offer: Offer, guesses: Vec<TokenId>, base: usize) -> Self {
        Self {
            offer,
            guesses,
            base,
        }
    }

    /// Compares with the tokens of the sequence as they are now.
    pub(crate) fn judge(&self, tokens: &[TokenId]) -> Fate {
        let came = &tokens[self.base.min(tokens.len())..];
        let pairs = came.iter().zip(&self.guesses);
        let num_true = pairs.take_while(|(token, guess)| token == guess).count();
        if num_true == self.guesses.len() {
            Fate::Judged(num_true, false)
        } else if num_true < came.len() {
            Fate::Judged(num_true, true)
        } else {
            Fate::Open
        }
    }
}
