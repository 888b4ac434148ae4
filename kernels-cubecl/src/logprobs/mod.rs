//! Log-probabilities of chosen tokens and of the most likely ones.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | raw | `[R, V]` | f32 | contiguous | the model's logits |
//! | processed | `[R, V]` | f32 | contiguous | those after [`crate::logits_process`] |
//! | verdicts | `[R, 2]` | u32 | contiguous | of [`crate::sample`]: token id, status |
//! | step | `[words]` | u32 | [`crate::step_inputs`] | sampling rows |
//! | num_top | | | | pairs in a row, at most [`crate::step_inputs::LOGPROBS_TOP_MAX`] and V |
//! | output | `[R, 4 + 2 num_top]` | u32 | contiguous | see below; every row written |
//!
//! | word | meaning |
//! |---|---|
//! | 0, 1 | the verdict: token id, status |
//! | 2 | f32 bits: logprob of the chosen token, which is the row's `target` or else the verdict's |
//! | 3 | rank of the chosen token, 1 for the first of the order below |
//! | 4 + 2 i, 5 + 2 i | token id, f32 bits of its logprob: the i-th of the order below |
//!
//! The order is by logit, greatest first, and by id among equals; masked tokens come last, with
//! logprob `-inf`. A row that asks for fewer tokens than `num_top` has zeros after them, and one that
//! asks for none, or cannot be sampled (status 1), has zeros after its verdict.
//!
//! # Formula
//! `logprob = (x - max) / t - ln(sum(exp((x - max) / t)))` over the row's logits x: raw ones with
//! t = 1, processed ones with t the temperature, or 1 if greedy
//!
//! # Errors
//! none; a target outside the vocabulary was refused when the step was packed
//!
//! # Launch
//! native: a task per row; device: a cube per row, 32 passes over rows that ask for tokens
//!
//! # Numerics
//! f32, tolerance 1e-5 absolute below a logprob of -10, else 2e-6; ranks and order are exact
//!
//! # Cost
//! bytes = 4 V per row and pass; bound: memory
//!
//! # Source
//! none
//!
//! # Reference
//! [`flex::reference`]
//!
//! # Tests
//! `flex/tests.rs`

use crate::backend::KernelBackend;
use crate::step_inputs::LOGPROBS_TOP_MAX;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;

/// From here on logits no longer matter; keeps `-inf / temperature` from being NaN.
const TEMPERATURE_MAX: f32 = 1e30;

/// Words of a row before its pairs.
pub const ROW_WORDS: usize = 4;

/// Logprobs of each row that asks for them, after its verdict.
///
/// # Shapes
/// - raw, processed: `[R, V]`
/// - verdicts: `[R, 2]`
/// - step: the buffer of [`crate::step_inputs`]
/// - output: `[R, 4 + 2 num_top]`
///
/// # Panics
/// If the shapes disagree, or `num_top` is above [`LOGPROBS_TOP_MAX`] or V.
pub fn logprobs(
    raw: Tensor<2>,
    processed: Tensor<2>,
    verdicts: Tensor<2, Int>,
    step: Tensor<1, Int>,
    num_top: usize,
) -> Tensor<2, Int> {
    let [num_rows, vocab_size] = raw.dims();
    crate::check::shape("logprobs", "processed", processed.dims(), raw.dims());
    crate::check::shape("logprobs", "verdicts", verdicts.dims(), [num_rows, 2]);
    assert!(
        num_top <= LOGPROBS_TOP_MAX.min(vocab_size),
        "logprobs: {num_top} tokens of {vocab_size}, at most {LOGPROBS_TOP_MAX}"
    );
    Tensor::from_dispatch(<Dispatch as KernelBackend>::logprobs(
        raw.into_dispatch(),
        processed.into_dispatch(),
        verdicts.into_dispatch(),
        step.into_dispatch(),
        num_top,
    ))
}
