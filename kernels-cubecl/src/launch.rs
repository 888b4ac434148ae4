//! How kernels are launched: buffers, sizes of cubes, numbers of cubes, and the reduction every
//! kernel with a cube per row shares.
//!
//! # Conventions
//! - Tensors reach a kernel as contiguous buffers (`&[f32]`, `&[u32]`); shapes come from the spec,
//!   at compile time, and from the buffers' lengths. Nothing that changes from step to step is a
//!   scalar: kernels read it from the header of the step buffer.
//! - A kernel takes its spec as one `#[comptime]` struct, its *blueprint*: integers and float bits
//!   only, because it is part of the key of the compiled kernel.
//! - A cube has a power of two of units, at most [`UNITS_MAX`], and at most what the device
//!   allows: on CubeCL's `cpu` runtime that is one unit per core, where more would be threads
//!   waiting for each other.
//! - Cubes are numbered along x and then y, because devices take only 65,535 along one axis. The
//!   last row of the grid may be partly idle: kernels compare `CUBE_POS` with the live number.
//! - `sync_cube()` is only reached in uniform control flow: cubes without work compute zeros
//!   rather than return early.
//! - `launch_unchecked` is sound because the tensor functions check every shape and
//!   [`crate::step_inputs::StepInputs::fill`] checks every index before they get here.
//!
//! Neighbours: `<op>/cube.rs` use this; [`crate::compile`] lists every kernel they may launch.

use burn_backend::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::{DeviceProperties, TargetProperties};
use cubecl::prelude::*;
use cubecl::server::Handle;
use std::sync::Arc;

/// Most units in a cube, on any device.
pub const UNITS_MAX: u32 = 256;

/// Most cubes along one axis of the grid.
pub const CUBES_PER_AXIS_MAX: usize = 65_535;

/// Units for a cube that would use `wanted` of them: a power of two, at most [`UNITS_MAX`] and at
/// most what the device allows.
pub fn units_per_cube(properties: &DeviceProperties, wanted: usize) -> u32 {
    let hardware = &properties.hardware;
    let device_max = hardware
        .max_units_per_cube
        .min(hardware.max_cube_dim.0)
        .clamp(1, UNITS_MAX);
    let wanted = wanted.clamp(1, device_max as usize) as u32;
    // The largest power of two that is not above `wanted`: an idle unit costs more than a loop.
    1 << wanted.ilog2()
}

/// A grid of at least `num_cubes` cubes.
pub fn cube_count(num_cubes: usize) -> CubeCount {
    let num_rows = num_cubes.div_ceil(CUBES_PER_AXIS_MAX).max(1);
    let num_columns = num_cubes.div_ceil(num_rows);
    CubeCount::Static(num_columns as u32, num_rows as u32, 1)
}

/// Cubes and units for a kernel with one unit per item. The units are the same for any number of
/// items, so that such a kernel is compiled once.
pub fn elementwise(properties: &DeviceProperties, num_items: usize) -> (CubeCount, CubeDim) {
    let units = units_per_cube(properties, UNITS_MAX as usize);
    (
        cube_count(num_items.div_ceil(units as usize)),
        CubeDim::new_1d(units),
    )
}

/// The buffer of a contiguous tensor, as a kernel argument.
pub fn buffer(tensor: &CubeTensor) -> BufferArg {
    let len = tensor.meta.num_elements();
    // A kernel indexes with 32 bits.
    assert!(
        u32::try_from(len).is_ok(),
        "a buffer of {len} values, at most {} can be indexed",
        u32::MAX
    );
    // SAFETY: the tensor is contiguous ([`contiguous`]) and holds `len` elements.
    unsafe { BufferArg::from_raw_parts(tensor.handle.clone(), len) }
}

/// The tensor in row-major order without gaps, copied if need be.
pub fn contiguous(tensor: CubeTensor) -> CubeTensor {
    into_contiguous(tensor)
}

/// The tensor in row-major order, and ours alone to write to: copied if it is shared.
pub fn writable(tensor: CubeTensor) -> CubeTensor {
    let tensor = contiguous(tensor);
    if tensor.can_mut() {
        return tensor;
    }
    crate::copies::count();
    let copy = empty(&tensor, tensor.meta.shape().clone(), tensor.dtype);
    copy_into(&tensor, &copy);
    copy
}

/// A contiguous tensor with unspecified contents on the device of `like`.
pub fn empty(like: &CubeTensor, shape: Shape, dtype: DType) -> CubeTensor {
    let handle = like.client.empty(shape.num_elements() * dtype.size());
    CubeTensor::new_contiguous(
        like.client.clone(),
        like.device.clone(),
        shape,
        handle,
        dtype,
    )
}

/// A contiguous f32 tensor with unspecified contents on the device of `like`.
pub fn empty_f32<const D: usize>(like: &CubeTensor, shape: [usize; D]) -> CubeTensor {
    empty(like, Shape::from(shape), DType::F32)
}

fn copy_into(source: &CubeTensor, destination: &CubeTensor) {
    let len = source.meta.num_elements();
    let (count, dim) = elementwise(source.client.properties(), len);
    // SAFETY: both buffers hold `len` words and units past it do nothing.
    unsafe {
        copy_kernel::launch_unchecked(
            &source.client,
            count,
            dim,
            buffer(source),
            buffer(destination),
        );
    }
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn copy_kernel(source: &[u32], destination: &mut [u32]) {
    if ABSOLUTE_POS < destination.len() {
        destination[ABSOLUTE_POS] = source[ABSOLUTE_POS];
    }
}

/// Sum of one value per unit, the same in every unit, in an order that depends on `units` alone.
///
/// `scratch` has `units` values. To be called by all units of a cube; may be called again with
/// the same scratch.
#[cube]
pub(crate) fn cube_sum(value: f32, scratch: &mut Shared<[f32]>, #[comptime] units: u32) -> f32 {
    let unit = UNIT_POS as usize;
    scratch[unit] = value;
    sync_cube();
    #[unroll]
    for level in 0..comptime!(units.ilog2()) {
        let half = comptime!((units >> (level + 1)) as usize);
        if unit < half {
            let other = scratch[unit + half];
            scratch[unit] += other;
        }
        sync_cube();
    }
    let total = scratch[0];
    sync_cube();
    total
}

/// What compiling a kernel without launching it needs.
pub struct CompileTarget {
    /// Properties of the device to compile for.
    pub properties: Arc<DeviceProperties>,
    /// Properties of the compiler.
    pub target: Arc<TargetProperties>,
    /// Any live buffer: arguments must name one, nothing reads it.
    pub handle: Handle,
}

impl CompileTarget {
    /// An argument that stands for a buffer of `len` values.
    pub fn buffer(&self, len: usize) -> BufferArg {
        // SAFETY: the argument is only used to define a kernel, which is never launched.
        unsafe { BufferArg::from_raw_parts(self.handle.clone(), len) }
    }
}
