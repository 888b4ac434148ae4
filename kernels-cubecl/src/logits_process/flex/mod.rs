//! Native logits_process: see the contract in [`super`].

pub mod reference;

/// Tokens of a row that one task looks at.
pub const CHUNK: usize = 1 << 13;

use crate::step_inputs::StepView;
use crate::threads::Threads;

/// Not yet.
pub fn logits_process(
    _threads: &Threads,
    _logits: &mut [f32],
    _vocab_size: usize,
    _step: StepView<'_>,
) {
}
