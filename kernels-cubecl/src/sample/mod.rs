//! Sampling: the next token of every logit row, greedy or with noise that a seed determines.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | logits | `[R, V]` | f32 | contiguous | `-inf` masks a token; at least one token stays finite |
//! | step | `[words]` | u32 | [`crate::step_inputs`] | temperature, seed and position of each row |
//! | output | `[R, 2]` | u32 | contiguous | token id `< V`, status; every live row written |
//!
//! Status is 0, or 1 if the row holds a NaN, a `+inf`, or nothing but `-inf`; the token id of such
//! a row is 0 and means nothing.
//!
//! # Formula
//! Temperature below 1e-6 (or NaN): the token with the greatest logit, the lowest id among equals.
//! Else the argmax over tokens, the lowest id among equals, of
//! `(logit - max(logits)) / temperature + gumbel(seed, position, token)`, all in f32, where
//!
//! ```text
//! word     = philox4x32_10(counter = [token, position, purpose, anchor], key = [seed_low, seed_high])[0]
//! u        = ((word >> 9) + 0.5) * 2^-23          exact in f32, 2^-24 <= u <= 1 - 2^-24
//! gumbel   = -ln(-ln u)                           finite: between -2.82 and 16.64
//! ```
//!
//! The purpose is 0 for sampling, and then the anchor counts as 0: drafts change nothing. A draft
//! model whose drafts are verified by rejection draws with purpose 3, and [`crate::verify`] has two
//! others, so that no two draws for one position share noise unless they mean to.
//!
//! 23 bits and not 24: `2^24 - 1 + 0.5` rounds to `2^24` in f32, u would be 1 and its noise
//! infinite, once in 16 million draws, which is every 64th step of a vocabulary of 262144.
//! `ln` must have a small *relative* error near 1: the tokens with the most noise have u there.
//!
//! # Errors
//! none; bad rows are reported by status, so that their neighbours go on
//!
//! # Launch
//! native: tasks of [`flex::CHUNK`] tokens of a row, merged in order; device: a cube
//! per row, padding rows are zeros
//!
//! # Numerics
//! the token depends on its row and parameters alone, not on neighbours or threads;
//! backends agree unless two tokens are within some 1e-6 of each other
//!
//! # Cost
//! bytes = 4 V per row, twice with noise; bound: memory
//!
//! # Source
//! Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox);
//! Gumbel-max: Maddison et al., "A* Sampling", NIPS 2014
//!
//! # Reference
//! [`flex::reference`]
//!
//! # Tests
//! `flex/tests.rs`
//!
//! # Bench
//! `benches/native_ops.rs`

use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;
pub mod philox;

/// Words of a verdict.
pub const VERDICT_WORDS: usize = 2;

/// The next token of every logit row.
///
/// # Shapes
/// - logits: `[R, V]`
/// - step: the buffer of [`crate::step_inputs`]
/// - output: `[R, 2]` u32: token id, status; rows past the live ones are zeros
pub fn sample(logits: Tensor<2>, step: Tensor<1, Int>) -> Tensor<2, Int> {
    Tensor::from_dispatch(<Dispatch as KernelBackend>::sample(
        logits.into_dispatch(),
        step.into_dispatch(),
    ))
}
