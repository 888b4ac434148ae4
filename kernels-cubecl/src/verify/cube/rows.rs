//! What the rules have in common: the tree in the step buffer, and sums over a row.
//!
//! Neighbours: used by [`super::rejection`] and [`super::block`].

use super::Blueprint;
use crate::elementary::{exp, ln};
use crate::launch::cube_sum;
use crate::sample::cube::{cube_best, cube_max, gumbel, is_finite, uniform};
use crate::sample::philox::{PURPOSE_ACCEPT, PURPOSE_RESIDUAL};
use crate::step_inputs::{SAMPLING_WORDS, flag, header, word};
use cubecl::prelude::*;

/// Words of shared memory that all units branch on.
pub(super) mod state {
    /// Drafts of the cube's tree.
    pub(crate) const NUM_DRAFTS: usize = 0;
    /// 0 by shared noise, 1 by rejection, 2 as a block.
    pub(crate) const RULE: usize = 1;
    /// Node that is being decided.
    pub(crate) const AT: usize = 2;
    /// Whether there is one.
    pub(crate) const GOING: usize = 3;
    /// Child that was accepted, or 0.
    pub(crate) const ACCEPTED: usize = 4;
    /// How many there are.
    pub(crate) const LEN: usize = 5;
}

/// Shared memory of a cube.
#[derive(CubeType)]
pub(super) struct Buffers {
    pub(super) scratch: Shared<[f32]>,
    pub(super) words: Shared<[u32]>,
    pub(super) state: Shared<[u32]>,
}

/// The rows of a tree. Node 0 is its anchor, node n the n-th draft.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Tree {
    /// Of the anchor.
    pub(super) row: usize,
    pub(super) num_drafts: usize,
    /// Where sampling parameters begin.
    pub(super) sampling: usize,
}

/// A row's softmax.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Softmax {
    /// Where its logits begin.
    pub(super) start: usize,
    pub(super) temperature: f32,
    pub(super) maximum: f32,
    /// Sum of all weights.
    pub(super) mass: f32,
}

#[cube]
impl Tree {
    /// A word of a node's sampling parameters.
    pub(super) fn word(&self, step: &[u32], node: usize, #[comptime] which: usize) -> u32 {
        step[self.sampling + (self.row + node) * SAMPLING_WORDS + which]
    }

    /// The anchor and all drafts.
    pub(super) fn num_nodes(&self) -> usize {
        self.num_drafts + 1
    }

    pub(super) fn temperature(&self, step: &[u32]) -> f32 {
        min(
            f32::from_bits(self.word(step, 0usize, word::TEMPERATURE)),
            1e30f32,
        )
    }

    pub(super) fn is_child(&self, step: &[u32], node: usize, child: usize) -> bool {
        self.word(step, child, word::PARENT_ROW) == (self.row + node) as u32
    }

    pub(super) fn is_chain(&self, step: &[u32]) -> bool {
        let mut is_chain = true;
        for node in 0..self.num_drafts {
            is_chain = is_chain && self.is_child(step, node, node + 1);
        }
        is_chain
    }

    pub(super) fn is_drawn(&self, step: &[u32], node: usize) -> bool {
        (self.word(step, node, word::FLAGS) & flag::DRAWN) != 0u32
    }

    pub(super) fn token(&self, step: &[u32], node: usize) -> u32 {
        let token = step[step[header::LOGIT_ROWS] as usize + self.row + node] as usize;
        step[step[header::TOKEN_IDS] as usize + token]
    }

    /// The number that decides whether child `number` behind a node is accepted.
    pub(super) fn uniform(&self, step: &[u32], node: usize, number: u32) -> f32 {
        uniform(
            self.word(step, node, word::SEED_LOW),
            self.word(step, node, word::SEED_HIGH),
            self.word(step, node, word::POSITION),
            PURPOSE_ACCEPT,
            self.word(step, node, word::ANCHOR),
            number,
        )
    }

    /// Noise of a token that is drawn behind a node.
    pub(super) fn gumbel(&self, step: &[u32], node: usize, token: u32) -> f32 {
        gumbel(
            self.word(step, node, word::SEED_LOW),
            self.word(step, node, word::SEED_HIGH),
            self.word(step, node, word::POSITION),
            PURPOSE_RESIDUAL,
            self.word(step, node, word::ANCHOR),
            token,
        )
    }
}

#[cube]
impl Softmax {
    /// Of the row that begins at `start`.
    pub(super) fn of(
        values: &[f32],
        start: usize,
        temperature: f32,
        buffers: &mut Buffers,
        #[comptime] blueprint: Blueprint,
    ) -> Softmax {
        let vocab_size = comptime!(blueprint.vocab_size);
        let units = comptime!(blueprint.units);
        let stride = comptime!(units as usize);
        let mut maximum = f32::min_value();
        for i in range_stepped(UNIT_POS as usize, vocab_size, stride) {
            let value = values[start + i];
            if is_finite(value) {
                maximum = max(maximum, value);
            }
        }
        let maximum = cube_max(maximum, &mut buffers.scratch, units);
        let mut softmax = Softmax {
            start,
            temperature,
            maximum,
            mass: 1.0f32,
        };
        let mut sum = 0.0f32;
        for i in range_stepped(UNIT_POS as usize, vocab_size, stride) {
            sum += softmax.weight(values, i);
        }
        softmax.mass = cube_sum(sum, &mut buffers.scratch, units);
        softmax
    }

    /// Of a token, by whatever the mass is divided.
    pub(super) fn weight(&self, values: &[f32], token: usize) -> f32 {
        let value = values[self.start + token];
        let finite = is_finite(value);
        let scaled = (select(finite, value, self.maximum) - self.maximum) / self.temperature;
        select(finite, exp(scaled), 0.0f32)
    }
}

/// The value at a token's place that its own unit sees, for all units.
#[cube]
pub(super) fn broadcast(
    values: &mut [f32],
    start: usize,
    token: usize,
    buffers: &mut Buffers,
    #[comptime] blueprint: Blueprint,
) -> f32 {
    if token % comptime!(blueprint.units as usize) == UNIT_POS as usize {
        buffers.scratch[0] = values[start + token];
    }
    sync_cube();
    let value = buffers.scratch[0];
    sync_cube();
    value
}

/// The token with the greatest score; each unit brings its best.
#[cube]
pub(super) fn best(
    score: f32,
    token: u32,
    buffers: &mut Buffers,
    #[comptime] blueprint: Blueprint,
) -> u32 {
    let best = cube_best(
        score,
        token,
        &mut buffers.scratch,
        &mut buffers.words,
        comptime!(blueprint.units),
    );
    sync_cube();
    best
}

/// A token drawn from weights that lie in `residual`.
#[cube]
pub(super) fn draw_dense(
    tree: &Tree,
    node: usize,
    step: &[u32],
    residual: &mut [f32],
    buffers: &mut Buffers,
    #[comptime] blueprint: Blueprint,
) -> u32 {
    let vocab_size = comptime!(blueprint.vocab_size);
    let start = tree.row * vocab_size;
    let mut best_score = f32::min_value();
    let mut best_token = 0xffff_ffffu32;
    for i in range_stepped(
        UNIT_POS as usize,
        vocab_size,
        comptime!(blueprint.units as usize),
    ) {
        let weight = residual[start + i];
        if weight > 0.0f32 {
            let score = ln(weight) + tree.gumbel(step, node, i as u32);
            if score > best_score {
                best_score = score;
                best_token = i as u32;
            }
        }
    }
    best(best_score, best_token, buffers, blueprint)
}
