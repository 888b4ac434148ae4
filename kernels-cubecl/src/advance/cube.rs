//! CubeCL kernel of [`super`]: one cube, a unit per carried token and row.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`.

use crate::launch::{
    CompileTarget, UNITS_MAX, buffer, contiguous, cube_count, units_per_cube, writable,
};
use crate::step_inputs::{CARRIED_WORDS, SAMPLING_WORDS, flag, header, word};
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;

/// Everything the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blueprint {
    row_words: usize,
    units: u32,
}

impl Blueprint {
    fn new(properties: &DeviceProperties, row_words: usize) -> Self {
        Self {
            row_words,
            units: units_per_cube(properties, UNITS_MAX as usize),
        }
    }
}

/// Fills in the carried tokens, in place where the step is ours alone.
pub(crate) fn advance(step: CubeTensor, previous: CubeTensor) -> CubeTensor {
    let step = writable(step);
    let previous = contiguous(previous);
    let blueprint = Blueprint::new(step.client.properties(), previous.meta.shape()[1]);
    // SAFETY: the host checked the rows against the number it was told; the kernel checks them
    // against the buffer.
    unsafe {
        advance_kernel::launch_unchecked(
            &step.client,
            cube_count(1),
            CubeDim::new_1d(blueprint.units),
            buffer(&step),
            buffer(&previous),
            blueprint,
        );
    }
    step
}

/// The kernels that [`advance`] launches.
pub(crate) fn kernels(target: &CompileTarget, row_words: usize) -> Vec<Box<dyn CubeKernel>> {
    let blueprint = Blueprint::new(&target.properties, row_words);
    vec![Box::new(advance_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        cube_count(1),
        CubeDim::new_1d(blueprint.units),
        target.buffer(1),
        target.buffer(row_words),
        blueprint,
    ))]
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn advance_kernel(step: &mut [u32], previous: &[u32], #[comptime] blueprint: Blueprint) {
    let row_words = comptime!(blueprint.row_words);
    let stride = comptime!(blueprint.units as usize);
    let num_carried = step[header::NUM_CARRIED] as usize;
    let carried = step[header::CARRIED] as usize;
    let token_ids = step[header::TOKEN_IDS] as usize;
    for i in range_stepped(UNIT_POS as usize, num_carried, stride) {
        let entry = carried + i * CARRIED_WORDS;
        let token = step[entry] as usize;
        let from = step[entry + 1] as usize * row_words;
        if from < previous.len() {
            step[token_ids + token] = previous[from];
        }
    }
    let num_rows = step[header::NUM_LOGIT_ROWS] as usize;
    let sampling = step[header::SAMPLING] as usize;
    for row in range_stepped(UNIT_POS as usize, num_rows, stride) {
        let words = sampling + row * SAMPLING_WORDS;
        let from = step[words + word::CARRIED_ROW] as usize * row_words;
        let has_carried = (step[words + word::FLAGS] & flag::CARRIED) != 0u32;
        if has_carried && from < previous.len() {
            step[words + word::CARRIED_TOKEN] = previous[from];
        }
    }
}
