//! Rotary position embedding of the leading heads of every row, in place.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | x | `[T, heads * D]` | f32 | contiguous | fused q, k, v rows; see [`crate::RopeSpec`] |
//! | inv_freq | `[rotary_dim / 2]` | f32 | contiguous | radians per position, scaling included |
//! | positions | `[T]` of the step | u32 | | `0 ..= 131072` and more |
//!
//! # Formula
//! pair i of a head turns by `angle = position * inv_freq[i]`:
//! `(a, b) -> magnitude * (a cos - b sin, a sin + b cos)`
//!
//! # Errors
//! shapes that differ from the spec panic: the model fixed them when it was loaded
//!
//! # Launch
//! native: sine and cosine once per token, not per head; rows split over threads
//! from [`flex::PARALLEL_LEN`] values on; device: a unit per pair
//!
//! # Numerics
//! angles in f64, on devices in integers (`elementary::turns`); sine and
//! cosine within 1e-6 of the f64 result; rows independent
//!
//! # Cost
//! bytes = 8 per rotated value; bound: memory
//!
//! # Source
//! Su et al., "RoFormer", 2021, eq. 34; half pairing as in GPT-NeoX
//!
//! # Reference
//! [`flex::reference`]
//!
//! # Tests
//! `flex.rs`
//!
//! # Bench
//! `benches/native_ops.rs`

use crate::RopeSpec;
use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;

/// Rotates the leading heads of each row, in place where `x` is not shared.
///
/// # Shapes
/// - x, output: `[T, heads * D]`
/// - `inv_freq`: `[rotary_dim / 2]`
/// - step: the buffer of [`crate::step_inputs`]
///
/// # Panics
/// If the shapes are not those of the spec.
pub fn rope(x: Tensor<2>, inv_freq: Tensor<1>, step: Tensor<1, Int>, spec: RopeSpec) -> Tensor<2> {
    let [num_tokens, _] = x.dims();
    crate::check::shape(
        "rope",
        "x",
        x.dims(),
        [num_tokens, spec.num_heads * spec.head_dim],
    );
    crate::check::shape("rope", "inv_freq", inv_freq.dims(), [spec.rotary_dim / 2]);
    Tensor::from_dispatch(<Dispatch as KernelBackend>::rope(
        x.into_dispatch(),
        inv_freq.into_dispatch(),
        step.into_dispatch(),
        spec,
    ))
}
