//! Block verification of a chain.
//!
//! Neighbours: called by [`super`]; the formulas are in the contract.

use super::Blueprint;
use super::rows::{Buffers, Softmax, Tree, draw_dense};
use crate::launch::cube_sum;
use crate::step_inputs::word;
use crate::verify::{STATUS_NOT_FINITE, STATUS_TOKEN};
use cubecl::prelude::*;

/// Writes the verdicts of the accepted part of a chain.
#[cube]
#[expect(
    clippy::too_many_arguments,
    reason = "a kernel's buffers cannot be put into a struct"
)]
pub(super) fn verify(
    tree: &Tree,
    logits: &[f32],
    sampled: &[u32],
    draft_logits: &[f32],
    step: &[u32],
    residual: &mut [f32],
    verdicts: &mut [u32],
    buffers: &mut Buffers,
    #[comptime] blueprint: Blueprint,
) {
    let vocab_size = comptime!(blueprint.vocab_size);
    let temperature = tree.temperature(step);
    let num_decided = num_decided(tree, sampled);
    let decided_end = num_decided + 1;
    let mut accepted = 0usize;
    let mut accepted_scale = 1.0f32;
    let mut scale = 1.0f32;
    for node in 1..decided_end {
        let start = (tree.row + node - 1) * vocab_size;
        let before = Softmax::of(logits, start, temperature, buffers, blueprint);
        let token = tree.token(step, node) as usize;
        let p = before.weight(logits, token) / before.mass;
        let mut q = 1.0f32;
        if tree.is_drawn(step, node) {
            let start = tree.word(step, node, word::DRAFT_ROW) as usize * vocab_size;
            let draft = Softmax::of(draft_logits, start, temperature, buffers, blueprint);
            q = draft.weight(draft_logits, token) / draft.mass;
        }
        scale = min(scale * p / q, 1.0f32);
        let mut threshold = scale;
        if node < num_decided {
            let left = subtract(
                tree,
                node,
                scale,
                logits,
                draft_logits,
                step,
                residual,
                buffers,
                blueprint,
            );
            let whole = left + 1.0f32 - scale;
            threshold = select(whole > 0.0f32, left / whole, 0.0f32);
        }
        if tree.uniform(step, node - 1, 0u32) < threshold {
            accepted = node;
            accepted_scale = scale;
        }
    }
    let is_good = sampled[(tree.row + accepted) * 2 + 1] == STATUS_TOKEN;
    let mut token = 0u32;
    if is_good {
        let left = subtract(
            tree,
            accepted,
            accepted_scale,
            logits,
            draft_logits,
            step,
            residual,
            buffers,
            blueprint,
        );
        if left <= 0.0f32 && accepted < tree.num_drafts {
            without_rejected(tree, accepted, logits, step, residual, buffers, blueprint);
        }
        token = draw_dense(tree, accepted, step, residual, buffers, blueprint);
    }
    if UNIT_POS == 0 {
        for node in 0..accepted {
            verdicts[(tree.row + node) * 2] = tree.token(step, node + 1);
            verdicts[(tree.row + node) * 2 + 1] = STATUS_TOKEN;
        }
        verdicts[(tree.row + accepted) * 2] = token;
        verdicts[(tree.row + accepted) * 2 + 1] = select(is_good, STATUS_TOKEN, STATUS_NOT_FINITE);
    }
}

/// Drafts that can be decided: nothing is known behind a row that is not finite.
#[cube]
fn num_decided(tree: &Tree, sampled: &[u32]) -> usize {
    let mut num_decided = 0usize;
    for node in 0..tree.num_drafts {
        if num_decided == node && sampled[(tree.row + node) * 2 + 1] == STATUS_TOKEN {
            num_decided = node + 1;
        }
    }
    num_decided
}

/// Where rounding left nothing: any token behind a node but the rejected one.
#[cube]
#[expect(
    clippy::too_many_arguments,
    reason = "a kernel's buffers cannot be put into a struct"
)]
fn without_rejected(
    tree: &Tree,
    node: usize,
    logits: &[f32],
    step: &[u32],
    residual: &mut [f32],
    buffers: &mut Buffers,
    #[comptime] blueprint: Blueprint,
) {
    let vocab_size = comptime!(blueprint.vocab_size);
    let rejected = tree.token(step, node + 1) as usize;
    let start = (tree.row + node) * vocab_size;
    let target = Softmax::of(logits, start, tree.temperature(step), buffers, blueprint);
    for i in range_stepped(
        UNIT_POS as usize,
        vocab_size,
        comptime!(blueprint.units as usize),
    ) {
        let weight = target.weight(logits, i);
        residual[tree.row * vocab_size + i] = select(i == rejected, 0.0f32, weight);
    }
}

/// Writes `max(scale * p - q, 0)` behind a node as the residual and sums it; p behind the last draft.
#[cube]
#[expect(
    clippy::too_many_arguments,
    reason = "a kernel's buffers cannot be put into a struct"
)]
fn subtract(
    tree: &Tree,
    node: usize,
    scale: f32,
    logits: &[f32],
    draft_logits: &[f32],
    step: &[u32],
    residual: &mut [f32],
    buffers: &mut Buffers,
    #[comptime] blueprint: Blueprint,
) -> f32 {
    let vocab_size = comptime!(blueprint.vocab_size);
    let temperature = tree.temperature(step);
    let start = (tree.row + node) * vocab_size;
    let target = Softmax::of(logits, start, temperature, buffers, blueprint);
    let is_last = node == tree.num_drafts;
    let next = select(is_last, node, node + 1);
    let is_drawn = !is_last && tree.is_drawn(step, next);
    let mut draft_start = 0usize;
    let mut draft_maximum = 0.0f32;
    let mut draft_mass = 1.0f32;
    if is_drawn {
        draft_start = tree.word(step, next, word::DRAFT_ROW) as usize * vocab_size;
        let softmax = Softmax::of(draft_logits, draft_start, temperature, buffers, blueprint);
        draft_maximum = softmax.maximum;
        draft_mass = softmax.mass;
    }
    let draft = Softmax {
        start: draft_start,
        temperature,
        maximum: draft_maximum,
        mass: draft_mass,
    };
    let token = tree.token(step, next) as usize;
    let mut sum = 0.0f32;
    for i in range_stepped(
        UNIT_POS as usize,
        vocab_size,
        comptime!(blueprint.units as usize),
    ) {
        let p = target.weight(logits, i) / target.mass;
        let mut q = select(!is_last && i == token, 1.0f32, 0.0f32);
        if is_drawn {
            q = draft.weight(draft_logits, i) / draft.mass;
        }
        let factor = select(is_last, 1.0f32, scale);
        let rest = max(factor * p - q, 0.0f32);
        residual[tree.row * vocab_size + i] = rest;
        sum += rest;
    }
    cube_sum(sum, &mut buffers.scratch, comptime!(blueprint.units))
}
