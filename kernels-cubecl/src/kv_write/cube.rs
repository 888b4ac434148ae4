//! CubeCL kernel of [`super`]: one unit per value of K or V.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`.

use crate::launch::{CompileTarget, buffer, contiguous, elementwise, writable};
use crate::spec::KvSpec;
use crate::step_inputs::{group_header, group_header_offset, header};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Writes this step's K and V into the pool, in place where it is ours alone.
pub(crate) fn kv_write(
    pool: CubeTensor,
    qkv: CubeTensor,
    step: &CubeTensor,
    spec: KvSpec,
) -> CubeTensor {
    let pool = writable(pool);
    let qkv = contiguous(qkv);
    let num_tokens = qkv.meta.shape()[0];
    let num_values = num_tokens * 2 * spec.num_kv_heads * spec.head_dim;
    let (count, dim) = elementwise(qkv.client.properties(), num_values);
    // SAFETY: the tensor function checked the shapes; the kernel checks token and slot.
    unsafe {
        kv_write_kernel::launch_unchecked(
            &qkv.client,
            count,
            dim,
            buffer(&pool),
            buffer(&qkv),
            buffer(step),
            spec,
        );
    }
    pool
}

/// The kernels that [`kv_write`] launches.
pub(crate) fn kernels(target: &CompileTarget, spec: KvSpec) -> Vec<Box<dyn CubeKernel>> {
    let (count, dim) = elementwise(&target.properties, 1);
    vec![Box::new(kv_write_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        count,
        dim,
        target.buffer(1),
        target.buffer(1),
        target.buffer(1),
        spec,
    ))]
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn kv_write_kernel(pool: &mut [f32], qkv: &[f32], step: &[u32], #[comptime] spec: KvSpec) {
    let head_dim = comptime!(spec.head_dim);
    let num_kv_heads = comptime!(spec.num_kv_heads);
    let block_size = comptime!(spec.block_size);
    let values_per_token = comptime!(2 * spec.num_kv_heads * spec.head_dim);
    let row_len = comptime!((spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim);
    let group = comptime!(group_header_offset(spec.group) + group_header::SLOT_MAPPING);

    let token = ABSOLUTE_POS / values_per_token;
    // K and V follow the q heads, in the order in which the pool has them.
    let value = ABSOLUTE_POS % values_per_token;
    if token < step[header::NUM_TOKENS] as usize {
        let slot = step[step[group] as usize + token] as usize;
        let head = value / head_dim;
        let kv = head / num_kv_heads;
        let plane = (slot / block_size * 2 + kv) * num_kv_heads + head % num_kv_heads;
        let destination = (plane * block_size + slot % block_size) * head_dim + value % head_dim;
        if destination < pool.len() {
            pool[destination] =
                qkv[token * row_len + comptime!(spec.num_heads * spec.head_dim) + value];
        }
    }
}
