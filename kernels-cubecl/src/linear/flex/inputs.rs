//! What a product makes of its activations before it multiplies, and the buffers it keeps for that.

use std::cell::RefCell;

use super::activations::Run;
use super::instructions::InstructionSet;
use super::is_int8;
use crate::packed::dequantize::RUN_LEN;
use crate::spec::MatrixSpec;
use crate::threads::Threads;

/// Activations in the forms that the parts of a matrix need.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) int8: &'a [Run],
    pub(super) floats: &'a [f32],
}

thread_local! {
    /// Of the thread that calls `linear`; workers have nothing to keep.
    pub(super) static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
}

/// Buffers that grow to the largest step and are used again.
pub(super) struct Scratch {
    pub(super) int8: Vec<Run>,
    pub(super) floats: Vec<f32>,
}

/// Rows of activations that one task quantises.
const ROWS_PER_TASK: usize = 16;

impl Scratch {
    const fn new() -> Self {
        Self {
            int8: Vec::new(),
            floats: Vec::new(),
        }
    }

    /// Makes the inputs of every part of `spec` from `x [T, K]`.
    pub(super) fn prepare<'a>(
        &'a mut self,
        instructions: InstructionSet,
        threads: &Threads,
        x: &'a [f32],
        spec: &MatrixSpec,
    ) -> Inputs<'a> {
        let num_rows = x.len() / spec.d_input;
        let num_runs = spec.d_input.div_ceil(RUN_LEN);
        if spec.parts.iter().any(|part| is_int8(spec, part)) {
            grow(&mut self.int8, num_rows * num_runs, Run::ZERO);
            let runs = &mut self.int8[..num_rows * num_runs];
            threads.for_each_chunk(runs, ROWS_PER_TASK * num_runs, |chunk, runs| {
                let rows = &x[chunk * ROWS_PER_TASK * spec.d_input..];
                instructions.quantize(rows, runs);
            });
        }
        let has_floats = spec.parts.iter().any(|part| !is_int8(spec, part));
        let is_padded = has_floats && !spec.d_input.is_multiple_of(RUN_LEN);
        if is_padded {
            let padded = num_runs * RUN_LEN;
            grow(&mut self.floats, num_rows * padded, 0.0);
            for (row, out) in x
                .chunks_exact(spec.d_input)
                .zip(self.floats.chunks_exact_mut(padded))
            {
                out[..row.len()].copy_from_slice(row);
                out[row.len()..].fill(0.0);
            }
        }
        Inputs {
            int8: &self.int8,
            floats: if is_padded { &self.floats } else { x },
        }
    }
}

/// Makes `values` at least `len` long.
fn grow<T: Clone>(values: &mut Vec<T>, len: usize, value: T) {
    if values.len() < len {
        values.resize(len, value);
    }
}
