//! Native logprobs: see the contract in [`super`].

pub mod reference;

use crate::step_inputs::StepView;
use crate::threads::Threads;

/// What logprobs are made of.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// `[R, V]`.
    pub raw: &'a [f32],
    /// `[R, V]`.
    pub processed: &'a [f32],
    /// `[R, 2]`.
    pub verdicts: &'a [u32],
    /// V.
    pub vocab_size: usize,
    /// The step.
    pub step: StepView<'a>,
}

/// Not yet: the verdicts alone.
pub fn logprobs(_threads: &Threads, inputs: &Inputs<'_>, row_words: usize, out: &mut [u32]) {
    for (row, verdict) in out
        .chunks_exact_mut(row_words)
        .zip(inputs.verdicts.chunks_exact(2))
    {
        row[..2].copy_from_slice(verdict);
    }
}
