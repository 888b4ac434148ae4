//! Root-mean-square norm of rows or of the heads of a row, alone or after a residual sum.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | x | `[T, groups * len]` | f32 | contiguous | groups of `len` values, see [`crate::RmsNormSpec`] |
//! | gamma | `[normed, len]` | f32 | contiguous | weights; a `1 + w` is folded in at load |
//! | residual | as x | f32 | contiguous | `add_rms_norm` only: becomes `residual + x` |
//! | output | as x | f32 | contiguous | every value written |
//!
//! # Formula
//! `y = x / sqrt(mean(x^2) + epsilon) * gamma` in the leading `normed` groups; the
//! other groups are copied. `add_rms_norm` does it to `residual + x`.
//!
//! # Errors
//! shapes that differ from the spec panic: the model fixed them when it was loaded
//!
//! # Launch
//! native: rows split over threads from [`flex::PARALLEL_LEN`] values on;
//! device: a cube per group of a row, two values and more per unit
//!
//! # Numerics
//! sums in f32 in an order that depends on `len` alone; rows are independent;
//! tolerance 1e-5 relative
//!
//! # Cost
//! bytes = 8 per value (16 with the residual); bound: memory
//!
//! # Source
//! Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019, eq. 4
//!
//! # Reference
//! [`flex::reference`]
//!
//! # Tests
//! `flex.rs`
//!
//! # Bench
//! `benches/native_ops.rs`

use crate::RmsNormSpec;
use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::Tensor;

pub(crate) mod cube;
pub mod flex;

/// Normalises the leading groups of each row.
///
/// # Shapes
/// - x, output: `[T, groups * len]`
/// - gamma: `[normed * len]`
///
/// # Panics
/// If the shapes are not those of the spec.
pub fn rms_norm(x: Tensor<2>, gamma: Tensor<1>, spec: RmsNormSpec) -> Tensor<2> {
    check("rms_norm", &x, &gamma, &spec);
    Tensor::from_dispatch(<Dispatch as KernelBackend>::rms_norm(
        x.into_dispatch(),
        gamma.into_dispatch(),
        spec,
    ))
}

/// Adds `x` to `residual`, in place where that is not shared, and normalises the sum: returns the
/// sum, then its norm.
///
/// # Shapes
/// - residual, x, outputs: `[T, groups * len]`
/// - gamma: `[normed * len]`
///
/// # Panics
/// If the shapes are not those of the spec.
pub fn add_rms_norm(
    residual: Tensor<2>,
    x: Tensor<2>,
    gamma: Tensor<1>,
    spec: RmsNormSpec,
) -> (Tensor<2>, Tensor<2>) {
    check("add_rms_norm", &x, &gamma, &spec);
    crate::check::shape("add_rms_norm", "residual", residual.dims(), x.dims());
    let (residual, normed) = <Dispatch as KernelBackend>::add_rms_norm(
        residual.into_dispatch(),
        x.into_dispatch(),
        gamma.into_dispatch(),
        spec,
    );
    (
        Tensor::from_dispatch(residual),
        Tensor::from_dispatch(normed),
    )
}

fn check(op: &str, x: &Tensor<2>, gamma: &Tensor<1>, spec: &RmsNormSpec) {
    let [num_tokens, _] = x.dims();
    crate::check::shape(
        op,
        "x",
        x.dims(),
        [num_tokens, spec.num_groups * spec.group_len],
    );
    crate::check::shape(
        op,
        "gamma",
        gamma.dims(),
        [spec.num_normed * spec.group_len],
    );
}
