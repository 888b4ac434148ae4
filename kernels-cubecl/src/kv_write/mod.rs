//! Writing this step's keys and values into a layer's pool.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | pool | `[N, 2, G, B, D]` | f32 | contiguous | block, K then V, kv head, offset, value; in place |
//! | qkv | `[T, (H + 2 G) * D]` | f32 | contiguous | fused rows, rotary already applied to k |
//! | slots | `[T]` of the step's group | u32 | | `< N * B`; padding goes to slot 0, the null block |
//!
//! # Formula
//! `pool[slot / B, 0, g, slot % B, :] = k[t, g, :]`, and `[.., 1, ..] = v[t, g, :]`
//!
//! # Errors
//! a slot past the pool panics before anything is written
//!
//! # Launch
//! native: one task per head of K and of V, so that no two tasks share memory;
//! device: a unit per value, padding rows write nothing
//!
//! # Numerics
//! copies bits; of two tokens with one slot the later wins
//!
//! # Cost
//! bytes = 16 G D per token; bound: memory
//!
//! # Source
//! Kwon et al., "PagedAttention", SOSP 2023, section 4.3
//!
//! # Reference
//! the loop in the test
//!
//! # Tests
//! `flex.rs`
//!
//! # Bench
//! `benches/native_ops.rs`

use crate::backend::KernelBackend;
use crate::{DeviceLimits, KvSpec};
use burn::backend::Dispatch;
use burn::tensor::{Device, Int, Tensor, TensorData};

pub(crate) mod cube;
pub mod flex;

/// A pool of zeros for one layer, `[N, 2, G, B, D]`.
///
/// Made here because a tensor of several dimensions may be allocated with gaps between its rows
/// (CUDA), and a pool with gaps would be copied by its first write. On the CPU the memory is the
/// operating system's own zeroed pages, which cost nothing until a block is used: burn's zeros would
/// touch them all.
pub fn zeros(num_blocks: usize, spec: &KvSpec, device: &Device) -> Tensor<5> {
    let shape = [
        num_blocks,
        2,
        spec.num_kv_heads,
        spec.block_size,
        spec.head_dim,
    ];
    let num_values = shape.iter().product();
    if DeviceLimits::of(device).is_native {
        let data = TensorData::new(vec![0.0f32; num_values], shape);
        return Tensor::from_data(data, device);
    }
    Tensor::<1>::zeros([num_values], device).reshape(shape)
}

/// Writes this step's K and V into the pool, which is moved through: with one owner the write is in
/// place.
///
/// # Shapes
/// - pool, output: `[N, 2, G, B, D]`
/// - qkv: `[T, (H + 2 G) * D]`
/// - step: the buffer of [`crate::step_inputs`]
///
/// # Panics
/// If the shapes are not those of the spec.
pub fn kv_write(pool: Tensor<5>, qkv: Tensor<2>, step: Tensor<1, Int>, spec: KvSpec) -> Tensor<5> {
    let [num_tokens, _] = qkv.dims();
    let num_heads = spec.num_heads + 2 * spec.num_kv_heads;
    crate::check::shape(
        "kv_write",
        "qkv",
        qkv.dims(),
        [num_tokens, num_heads * spec.head_dim],
    );
    crate::check::pool("kv_write", &pool, &spec);
    Tensor::from_dispatch(<Dispatch as KernelBackend>::kv_write(
        pool.into_dispatch(),
        qkv.into_dispatch(),
        step.into_dispatch(),
        spec,
    ))
}
