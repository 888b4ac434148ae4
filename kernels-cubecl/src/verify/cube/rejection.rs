//! Rejection sampling along a tree, child after child.
//!
//! Neighbours: called by [`super`]; the rule is in the contract.

use super::Blueprint;
use super::rows::{Buffers, Softmax, Tree, best, broadcast, draw_dense, state};
use crate::launch::cube_sum;
use crate::sample::cube::is_finite;
use crate::step_inputs::word;
use crate::verify::{STATUS_NOT_FINITE, STATUS_TOKEN};
use cubecl::prelude::*;

/// Writes the verdicts of the accepted path.
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
    if UNIT_POS == 0 {
        buffers.state[state::AT] = 0u32;
        buffers.state[state::GOING] = 1u32;
    }
    sync_cube();
    for _ in 0..tree.num_nodes() {
        if buffers.state[state::GOING] == 1u32 {
            let at = buffers.state[state::AT] as usize;
            let row = tree.row + at;
            let is_good = sampled[row * 2 + 1] == STATUS_TOKEN;
            let mut token = 0u32;
            let mut accepted = 0u32;
            if UNIT_POS == 0 {
                buffers.state[state::ACCEPTED] = 0u32;
            }
            sync_cube();
            if is_good {
                token = decide(
                    tree,
                    at,
                    logits,
                    draft_logits,
                    step,
                    residual,
                    buffers,
                    blueprint,
                );
                accepted = buffers.state[state::ACCEPTED];
                if accepted > 0u32 {
                    token = tree.token(step, accepted as usize);
                }
            }
            sync_cube();
            if UNIT_POS == 0 {
                verdicts[row * 2] = token;
                verdicts[row * 2 + 1] = select(is_good, STATUS_TOKEN, STATUS_NOT_FINITE);
                buffers.state[state::AT] = accepted;
                buffers.state[state::GOING] = select(accepted > 0u32, 1u32, 0u32);
            }
            sync_cube();
        }
    }
}

/// Tries the children of a node; the token that is drawn where none is accepted. Which was accepted is
/// in the state.
#[cube]
#[expect(
    clippy::too_many_arguments,
    reason = "a kernel's buffers cannot be put into a struct"
)]
fn decide(
    tree: &Tree,
    at: usize,
    logits: &[f32],
    draft_logits: &[f32],
    step: &[u32],
    residual: &mut [f32],
    buffers: &mut Buffers,
    #[comptime] blueprint: Blueprint,
) -> u32 {
    let vocab_size = comptime!(blueprint.vocab_size);
    let stride = comptime!(blueprint.units as usize);
    let temperature = tree.temperature(step);
    let start = (tree.row + at) * vocab_size;
    let target = Softmax::of(logits, start, temperature, buffers, blueprint);
    let drawn = first_drawn(tree, at, step);
    let is_dense = drawn > 0;
    let own = tree.row * vocab_size;
    let mut mass = target.mass;
    if is_dense {
        for i in range_stepped(UNIT_POS as usize, vocab_size, stride) {
            residual[own + i] = target.weight(logits, i) / target.mass;
        }
        mass = 1.0f32;
    }
    let draft = draft_softmax(tree, drawn, draft_logits, step, buffers, blueprint);
    let mut draft_left = draft.mass;
    let mut number = 0u32;
    for child in at + 1..tree.num_nodes() {
        if buffers.state[state::ACCEPTED] == 0u32 && tree.is_child(step, at, child) {
            let token = tree.token(step, child) as usize;
            let mut weight = target.weight(logits, token);
            if is_dense {
                weight = broadcast(residual, own, token, buffers, blueprint);
            }
            let uniform = tree.uniform(step, at, number);
            number += 1u32;
            let is_drawn = tree.is_drawn(step, child);
            let draft_weight = draft.weight(draft_logits, token);
            let share = select(is_drawn, draft_weight / draft_left, 1.0f32);
            if uniform * share * mass < weight {
                sync_cube();
                if UNIT_POS == 0 {
                    buffers.state[state::ACCEPTED] = child as u32;
                }
                sync_cube();
            } else if is_drawn {
                let sum = subtract(
                    tree,
                    at,
                    child,
                    mass,
                    draft_left,
                    &draft,
                    draft_logits,
                    step,
                    residual,
                    buffers,
                    blueprint,
                );
                mass = select(sum > 0.0f32, sum, mass - weight);
                draft_left -= draft_weight;
            } else {
                mass -= weight;
                if is_dense && token % stride == UNIT_POS as usize {
                    residual[own + token] = 0.0f32;
                }
            }
        }
    }
    let mut drawn_token = 0u32;
    if buffers.state[state::ACCEPTED] == 0u32 {
        if is_dense {
            drawn_token = draw_dense(tree, at, step, residual, buffers, blueprint);
        } else {
            drawn_token = draw_plain(tree, at, &target, logits, step, buffers, blueprint);
        }
    }
    drawn_token
}

/// The first drawn child of a node, or 0; its siblings were drawn from the same distribution.
#[cube]
fn first_drawn(tree: &Tree, at: usize, step: &[u32]) -> usize {
    let mut drawn = 0usize;
    for child in at + 1..tree.num_nodes() {
        if drawn == 0 && tree.is_child(step, at, child) && tree.is_drawn(step, child) {
            drawn = child;
        }
    }
    drawn
}

/// What a drawn child came from; means nothing without one.
#[cube]
fn draft_softmax(
    tree: &Tree,
    drawn: usize,
    draft_logits: &[f32],
    step: &[u32],
    buffers: &mut Buffers,
    #[comptime] blueprint: Blueprint,
) -> Softmax {
    let temperature = tree.temperature(step);
    let mut start = 0usize;
    let mut maximum = 0.0f32;
    let mut mass = 1.0f32;
    if drawn > 0 {
        let row = tree.word(step, drawn, word::DRAFT_ROW) as usize;
        start = row * comptime!(blueprint.vocab_size);
        let softmax = Softmax::of(draft_logits, start, temperature, buffers, blueprint);
        maximum = softmax.maximum;
        mass = softmax.mass;
    }
    Softmax {
        start,
        temperature,
        maximum,
        mass,
    }
}

/// Takes the draft distribution out of the residual after a drawn child was rejected; the sum of what
/// is left. Where that is nothing the residual only loses the child's token.
#[cube]
#[expect(
    clippy::too_many_arguments,
    reason = "a kernel's buffers cannot be put into a struct"
)]
fn subtract(
    tree: &Tree,
    at: usize,
    child: usize,
    mass: f32,
    draft_left: f32,
    draft: &Softmax,
    draft_logits: &[f32],
    step: &[u32],
    residual: &mut [f32],
    buffers: &mut Buffers,
    #[comptime] blueprint: Blueprint,
) -> f32 {
    let vocab_size = comptime!(blueprint.vocab_size);
    let stride = comptime!(blueprint.units as usize);
    let own = tree.row * vocab_size;
    let token = tree.token(step, child) as usize;
    let mut sum = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, vocab_size, stride) {
        let q = sibling_weight(tree, at, child, i, draft, draft_logits, step);
        sum += max(residual[own + i] / mass - q / draft_left, 0.0f32);
    }
    let sum = cube_sum(sum, &mut buffers.scratch, comptime!(blueprint.units));
    let is_left = sum > 0.0f32;
    for i in range_stepped(UNIT_POS as usize, vocab_size, stride) {
        let q = sibling_weight(tree, at, child, i, draft, draft_logits, step);
        let p = residual[own + i];
        let kept = select(i == token, 0.0f32, p);
        let rest = max(p / mass - q / draft_left, 0.0f32);
        residual[own + i] = select(is_left, rest, kept);
    }
    sum
}

/// Weight of a token in the draft distribution without the siblings that were tried before `child`.
#[cube]
#[expect(
    clippy::too_many_arguments,
    reason = "a kernel's buffers cannot be put into a struct"
)]
fn sibling_weight(
    tree: &Tree,
    at: usize,
    child: usize,
    token: usize,
    draft: &Softmax,
    draft_logits: &[f32],
    step: &[u32],
) -> f32 {
    let mut weight = draft.weight(draft_logits, token);
    for sibling in at + 1..child {
        let is_tried = tree.is_child(step, at, sibling) && tree.is_drawn(step, sibling);
        if is_tried && tree.token(step, sibling) == token as u32 {
            weight = 0.0f32;
        }
    }
    weight
}

/// A token of a row's softmax without the children of a node, which were all rejected.
#[cube]
#[expect(
    clippy::too_many_arguments,
    reason = "a kernel's buffers cannot be put into a struct"
)]
fn draw_plain(
    tree: &Tree,
    at: usize,
    target: &Softmax,
    logits: &[f32],
    step: &[u32],
    buffers: &mut Buffers,
    #[comptime] blueprint: Blueprint,
) -> u32 {
    let mut best_score = f32::min_value();
    let mut best_token = 0xffff_ffffu32;
    for i in range_stepped(
        UNIT_POS as usize,
        comptime!(blueprint.vocab_size),
        comptime!(blueprint.units as usize),
    ) {
        let logit = logits[target.start + i];
        let mut is_left = is_finite(logit);
        for child in at + 1..tree.num_nodes() {
            if tree.is_child(step, at, child) && tree.token(step, child) == i as u32 {
                is_left = false;
            }
        }
        if is_left {
            let scaled = (logit - target.maximum) / target.temperature;
            let score = scaled + tree.gumbel(step, at, i as u32);
            if score > best_score {
                best_score = score;
                best_token = i as u32;
            }
        }
    }
    best(best_score, best_token, buffers, blueprint)
}
