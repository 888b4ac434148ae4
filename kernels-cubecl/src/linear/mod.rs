//! Linear layer: activations times packed weights.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | x | `[T, K]` | f32 | contiguous | activations |
//! | weights | one buffer per part | packed | [`crate::packed`] | `[d_output, K]`, any [`WeightFormat`](crate::WeightFormat)s |
//! | bias | `[d_output]` | f32 | contiguous | optional |
//! | output | `[T, d_output]` | f32 | contiguous | every value written |
//!
//! # Formula
//! `y[t, n] = bias[n] + sum over k of x[t, k] * w[n, k]`, `w` as
//! [`dequantize_row`](crate::packed::dequantize::dequantize_row) says
//!
//! # Errors
//! shapes that do not fit panic: the model fixed them when it was loaded
//!
//! # Launch
//! native: tiles of 16 rows of output, split over threads; a tile is read once for all
//! rows of x; instruction set chosen at run time ([`flex::InstructionSet`])
//!
//! # Numerics
//! sums in f32, in an order that K and the format alone decide: on CPU a row's bits do
//! not depend on its batch or on the number of threads; tolerance 1e-5 of
//! `sum |x w|`. With [`ActivationMode::Int8`](crate::spec::ActivationMode), quantised
//! weights meet activations of 8 bits with a scale for each 32 values: each is off by at
//! most a 254th of the largest of its 32
//!
//! # Cost
//! bytes = weights + 4 T (K + d_output); flop = 2 T K d_output; bound: memory up to
//! about 5 rows, then multiplications
//!
//! # Source
//! blocks and their int8 dot products: GGUF / llama.cpp; tiles of 16 rows in 16 lanes: own
//!
//! # Reference
//! [`dequantize_row`](crate::packed::dequantize::dequantize_row) and a sum in f64
//!
//! # Tests
//! `flex/tests.rs`
//!
//! # Bench
//! `benches/packed_products.rs`

use crate::backend::{KernelBackend, MatrixTensors};
use crate::matrix::PackedMatrix;
use burn::backend::Dispatch;
use burn::tensor::Tensor;

pub(crate) mod cube;
pub mod flex;

/// `x` times the transpose of a packed matrix, plus the bias.
///
/// # Shapes
/// - x: `[T, K]`
/// - matrix: `[d_output, K]`
/// - bias: `[d_output]`
/// - output: `[T, d_output]`
///
/// # Panics
/// If the shapes do not fit the matrix.
pub fn linear(x: Tensor<2>, matrix: &PackedMatrix, bias: Option<Tensor<1>>) -> Tensor<2> {
    let [num_tokens, _] = x.dims();
    crate::check::shape("linear", "x", x.dims(), [num_tokens, matrix.d_input()]);
    if let Some(bias) = &bias {
        crate::check::shape("linear", "bias", bias.dims(), [matrix.d_output()]);
    }
    Tensor::from_dispatch(<Dispatch as KernelBackend>::linear(
        x.into_dispatch(),
        MatrixTensors {
            parts: matrix.dispatch_parts(),
            bias: bias.map(Tensor::into_dispatch),
        },
        matrix.spec(),
    ))
}
