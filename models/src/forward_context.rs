//! What one forward pass needs besides hidden states: the step's integers, on the device.
//!
//! Made by [`crate::runner`], passed by reference through [`crate::decoder`] and every layer, so
//! no layer holds state of its own.

use burn::tensor::{Int, Tensor};

/// The inputs of one step on the device. See `forerun_kernels::step_inputs` for the buffer.
#[derive(Clone, Debug)]
pub struct ForwardContext {
    step: Tensor<1, Int>,
    num_tokens: usize,
    num_logit_rows: usize,
}

impl ForwardContext {
    /// `step` is the uploaded step buffer. `num_tokens` (T) and `num_logit_rows` (R) are the row
    /// counts that tensors get; on devices that pad to buckets they exceed the live counts in
    /// the buffer's header.
    pub fn new(step: Tensor<1, Int>, num_tokens: usize, num_logit_rows: usize) -> Self {
        Self {
            step,
            num_tokens,
            num_logit_rows,
        }
    }

    /// The same with a changed step buffer.
    #[must_use]
    pub fn map_step(self, change: impl FnOnce(Tensor<1, Int>) -> Tensor<1, Int>) -> Self {
        Self {
            step: change(self.step),
            ..self
        }
    }

    /// The step buffer: a handle, not a copy.
    pub fn step(&self) -> Tensor<1, Int> {
        self.step.clone()
    }

    /// T, padding included.
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// R, padding included.
    pub fn num_logit_rows(&self) -> usize {
        self.num_logit_rows
    }
}
