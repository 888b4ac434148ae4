//! CubeCL kernel of [`super`]: one unit per run of eight values of a row.
//!
//! One launch per part of the table: each writes the rows whose token lies in its part.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`; rows are read
//! with [`crate::packed::device::read`].

use crate::launch::{CompileTarget, buffer, elementwise, empty_f32};
use crate::packed::device::GROUP_LEN;
use crate::packed::device::read::{RUN_LEN, RUNS_PER_GROUP, group_scale, packed_row, read_run};
use crate::packed::format::WeightFormat;
use crate::spec::{MatrixSpec, PartSpec};
use crate::step_inputs::header;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Everything the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blueprint {
    format: WeightFormat,
    d_input: usize,
    row_start: usize,
    num_rows: usize,
    scale_bits: u32,
}

impl Blueprint {
    fn new(part: &PartSpec, d_input: usize, scale: f32) -> Self {
        Self {
            format: part.format,
            d_input,
            row_start: part.row_start,
            num_rows: part.num_rows,
            scale_bits: scale.to_bits(),
        }
    }

    /// Runs of a row, the last one perhaps partly outside.
    const fn runs(&self) -> usize {
        self.d_input.div_ceil(RUN_LEN)
    }
}

/// Rows of the table for the tokens of the step, times `scale`; padding rows are row 0.
pub(crate) fn embed(
    table: &[CubeTensor],
    step: &CubeTensor,
    matrix: &MatrixSpec,
    num_tokens: usize,
    scale: f32,
) -> CubeTensor {
    let out = empty_f32(step, [num_tokens, matrix.d_input]);
    for (part, words) in matrix.parts.iter().zip(table) {
        let blueprint = Blueprint::new(part, matrix.d_input, scale);
        let (count, dim) = elementwise(step.client.properties(), num_tokens * blueprint.runs());
        // SAFETY: the tensor function checked the parts; the kernel checks token and column.
        unsafe {
            embed_kernel::launch_unchecked(
                &step.client,
                count,
                dim,
                buffer(words),
                buffer(step),
                buffer(&out),
                blueprint,
            );
        }
    }
    out
}

/// The kernels that [`embed`] launches.
pub(crate) fn kernels(
    target: &CompileTarget,
    matrix: &MatrixSpec,
    scale: f32,
) -> Vec<Box<dyn CubeKernel>> {
    let mut kernels: Vec<Box<dyn CubeKernel>> = Vec::new();
    for part in &matrix.parts {
        let blueprint = Blueprint::new(part, matrix.d_input, scale);
        let (count, dim) = elementwise(&target.properties, 1);
        kernels.push(Box::new(embed_kernel::create_dummy_kernel(
            target.properties.clone(),
            target.target.clone(),
            count,
            dim,
            target.buffer(1),
            target.buffer(1),
            target.buffer(1),
            blueprint,
        )));
    }
    kernels
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn embed_kernel(words: &[u32], step: &[u32], out: &mut [f32], #[comptime] blueprint: Blueprint) {
    let d_input = comptime!(blueprint.d_input);
    let runs = comptime!(blueprint.runs());
    let groups = comptime!(blueprint.d_input.div_ceil(GROUP_LEN));
    let format = comptime!(blueprint.format);
    let scale = comptime!(f32::from_bits(blueprint.scale_bits));
    let token = ABSOLUTE_POS / runs;
    let run = ABSOLUTE_POS % runs;
    if token * d_input < out.len() {
        let mut token_id = 0usize;
        if token < step[header::NUM_TOKENS] as usize {
            token_id = step[step[header::TOKEN_IDS] as usize + token] as usize;
        }
        let in_part = token_id >= comptime!(blueprint.row_start)
            && token_id < comptime!(blueprint.row_start + blueprint.num_rows);
        if in_part {
            let row = packed_row(token_id - comptime!(blueprint.row_start), groups, format);
            let group = run / RUNS_PER_GROUP;
            let factors = group_scale(words, &row, group, format);
            let values = read_run(words, &row, group, run % RUNS_PER_GROUP, &factors, format);
            #[unroll]
            for i in 0..RUN_LEN {
                let column = run * RUN_LEN + i;
                if column < d_input {
                    out[token * d_input + column] = values[i] * scale;
                }
            }
        }
    }
}
