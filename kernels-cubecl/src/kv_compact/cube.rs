//! CubeCL kernel of [`super`]: one cube per row; an anchor's walks its drafts. Each unit moves the same
//! values of every draft, one draft after another, so that nothing is overwritten before it is read.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`.

use crate::launch::{CompileTarget, buffer, contiguous, cube_count, units_per_cube, writable};
use crate::spec::KvSpec;
use crate::step_inputs::{SAMPLING_WORDS, group_header, group_header_offset, header, word};
use crate::verify::STATUS_UNREACHED;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;

/// Everything the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blueprint {
    group: usize,
    num_heads: usize,
    block_size: usize,
    head_dim: usize,
    units: u32,
}

impl Blueprint {
    fn new(properties: &DeviceProperties, spec: &KvSpec) -> Self {
        let num_heads = 2 * spec.num_kv_heads;
        Self {
            group: spec.group,
            num_heads,
            block_size: spec.block_size,
            head_dim: spec.head_dim,
            units: units_per_cube(properties, num_heads * spec.head_dim),
        }
    }
}

/// Moves what was accepted, in place where the pool is ours alone.
pub(crate) fn kv_compact(
    pool: CubeTensor,
    step: &CubeTensor,
    verdicts: CubeTensor,
    spec: KvSpec,
) -> CubeTensor {
    let pool = writable(pool);
    let verdicts = contiguous(verdicts);
    let blueprint = Blueprint::new(pool.client.properties(), &spec);
    // SAFETY: the tensor function checked the shapes; the kernel checks rows and slots.
    unsafe {
        kv_compact_kernel::launch_unchecked(
            &pool.client,
            cube_count(verdicts.meta.shape()[0]),
            CubeDim::new_1d(blueprint.units),
            buffer(&pool),
            buffer(step),
            buffer(&verdicts),
            blueprint,
        );
    }
    pool
}

/// The kernels that [`kv_compact`] launches.
pub(crate) fn kernels(target: &CompileTarget, spec: KvSpec) -> Vec<Box<dyn CubeKernel>> {
    let blueprint = Blueprint::new(&target.properties, &spec);
    vec![Box::new(kv_compact_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        cube_count(1),
        CubeDim::new_1d(blueprint.units),
        target.buffer(blueprint.num_heads * blueprint.head_dim),
        target.buffer(1),
        target.buffer(2),
        blueprint,
    ))]
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn kv_compact_kernel(
    pool: &mut [f32],
    step: &[u32],
    verdicts: &[u32],
    #[comptime] blueprint: Blueprint,
) {
    let anchor = CUBE_POS;
    let live = anchor < step[header::NUM_LOGIT_ROWS] as usize && anchor * 2 < verdicts.len();
    let row = select(live, anchor, 0usize);
    let parameters = step[header::SAMPLING] as usize + row * SAMPLING_WORDS;
    let num_drafts = select(live, step[parameters + word::NUM_DRAFTS], 0u32) as usize;
    let first = step[step[header::LOGIT_ROWS] as usize + row] as usize + 1usize;
    let group = comptime!(group_header_offset(blueprint.group));
    let slots = step[group + group_header::SLOT_MAPPING] as usize + first;
    let mut num_reached = 0usize;
    for draft in 0..num_drafts {
        if verdicts[(anchor + 1usize + draft) * 2 + 1] != STATUS_UNREACHED {
            if draft != num_reached {
                let from = step[slots + draft] as usize;
                let to = step[slots + num_reached] as usize;
                move_slot(pool, from, to, blueprint);
            }
            num_reached += 1usize;
        }
    }
}

#[cube]
fn move_slot(pool: &mut [f32], from: usize, to: usize, #[comptime] blueprint: Blueprint) {
    let d = comptime!(blueprint.head_dim);
    let num_values = comptime!(blueprint.num_heads * blueprint.head_dim);
    for i in range_stepped(
        UNIT_POS as usize,
        num_values,
        comptime!(blueprint.units as usize),
    ) {
        let source = value_of(from, i / d, i % d, blueprint);
        let destination = value_of(to, i / d, i % d, blueprint);
        if source < pool.len() && destination < pool.len() {
            let value = pool[source];
            pool[destination] = value;
        }
    }
}

#[cube]
fn value_of(slot: usize, head: usize, i: usize, #[comptime] blueprint: Blueprint) -> usize {
    let block_size = comptime!(blueprint.block_size);
    let head = slot / block_size * comptime!(blueprint.num_heads) + head;
    (head * block_size + slot % block_size) * comptime!(blueprint.head_dim) + i
}
