//! CubeCL kernels of [`super`]: one cube per group of a row.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`.

use crate::launch::{
    CompileTarget, buffer, contiguous, cube_count, cube_sum, empty_f32, units_per_cube, writable,
};
use crate::spec::RmsNormSpec;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;

/// Everything the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blueprint {
    num_groups: usize,
    num_normed: usize,
    group_len: usize,
    epsilon_bits: u32,
    units: u32,
}

impl Blueprint {
    fn new(properties: &DeviceProperties, spec: &RmsNormSpec) -> Self {
        Self {
            num_groups: spec.num_groups,
            num_normed: spec.num_normed,
            group_len: spec.group_len,
            epsilon_bits: spec.epsilon.to_bits(),
            // Two values per unit: a reduction level costs about as much as a value.
            units: units_per_cube(properties, spec.group_len.div_ceil(2)),
        }
    }
}

/// Normalises the leading groups of each row of `x [T, num_groups * group_len]`.
pub(crate) fn rms_norm(x: CubeTensor, gamma: CubeTensor, spec: &RmsNormSpec) -> CubeTensor {
    let x = contiguous(x);
    let gamma = contiguous(gamma);
    let blueprint = Blueprint::new(x.client.properties(), spec);
    let num_cubes = x.meta.num_elements() / spec.group_len;
    let out = empty_f32(
        &x,
        [
            num_cubes / spec.num_groups,
            spec.num_groups * spec.group_len,
        ],
    );
    // SAFETY: the tensor function checked the shapes; cubes past the last group do nothing.
    unsafe {
        rms_norm_kernel::launch_unchecked(
            &x.client,
            cube_count(num_cubes),
            CubeDim::new_1d(blueprint.units),
            buffer(&x),
            buffer(&gamma),
            buffer(&out),
            blueprint,
        );
    }
    out
}

/// Adds `x` to `residual`, in place where it is ours alone, and normalises the sum.
pub(crate) fn add_rms_norm(
    residual: CubeTensor,
    x: CubeTensor,
    gamma: CubeTensor,
    spec: &RmsNormSpec,
) -> (CubeTensor, CubeTensor) {
    let residual = writable(residual);
    let x = contiguous(x);
    let gamma = contiguous(gamma);
    let blueprint = Blueprint::new(x.client.properties(), spec);
    let num_cubes = x.meta.num_elements() / spec.group_len;
    let out = empty_f32(
        &x,
        [
            num_cubes / spec.num_groups,
            spec.num_groups * spec.group_len,
        ],
    );
    // SAFETY: as above.
    unsafe {
        add_rms_norm_kernel::launch_unchecked(
            &x.client,
            cube_count(num_cubes),
            CubeDim::new_1d(blueprint.units),
            buffer(&residual),
            buffer(&x),
            buffer(&gamma),
            buffer(&out),
            blueprint,
        );
    }
    (residual, out)
}

/// The kernels that [`rms_norm`] and [`add_rms_norm`] launch.
pub(crate) fn kernels(target: &CompileTarget, spec: &RmsNormSpec) -> Vec<Box<dyn CubeKernel>> {
    let blueprint = Blueprint::new(&target.properties, spec);
    let dim = CubeDim::new_1d(blueprint.units);
    let len = spec.num_groups * spec.group_len;
    let norm = rms_norm_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        cube_count(spec.num_groups),
        dim,
        target.buffer(len),
        target.buffer(len),
        target.buffer(len),
        blueprint,
    );
    let add = add_rms_norm_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        cube_count(spec.num_groups),
        dim,
        target.buffer(len),
        target.buffer(len),
        target.buffer(len),
        target.buffer(len),
        blueprint,
    );
    vec![Box::new(norm), Box::new(add)]
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn rms_norm_kernel(x: &[f32], gamma: &[f32], out: &mut [f32], #[comptime] blueprint: Blueprint) {
    let group_len = comptime!(blueprint.group_len);
    let start = CUBE_POS * group_len;
    let group = CUBE_POS % comptime!(blueprint.num_groups);
    let live = start < out.len();

    let mut squares = 0.0f32;
    if live {
        for i in range_stepped(
            UNIT_POS as usize,
            group_len,
            comptime!(blueprint.units as usize),
        ) {
            let value = x[start + i];
            squares += value * value;
        }
    }
    let factor = inverse_root_mean_square(squares, blueprint);
    if live {
        for i in range_stepped(
            UNIT_POS as usize,
            group_len,
            comptime!(blueprint.units as usize),
        ) {
            let value = x[start + i];
            if group < comptime!(blueprint.num_normed) {
                out[start + i] = value * factor * gamma[group * group_len + i];
            } else {
                out[start + i] = value;
            }
        }
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn add_rms_norm_kernel(
    residual: &mut [f32],
    x: &[f32],
    gamma: &[f32],
    out: &mut [f32],
    #[comptime] blueprint: Blueprint,
) {
    let group_len = comptime!(blueprint.group_len);
    let start = CUBE_POS * group_len;
    let group = CUBE_POS % comptime!(blueprint.num_groups);
    let live = start < out.len();

    let mut squares = 0.0f32;
    if live {
        for i in range_stepped(
            UNIT_POS as usize,
            group_len,
            comptime!(blueprint.units as usize),
        ) {
            let value = residual[start + i] + x[start + i];
            residual[start + i] = value;
            squares += value * value;
        }
    }
    let factor = inverse_root_mean_square(squares, blueprint);
    if live {
        // Each unit reads back only what it wrote itself.
        for i in range_stepped(
            UNIT_POS as usize,
            group_len,
            comptime!(blueprint.units as usize),
        ) {
            let value = residual[start + i];
            if group < comptime!(blueprint.num_normed) {
                out[start + i] = value * factor * gamma[group * group_len + i];
            } else {
                out[start + i] = value;
            }
        }
    }
}

/// From each unit's sum of squares to the factor of the whole group.
#[cube]
fn inverse_root_mean_square(squares: f32, #[comptime] blueprint: Blueprint) -> f32 {
    let mut scratch = Shared::<[f32]>::new_slice(comptime!(blueprint.units as usize));
    let total = cube_sum(squares, &mut scratch, blueprint.units);
    let group_len = comptime!(blueprint.group_len as f32);
    let epsilon = comptime!(f32::from_bits(blueprint.epsilon_bits));
    1.0f32 / (total / group_len + epsilon).sqrt()
}
