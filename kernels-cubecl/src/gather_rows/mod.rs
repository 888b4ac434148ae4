//! Picking the rows whose logits are wanted.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | x | `[T, M]` | f32 | contiguous | |
//! | rows | `[R]` of the step | u32 | | `< T`; the same row may be asked for twice |
//! | output | `[R, M]` | f32 | contiguous | every live row written |
//!
//! # Formula
//! `out[r, :] = x[rows[r], :]`
//!
//! # Errors
//! a row past x panics
//!
//! # Launch
//! native: on the calling thread; device: a unit per output, padding rows are zeros
//!
//! # Numerics
//! copies bits
//!
//! # Cost
//! bytes = 8 M per row; bound: memory
//!
//! # Reference
//! the loop in the test
//!
//! # Tests
//! `flex.rs`

use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;

/// The rows of `x` whose logits are wanted.
///
/// # Shapes
/// - x: `[T, M]`
/// - step: the buffer of [`crate::step_inputs`]
/// - output: `[num_rows, M]`; rows past the live ones are zeros
pub fn gather_rows(x: Tensor<2>, step: Tensor<1, Int>, num_rows: usize) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as KernelBackend>::gather_rows(
        x.into_dispatch(),
        step.into_dispatch(),
        num_rows,
    ))
}
