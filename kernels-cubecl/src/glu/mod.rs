//! Gated linear unit: an activated gate times its partner.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | x | `[T, 2 F]` | f32 | contiguous | gate, then up |
//! | output | `[T, F]` | f32 | contiguous | every value written |
//!
//! # Formula
//! `y = act(gate) * up`; silu: `x / (1 + e^-x)`; gelu, tanh form:
//! `x / 2 * (1 + tanh(c (x + 0.044715 x^3)))`, `c = sqrt(2 / pi)`, computed as
//! `x / (1 + e^(-2 c (x + 0.044715 x^3)))`, which is the same and cancels nothing
//!
//! # Errors
//! shapes that do not fit panic: the model fixed them when it was loaded
//!
//! # Launch
//! native: rows split over threads from [`flex::PARALLEL_LEN`] values on;
//! device: a unit per output
//!
//! # Numerics
//! element by element; tolerance 1e-5 relative
//!
//! # Cost
//! bytes = 12 per output value; bound: memory
//!
//! # Source
//! Shazeer, "GLU Variants Improve Transformer", 2020; Hendrycks and Gimpel, "Gaussian
//! Error Linear Units", 2016, section 2
//!
//! # Reference
//! [`flex::reference`]
//!
//! # Tests
//! `flex.rs`
//!
//! # Bench
//! `benches/native_ops.rs`

use crate::Activation;
use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::Tensor;

pub(crate) mod cube;
pub mod flex;

/// `activation(gate) * up`.
///
/// # Shapes
/// - x: `[T, 2 F]`, gate then up
/// - output: `[T, F]`
///
/// # Panics
/// If a row is of odd length.
pub fn glu(x: Tensor<2>, activation: Activation) -> Tensor<2> {
    let [num_tokens, columns] = x.dims();
    crate::check::shape("glu", "x", x.dims(), [num_tokens, columns / 2 * 2]);
    Tensor::from_dispatch(<Dispatch as KernelBackend>::glu(
        x.into_dispatch(),
        activation,
    ))
}
