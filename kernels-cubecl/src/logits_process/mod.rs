//! Everything between a model's logits and the draw: biases, penalties, grammar masks and filters.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | logits | `[R, V]` | f32 | contiguous | in place; `-inf` masks a token |
//! | step | `[words]` | u32 | [`crate::step_inputs`] | sampling rows, history, biases, masks |
//! | output | `[R, V]` | f32 | contiguous | kept tokens: unscaled logits; others: `-inf` (bits `0xff80_0000`) |
//!
//! Rows whose [`crate::step_inputs::SamplingRow::needs_processing`] is false, padding, and rows that
//! hold a NaN, a `+inf` or nothing but `-inf` stay as they are: [`crate::sample`] reports the latter.
//!
//! # Formula
//! For each row, in this order:
//!
//! 1. bias: added to the logit; a bias of `-inf` masks.
//! 2. repetition: a logit above 0 is divided by the penalty, else multiplied, once for each distinct
//!    token of prompt and output.
//! 3. frequency: minus penalty times output count. Presence: minus penalty where that count is not 0.
//!    The carried token ([`crate::advance`]) counts as one more output token, whether the history has
//!    it or not.
//! 4. grammar mask: tokens whose bit is clear are masked.
//!
//! Then, unless the row is greedy, filters; each sees what those before it kept, as
//! `e = exp((logit - max) / temperature)`:
//!
//! 5. top-k: tokens with at least the k-th greatest logit.
//! 6. top-p: the fewest tokens of the greatest logits whose share of the mass reaches p.
//! 7. typical: the fewest tokens nearest to the expected information, `|log p + entropy|`, whose
//!    share of the mass reaches p. (With `s = (logit - max) / temperature` this distance
//!    is `|s - sum(e s) / sum(e)|`: no logarithm is needed.)
//! 8. min-p: tokens with `e >= min_p` times the greatest `e` that is kept.
//!
//! At each limit ties are kept, so that no order of equal tokens is invented, and at least one token
//! always remains. Masked tokens stay masked through every step.
//!
//! Thresholds are found without sorting: logits become integers of the same order, and the greatest
//! threshold that still reaches the wanted count or mass is found bit by bit.
//!
//! # Errors
//! none; entries of history and biases outside the vocabulary were refused when the step was packed
//!
//! # Launch
//! native: tasks of [`flex::CHUNK`] tokens of a row for what touches every token, a task per row for
//! thresholds; device: a cube per row; 16 passes over the row per filter
//!
//! # Numerics
//! f32; masses are summed in an order that depends on V alone, so a row's result depends neither on
//! neighbours nor on threads. Backends agree but for tokens within 1e-6 (of the mass) of a limit
//!
//! # Cost
//! bytes = 8 V per row, and 4 V for each pass of a filter, which a cache holds; bound: memory
//!
//! # Source
//! repetition: Keskar et al., "CTRL", 2019, section 4.1; top-k: Fan et al., "Hierarchical neural story
//! generation", ACL 2018; top-p: Holtzman et al., "The curious case of neural text degeneration", ICLR
//! 2020; typical: Meister et al., "Locally typical sampling", TACL 2023; min-p: Nguyen et al., "Turning up
//! the heat", ICLR 2025. Order of the filters: transformers' logits processors
//!
//! # Reference
//! [`flex::reference`]
//!
//! # Tests
//! `flex/tests/`

use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;

/// Applies what each row asks for to its logits, which are moved through: with one owner in place.
///
/// # Shapes
/// - logits, output: `[R, V]`
/// - step: the buffer of [`crate::step_inputs`], after [`crate::advance`] if tokens are carried
pub fn logits_process(logits: Tensor<2>, step: Tensor<1, Int>) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as KernelBackend>::logits_process(
        logits.into_dispatch(),
        step.into_dispatch(),
    ))
}
