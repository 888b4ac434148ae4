//! The product of activations and packed weights on a CPU.
//!
//! Weights are read once per pass, whatever the number of rows: a tile of 16 rows of output stays in
//! the nearest cache while all rows of activations meet it. Threads share a product by tiles.
//! Weights of a quantised format meet activations quantised to 8 bits (unless [`MatrixSpec::activations`] says otherwise), because
//! that is what a CPU multiplies fastest.
//!
//! - [`activations`]: rows of f32 to runs of int8;
//! - [`instructions`]: which instruction set, and the kernels compiled for it;
//! - [`lanes`]: what an instruction set must do; [`avx512`], [`avx2`], [`portable`] do it;
//! - [`formats`]: reading a run of each format; [`micro`]: the inner loops; [`tiles`]: the outer.

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod formats;
mod instructions;
mod lanes;
mod micro;
mod portable;
#[cfg(test)]
mod tests;
mod tiles;

use std::cell::RefCell;

pub use instructions::InstructionSet;

use activations::Run;
use tiles::Tiles;

use crate::packed::dequantize::RUN_LEN;
use crate::packed::native::{TILE_ROWS, TileLayout};
use crate::spec::{ActivationMode, MatrixSpec, PartSpec};
use crate::threads::{SendPtr, Threads};

/// A matrix `[d_output, d_input]` of packed weights.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// Shape and parts.
    pub spec: &'a MatrixSpec,
    /// Bytes of each part, as [`pack`](crate::packed::native::pack) made them.
    pub parts: &'a [&'a [u8]],
}

/// [`linear_with`] the best instructions of this CPU.
pub fn linear(
    threads: &Threads,
    x: &[f32],
    weights: &Weights<'_>,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    linear_with(InstructionSet::detect(), threads, x, weights, bias, out);
}

/// `out[t, n] = bias[n] + sum over k of x[t, k] * weights[n, k]`, all row-major.
///
/// The bits of an output row depend on its input row, the weights and `instructions`; not on the other
/// rows, nor on the number of threads. Nothing is allocated once the calling thread has seen its
/// largest step.
///
/// # Panics
///
/// If lengths do not fit the matrix's shape, or this CPU lacks the instructions asked for.
pub fn linear_with(
    instructions: InstructionSet,
    threads: &Threads,
    x: &[f32],
    weights: &Weights<'_>,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let num_rows = check(x, weights, bias, out);
    if num_rows == 0 {
        return;
    }
    assert!(
        instructions.is_available(),
        "this CPU has no {instructions:?}"
    );
    SCRATCH.with_borrow_mut(|scratch| {
        let inputs = scratch.prepare(instructions, threads, x, weights.spec);
        multiply(instructions, threads, num_rows, inputs, weights, bias, out);
    });
}

/// Checks lengths and returns the number of rows.
fn check(x: &[f32], weights: &Weights<'_>, bias: Option<&[f32]>, out: &[f32]) -> usize {
    let MatrixSpec {
        d_input,
        d_output,
        parts,
        ..
    } = weights.spec;
    let num_rows = out.len() / d_output;
    assert_eq!(
        out.len(),
        num_rows * d_output,
        "outputs are rows of {d_output}"
    );
    assert_eq!(
        x.len(),
        num_rows * d_input,
        "inputs are {num_rows} rows of {d_input}"
    );
    assert!(
        bias.is_none_or(|bias| bias.len() == *d_output),
        "one bias for each of {d_output}"
    );
    assert_eq!(weights.parts.len(), parts.len(), "bytes for each part");
    let mut row_start = 0;
    for (part, bytes) in parts.iter().zip(weights.parts) {
        assert_eq!(part.row_start, row_start, "parts follow each other");
        let layout = TileLayout::new(part.format, *d_input);
        assert_eq!(
            bytes.len(),
            layout.matrix_bytes(part.num_rows),
            "bytes of {part:?}"
        );
        row_start += part.num_rows;
    }
    assert_eq!(row_start, *d_output, "parts cover the matrix");
    num_rows
}

/// Whether the part meets int8 activations.
fn is_int8(spec: &MatrixSpec, part: &PartSpec) -> bool {
    spec.activations == ActivationMode::Int8 && part.format.is_quantized()
}

/// Activations in the forms that the parts of a matrix need.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    int8: &'a [Run],
    floats: &'a [f32],
}

thread_local! {
    /// Of the thread that calls `linear`; workers have nothing to keep.
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
}

/// Buffers that grow to the largest step and are used again.
struct Scratch {
    int8: Vec<Run>,
    floats: Vec<f32>,
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

    fn prepare<'a>(
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
        let is_padded = has_floats && spec.d_input % RUN_LEN != 0;
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

/// Tasks for each thread: enough that a thread which was put aside leaves little undone.
const TASKS_PER_THREAD: usize = 4;

/// Splits the tiles of all parts between the threads.
fn multiply(
    instructions: InstructionSet,
    threads: &Threads,
    num_rows: usize,
    inputs: Inputs<'_>,
    weights: &Weights<'_>,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let MatrixSpec {
        d_input,
        d_output,
        parts,
        ..
    } = weights.spec;
    let num_tiles: usize = parts
        .iter()
        .map(|part| part.num_rows.div_ceil(TILE_ROWS))
        .sum();
    let num_tasks = (threads.num_threads() * TASKS_PER_THREAD).min(num_tiles);
    let out = SendPtr(out.as_mut_ptr());
    threads.run(num_tasks, |task| {
        let tiles = task * num_tiles / num_tasks..(task + 1) * num_tiles / num_tasks;
        let mut part_start = 0;
        for (part, bytes) in parts.iter().zip(weights.parts) {
            let part_tiles = part.num_rows.div_ceil(TILE_ROWS);
            let start = tiles.start.max(part_start) - part_start;
            let end = tiles.end.clamp(part_start, part_start + part_tiles) - part_start;
            part_start += part_tiles;
            if start >= end {
                continue;
            }
            let is_int8 = is_int8(weights.spec, part);
            let rows = part.row_start..part.row_start + part.num_rows;
            let work = Tiles {
                weights: bytes,
                layout: TileLayout::new(part.format, *d_input),
                part_rows: part.num_rows,
                tiles: start..end,
                input: if is_int8 {
                    inputs.int8.as_ptr().cast()
                } else {
                    inputs.floats.as_ptr().cast()
                },
                num_rows,
                bias: bias.map(|bias| &bias[rows]),
                // SAFETY: the part's columns lie in the output.
                out: unsafe { out.get().add(part.row_start) },
                out_stride: *d_output,
            };
            // SAFETY: `check` has compared all lengths, `prepare` has made the inputs that the
            // format takes, and the tiles of this task are its own.
            unsafe { instructions.kernel(part.format, is_int8)(&work) };
        }
    });
}
