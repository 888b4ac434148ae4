//! CubeCL kernel of [`super`]: a fixed number of units shares all copies of a step.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`.

use crate::launch::{CompileTarget, buffer, cube_count, units_per_cube, writable};
use crate::spec::KvSpec;
use crate::step_inputs::{group_header, group_header_offset};
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;

/// How many cubes share the copies: their number is only known on the device.
const NUM_CUBES: usize = 64;

/// Everything the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blueprint {
    group: usize,
    block_len: usize,
    units: u32,
}

impl Blueprint {
    fn new(properties: &DeviceProperties, spec: &KvSpec) -> Self {
        let block_len = 2 * spec.num_kv_heads * spec.block_size * spec.head_dim;
        Self {
            group: spec.group,
            block_len,
            units: units_per_cube(properties, block_len),
        }
    }
}

/// Copies blocks within the pool, in place where it is ours alone.
pub(crate) fn kv_copy(pool: CubeTensor, step: &CubeTensor, spec: KvSpec) -> CubeTensor {
    let pool = writable(pool);
    let blueprint = Blueprint::new(pool.client.properties(), &spec);
    // SAFETY: the tensor function checked the shapes; the kernel checks the blocks.
    unsafe {
        kv_copy_kernel::launch_unchecked(
            &pool.client,
            cube_count(NUM_CUBES),
            CubeDim::new_1d(blueprint.units),
            buffer(&pool),
            buffer(step),
            blueprint,
        );
    }
    pool
}

/// The kernels that [`kv_copy`] launches.
pub(crate) fn kernels(target: &CompileTarget, spec: KvSpec) -> Vec<Box<dyn CubeKernel>> {
    let blueprint = Blueprint::new(&target.properties, &spec);
    vec![Box::new(kv_copy_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        cube_count(NUM_CUBES),
        CubeDim::new_1d(blueprint.units),
        target.buffer(blueprint.block_len),
        target.buffer(1),
        blueprint,
    ))]
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn kv_copy_kernel(pool: &mut [f32], step: &[u32], #[comptime] blueprint: Blueprint) {
    let block_len = comptime!(blueprint.block_len);
    let group = comptime!(group_header_offset(blueprint.group));
    let num_values = step[group + group_header::NUM_COPIES] as usize * block_len;
    let copies = step[group + group_header::COPIES] as usize;
    let stride = comptime!(NUM_CUBES * blueprint.units as usize);
    for i in range_stepped(ABSOLUTE_POS, num_values, stride) {
        let copy = copies + 2 * (i / block_len);
        let source = step[copy] as usize * block_len + i % block_len;
        let destination = step[copy + 1] as usize * block_len + i % block_len;
        if source < pool.len() && destination < pool.len() {
            let value = pool[source];
            pool[destination] = value;
        }
    }
}
