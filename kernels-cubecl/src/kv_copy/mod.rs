//! Copying whole blocks inside a layer's pool (copy on write).
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | pool | `[N, 2, G, B, D]` | f32 | contiguous | in place |
//! | copies | pairs of the spec's group of the step | u32 | | source and destination block, `< N` |
//!
//! # Formula
//! `pool[destination] = pool[source]` for each pair
//!
//! # Errors
//! a block past the pool panics
//!
//! # Launch
//! native: on the calling thread, in order of the pairs; device: a fixed number of
//! units, because only the device knows how many pairs there are
//!
//! # Numerics
//! copies bits; destinations are distinct and no source is a destination, so the
//! order does not matter
//!
//! # Cost
//! bytes = 16 G B D per pair; bound: memory
//!
//! # Source
//! Kwon et al., "PagedAttention", SOSP 2023, section 4.4
//!
//! # Reference
//! the loop in the test
//!
//! # Tests
//! `flex.rs`

use crate::KvSpec;
use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;

/// Makes the block copies of the spec's group in the pool, which is moved through: with one owner they are
/// in place.
///
/// # Shapes
/// - pool, output: `[N, 2, G, B, D]`
/// - step: the buffer of [`crate::step_inputs`]
///
/// # Panics
/// If the shapes are not those of the spec.
pub fn kv_copy(pool: Tensor<5>, step: Tensor<1, Int>, spec: KvSpec) -> Tensor<5> {
    crate::check::pool("kv_copy", &pool, &spec);
    Tensor::from_dispatch(<Dispatch as KernelBackend>::kv_copy(
        pool.into_dispatch(),
        step.into_dispatch(),
        spec,
    ))
}
