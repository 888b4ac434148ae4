//! What changes single tokens of a row on a device: biases, penalties, the grammar mask.
//!
//! Each unit edits the tokens it looks at in every other pass, see [`super`], which calls this.

use super::Blueprint;
use super::search::MASKED;
use crate::step_inputs::{
    BIAS_WORDS, HISTORY_WORDS, OUTPUT_COUNT_BITS, flag, header, mask_row_words, word,
};
use cubecl::prelude::*;

/// Adds biases; minus infinity masks.
#[cube]
pub(super) fn add_biases(
    logits: &mut [u32],
    step: &[u32],
    start: usize,
    parameters: usize,
    #[comptime] units: u32,
) {
    let section = step[header::BIAS] as usize;
    for i in step[parameters + word::BIAS_START]..step[parameters + word::BIAS_END] {
        let entry = section + i as usize * BIAS_WORDS;
        let token = step[entry];
        if token % units == UNIT_POS {
            let at = start + token as usize;
            let bias = step[entry + 1];
            let logit = logits[at];
            let masked = logit == MASKED || bias == MASKED;
            // Where either is infinite the sum is not used, so it is made of zeros.
            let sum = f32::from_bits(select(masked, 0u32, logit))
                + f32::from_bits(select(masked, 0u32, bias));
            logits[at] = select(masked, MASKED, sum.to_bits());
        }
    }
}

/// Penalises the tokens of the history, and the carried one.
#[cube]
pub(super) fn penalise_seen(
    logits: &mut [u32],
    step: &[u32],
    start: usize,
    parameters: usize,
    #[comptime] blueprint: Blueprint,
) {
    let units = comptime!(blueprint.units);
    let has_carried = (step[parameters + word::FLAGS] & flag::CARRIED) != 0u32;
    let carried = step[parameters + word::CARRIED_TOKEN];
    // Every unit goes through the whole history, so the one whose token is carried knows whether it is in.
    let mut pending = has_carried
        && carried % units == UNIT_POS
        && carried < comptime!(blueprint.vocab_size as u32);
    let section = step[header::HISTORY] as usize;
    for i in step[parameters + word::HISTORY_START]..step[parameters + word::HISTORY_END] {
        let entry = section + i as usize * HISTORY_WORDS;
        let token = step[entry];
        if token % units == UNIT_POS {
            let seen = step[entry + 1];
            let is_carried = pending && token == carried;
            let count = (seen & OUTPUT_COUNT_BITS) + select(is_carried, 1u32, 0u32);
            let at = start + token as usize;
            logits[at] = penalised(
                logits[at],
                count,
                seen > OUTPUT_COUNT_BITS,
                step,
                parameters,
            );
            if is_carried {
                pending = false;
            }
        }
    }
    if pending {
        let at = start + carried as usize;
        logits[at] = penalised(logits[at], 1u32, false, step, parameters);
    }
}

/// The bits of a logit after its penalties.
#[cube]
fn penalised(
    bits: u32,
    output_count: u32,
    in_prompt: bool,
    step: &[u32],
    parameters: usize,
) -> u32 {
    let repetition = f32::from_bits(step[parameters + word::REPETITION_PENALTY]);
    let frequency = f32::from_bits(step[parameters + word::FREQUENCY_PENALTY]);
    let presence = f32::from_bits(step[parameters + word::PRESENCE_PENALTY]);
    let logit = f32::from_bits(select(bits == MASKED, 0u32, bits));
    let was_output = output_count > 0u32;
    let repeated = select(logit > 0.0f32, logit / repetition, logit * repetition);
    let output = repeated - frequency * f32::cast_from(output_count) - presence;
    let penalised = select(was_output, output, repeated).to_bits();
    select(bits != MASKED && (was_output || in_prompt), penalised, bits)
}

/// Masks the tokens whose bit is clear.
#[cube]
pub(super) fn apply_mask(
    logits: &mut [u32],
    step: &[u32],
    start: usize,
    parameters: usize,
    #[comptime] blueprint: Blueprint,
) {
    let vocab_size = comptime!(blueprint.vocab_size);
    let units = comptime!(blueprint.units as usize);
    if (step[parameters + word::FLAGS] & flag::MASK) != 0u32 {
        let row_words = comptime!(mask_row_words(blueprint.vocab_size));
        let mask =
            step[header::MASKS] as usize + step[parameters + word::MASK] as usize * row_words;
        for i in range_stepped(UNIT_POS as usize, vocab_size, units) {
            let allowed = (step[mask + i / 32usize] >> (i % 32usize) as u32) & 1u32;
            if allowed == 0u32 {
                logits[start + i] = MASKED;
            }
        }
    }
}
