//! The product of activations and packed weights on a CPU.
//!
//! Weights are read once per pass, whatever the number of rows: a tile of 16 rows of output stays in
//! the nearest cache while all rows of activations meet it. Threads share a product by tiles.
//! Weights of a quantised format meet activations quantised to 8 bits (unless [`MatrixSpec::activations`] says otherwise), because
//! that is what a CPU multiplies fastest.
//!
//! - [`activations`]: rows of f32 to runs of int8;
//! - [`inputs`]: what a product makes of its activations, and the buffers for it;
//! - [`instructions`]: which instruction set, and the kernels compiled for it;
//! - [`lanes`]: what an instruction set must do; [`avx512`], [`avx2`], [`portable`] do it;
//! - [`formats`]: reading a run of each format; [`micro`]: the inner loops; [`tiles`]: the outer.

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod formats;
mod inputs;
mod instructions;
mod lanes;
mod micro;
mod portable;
#[cfg(test)]
mod tests;
mod tiles;

use std::ops::Range;

pub use instructions::InstructionSet;

use inputs::{Inputs, SCRATCH};
use tiles::Tiles;

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
/// The bits of an output row depend on its input row, the weights and `instructions`; not on the
/// other rows, nor on the number of threads. Nothing is allocated once the calling thread has seen its
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
    let product = Product {
        instructions,
        threads,
        weights,
        bias,
        num_rows,
    };
    SCRATCH.with_borrow_mut(|scratch| {
        let inputs = scratch.prepare(instructions, threads, x, weights.spec);
        product.compute(inputs, out);
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

/// Tasks for each thread: enough that a thread which was put aside leaves little undone.
const TASKS_PER_THREAD: usize = 4;

/// One product, apart from its input and output.
struct Product<'a> {
    instructions: InstructionSet,
    threads: &'a Threads,
    weights: &'a Weights<'a>,
    bias: Option<&'a [f32]>,
    num_rows: usize,
}

impl Product<'_> {
    /// Splits the tiles of all parts between the threads.
    fn compute(&self, inputs: Inputs<'_>, out: &mut [f32]) {
        let parts = &self.weights.spec.parts;
        let num_tiles: usize = parts.iter().map(num_tiles).sum();
        let num_tasks = (self.threads.num_threads() * TASKS_PER_THREAD).min(num_tiles);
        let out = SendPtr(out.as_mut_ptr());
        self.threads.run(num_tasks, |task| {
            let tiles = task * num_tiles / num_tasks..(task + 1) * num_tiles / num_tasks;
            let mut part_start = 0;
            for (part, bytes) in parts.iter().zip(self.weights.parts) {
                let part_end = part_start + self::num_tiles(part);
                let start = tiles.start.max(part_start);
                let end = tiles.end.min(part_end);
                if start < end {
                    let range = start - part_start..end - part_start;
                    self.compute_tiles(part, bytes, range, inputs, &out);
                }
                part_start = part_end;
            }
        });
    }

    /// Computes tiles `range` of one part; no other task has the same.
    fn compute_tiles(
        &self,
        part: &PartSpec,
        bytes: &[u8],
        range: Range<usize>,
        inputs: Inputs<'_>,
        out: &SendPtr<f32>,
    ) {
        let MatrixSpec {
            d_input, d_output, ..
        } = *self.weights.spec;
        let is_int8 = is_int8(self.weights.spec, part);
        let rows = part.row_start..part.row_start + part.num_rows;
        let tiles = Tiles {
            weights: bytes,
            layout: TileLayout::new(part.format, d_input),
            part_rows: part.num_rows,
            range,
            input: if is_int8 {
                inputs.int8.as_ptr().cast()
            } else {
                inputs.floats.as_ptr().cast()
            },
            num_rows: self.num_rows,
            bias: self.bias.map(|bias| &bias[rows]),
            // SAFETY: the part's columns lie in the output.
            out: unsafe { out.get().add(part.row_start) },
            out_stride: d_output,
        };
        // SAFETY: `check` has compared all lengths, `prepare` has made the inputs that the format
        // takes, the instructions are available, and the tiles of this task are its own.
        unsafe { self.instructions.kernel(part.format, is_int8)(&tiles) };
    }
}

fn num_tiles(part: &PartSpec) -> usize {
    part.num_rows.div_ceil(TILE_ROWS)
}
