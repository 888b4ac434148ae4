//! What changes single tokens of a row: biases, penalties, the grammar mask.
//!
//! Neighbours: [`super`] runs them before the filters.

use crate::step_inputs::{SamplingRow, StepView};

/// What [`penalise`] applies to a token.
#[derive(Clone, Copy)]
struct Seen {
    output_count: u32,
    in_prompt: bool,
}

/// Adds biases and applies penalties to a row.
pub(super) fn edit(
    logits: &mut [f32],
    sampling: &SamplingRow,
    carried: Option<u32>,
    step: StepView<'_>,
) {
    for (token, bias) in step.bias(sampling.bias) {
        let logit = &mut logits[token as usize];
        if *logit > f32::NEG_INFINITY {
            *logit += bias;
        }
    }
    if !sampling.has_penalties() {
        return;
    }
    let mut carried = carried;
    for entry in step.history(sampling.history) {
        let is_carried = carried == Some(entry.token);
        if is_carried {
            carried = None;
        }
        let seen = Seen {
            output_count: entry.output_count + u32::from(is_carried),
            in_prompt: entry.in_prompt,
        };
        penalise(&mut logits[entry.token as usize], seen, sampling);
    }
    // A host that checked `previous` against this vocabulary has tokens below V only.
    if let Some(logit) = carried.and_then(|token| logits.get_mut(token as usize)) {
        let seen = Seen {
            output_count: 1,
            in_prompt: false,
        };
        penalise(logit, seen, sampling);
    }
}

fn penalise(logit: &mut f32, seen: Seen, sampling: &SamplingRow) {
    let was_output = seen.output_count > 0;
    if *logit == f32::NEG_INFINITY || !(was_output || seen.in_prompt) {
        return;
    }
    let penalty = sampling.repetition_penalty;
    if *logit > 0.0 {
        *logit /= penalty;
    } else {
        *logit *= penalty;
    }
    if was_output {
        *logit -= sampling.frequency_penalty * seen.output_count as f32;
        *logit -= sampling.presence_penalty;
    }
}

/// Masks the tokens whose bit is clear. `logits` begin at a token that is a multiple of 32, and `words` at
/// its word.
pub(super) fn apply_mask(logits: &mut [f32], words: &[u32]) {
    for (logits, &word) in logits.chunks_mut(32).zip(words) {
        match word {
            u32::MAX => {}
            0 => logits.fill(f32::NEG_INFINITY),
            _ => {
                for (token, logit) in logits.iter_mut().enumerate() {
                    if word >> token & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}
