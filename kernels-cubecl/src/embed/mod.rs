//! Embedding: rows of a packed table for the tokens of the step.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | table | one buffer per part | packed | [`crate::packed`] | `[V, M]`, any [`WeightFormat`](crate::WeightFormat)s |
//! | token_ids | `[T]` of the step | u32 | | `< V` |
//! | output | `[T, M]` | f32 | contiguous | every live row written |
//!
//! # Formula
//! `y[t, :] = scale * w[token_ids[t], :]`, `w` as
//! [`dequantize_row`](crate::packed::dequantize::dequantize_row) says
//!
//! # Errors
//! an id past the table panics on the CPU; filling the step buffer refuses it before
//!
//! # Launch
//! native: on the calling thread; device: one launch per part, which writes the rows
//! whose token lies in it
//!
//! # Numerics
//! exact but for the product with the scale; rows are independent
//!
//! # Cost
//! bytes = a packed row and 4 M per token; bound: memory
//!
//! # Reference
//! [`dequantize_row`](crate::packed::dequantize::dequantize_row)

use crate::backend::{KernelBackend, MatrixTensors};
use crate::matrix::PackedMatrix;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;

/// Rows of the table for the tokens of the step, times `scale`.
///
/// # Shapes
/// - table: `[V, M]`
/// - step: the buffer of [`crate::step_inputs`]
/// - output: `[num_tokens, M]`; rows past the live ones are those of token 0, or zeros
pub fn embed(
    table: &PackedMatrix,
    step: Tensor<1, Int>,
    num_tokens: usize,
    scale: f32,
) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as KernelBackend>::embed(
        MatrixTensors {
            parts: table.dispatch_parts(),
            bias: None,
        },
        step.into_dispatch(),
        table.spec(),
        num_tokens,
        scale,
    ))
}
