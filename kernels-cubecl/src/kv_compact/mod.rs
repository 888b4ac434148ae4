//! Moving the keys and values of accepted drafts to where a plain decode would have put them.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | pool | `[N, 2, G, B, D]` | f32 | contiguous | in place |
//! | step | `[words]` | u32 | [`crate::step_inputs`] | trees, slots of the spec's group |
//! | verdicts | `[R, 2]` | u32 | contiguous | of [`crate::verify`] |
//!
//! The drafts of a tree have consecutive rows and tokens behind their anchor's, and consecutive
//! places. Those on the accepted path are the ones whose row was reached.
//!
//! # Formula
//! `pool[slot of draft token j of the tree] = pool[slot of the j-th accepted draft]`, j ascending, which
//! never overwrites what is yet to be moved
//!
//! # Errors
//! a slot past the pool panics (native) or is left out (device)
//!
//! # Launch
//! only for steps with trees that are not chains: in a chain everything lies where it should. native:
//! on the calling thread; device: a cube per row, of which those of anchors work
//!
//! # Numerics
//! copies bits
//!
//! # Cost
//! bytes = 16 G D per accepted draft; bound: launch
//!
//! # Source
//! none
//!
//! # Reference
//! the loops in `flex.rs`
//!
//! # Tests
//! `flex.rs`

use crate::KvSpec;
use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;

/// Compacts the accepted paths in the pool, which is moved through: with one owner in place.
///
/// # Shapes
/// - pool, output: `[N, 2, G, B, D]`
/// - step: the buffer of [`crate::step_inputs`]
/// - verdicts: `[R, 2]`
///
/// # Panics
/// If the shapes are not those of the spec.
pub fn kv_compact(
    pool: Tensor<5>,
    step: Tensor<1, Int>,
    verdicts: Tensor<2, Int>,
    spec: KvSpec,
) -> Tensor<5> {
    crate::check::pool("kv_compact", &pool, &spec);
    Tensor::from_dispatch(<Dispatch as KernelBackend>::kv_compact(
        pool.into_dispatch(),
        step.into_dispatch(),
        verdicts.into_dispatch(),
        spec,
    ))
}
