//! Filling in what the host did not know when it packed a step: with two steps in flight, the newest
//! token of a sequence is a verdict that is still on the device.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | step | `[words]` | u32 | [`crate::step_inputs`] | in place |
//! | previous | `[R', W]` | u32 | contiguous | verdicts of the step before: token id, then W - 1 others |
//! | output | `[words]` | u32 | [`crate::step_inputs`] | the step, ready to run |
//!
//! # Formula
//! `token_ids[carried.token] = previous[carried.row, 0]` for each carried token; for each logit row
//! with a carried row, its word `CARRIED_TOKEN` becomes `previous[carried_row, 0]`.
//!
//! Positions, slots and lengths need nothing: as long as a verdict is one token, the host knows them.
//! When verdicts become accepted lengths (speculation), this op will derive them too.
//!
//! # Errors
//! none: [`crate::step_inputs::StepInputs::fill`] has checked each row against `previous_rows`, which must
//! be R'. A row without a token (status 1) carries token 0: its request ends, what it computes is
//! thrown away
//!
//! # Launch
//! native: on the calling thread; device: one cube
//!
//! # Numerics
//! integers
//!
//! # Cost
//! bytes = 16 per carried token and row; bound: launch
//!
//! # Source
//! none
//!
//! # Reference
//! the loops in `flex.rs`
//!
//! # Tests
//! `flex.rs`

use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;

/// Writes the previous step's tokens into the step, which is moved through: with one owner in place.
///
/// # Shapes
/// - step, output: the buffer of [`crate::step_inputs`]
/// - previous: `[R', W]`, `R'` = [`crate::step_inputs::StepArrays::previous_rows`]
pub fn advance(step: Tensor<1, Int>, previous: Tensor<2, Int>) -> Tensor<1, Int> {
    Tensor::from_dispatch(<Dispatch as KernelBackend>::advance(
        step.into_dispatch(),
        previous.into_dispatch(),
    ))
}
