//! The attention kernel: a tile of tokens, heads that share a kv head, a run of the context.
//!
//! ```text
//! cube:  (tile of `tokens` tokens, chunk of `heads` q heads of one kv head, run of the context)
//! rows:  row m is token m / heads of the tile, head m % heads of the chunk
//! ```
//!
//! Rows of all tokens share the tiles of K and V that the cube reads.

use super::tile::{self, Scratch};
use super::{MASKED, Quad, RUN_TILES_MIN, SPLIT_TOKENS_MAX, SPLITS, TILE};
use crate::launch;
use crate::spec::AttentionSpec;
use crate::step_inputs::{group_header, group_header_offset, header};
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;

/// Values of q staged in shared memory at most, if one head fits: 8 KB.
const STAGED_Q: usize = 2048;
/// Rows of a cube at most.
const ROWS_MAX: usize = 16;
/// Units of a full cube.
const UNITS: usize = 128;

/// How [`attend`] is specialised: the spec, the tile and the cube.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttendBlueprint {
    /// H.
    pub num_heads: usize,
    /// G.
    pub num_kv_heads: usize,
    /// D.
    pub head_dim: usize,
    /// B.
    pub block_size: usize,
    /// KV group.
    pub group: usize,
    /// Bits of the factor on q k.
    pub scale_bits: u32,
    /// Positions a token sees.
    pub window: Option<usize>,
    /// Bits of the soft cap.
    pub soft_cap_bits: Option<u32>,
    /// Tokens per cube.
    pub tokens: usize,
    /// Q heads per cube: a divisor of H / G.
    pub heads: usize,
    /// Runs of the context.
    pub splits: usize,
    /// Units per cube.
    pub units: usize,
}

impl AttendBlueprint {
    /// The kernel for `num_tokens` tokens over a pool of `num_blocks` blocks.
    pub fn choose(
        properties: &DeviceProperties,
        spec: &AttentionSpec,
        num_tokens: usize,
        num_blocks: usize,
    ) -> Self {
        let kv = &spec.kv;
        let rows_max = (STAGED_Q / kv.head_dim.next_multiple_of(TILE)).clamp(1, ROWS_MAX);
        let ratio = kv.num_heads / kv.num_kv_heads;
        let divides = |heads: &usize| ratio.is_multiple_of(*heads);
        let heads = (1..=ratio.min(rows_max)).rev().find(divides).unwrap_or(1);
        let split = num_tokens <= SPLIT_TOKENS_MAX;
        let long = num_blocks * kv.block_size > RUN_TILES_MIN * TILE;
        let units = launch::units_per_cube(properties, UNITS) as usize;
        Self {
            num_heads: kv.num_heads,
            num_kv_heads: kv.num_kv_heads,
            head_dim: kv.head_dim,
            block_size: kv.block_size,
            group: kv.group,
            scale_bits: spec.scale.to_bits(),
            window: spec.window,
            soft_cap_bits: spec.soft_cap.map(f32::to_bits),
            tokens: if split { 1 } else { (rows_max / heads).max(1) },
            heads,
            splits: if split && long { SPLITS } else { 1 },
            // Fewer than a full cube are threads that wait for each other (CubeCL's `cpu`
            // runtime): one unit does it all.
            units: if units == UNITS { UNITS } else { 1 },
        }
    }

    /// Chunks of q heads.
    pub const fn head_chunks(&self) -> usize {
        self.num_heads / self.heads
    }

    /// Cubes for `num_tokens` tokens.
    pub const fn num_cubes(&self, num_tokens: usize) -> usize {
        num_tokens.div_ceil(self.tokens) * self.head_chunks() * self.splits
    }

    /// Rows of a cube.
    pub const fn rows(&self) -> usize {
        self.tokens * self.heads
    }

    /// Values of a partial result: the weighted sum of V, the maximum and the sum of weights.
    pub const fn partial_len(&self) -> usize {
        self.head_dim + 2
    }

    /// Factor on q, such that scores without a soft cap are exponents of 2.
    pub(super) fn query_factor(&self) -> f32 {
        let scale = f32::from_bits(self.scale_bits);
        match self.soft_cap_bits {
            None => scale * std::f32::consts::LOG2_E,
            Some(bits) => scale / f32::from_bits(bits),
        }
    }
}

/// See [`super::launch`]. `output` is `[T, H * D]`, or `[T, H, splits, D + 2]` if the context is
/// split.
#[cube(launch_unchecked, create_dummy_kernel)]
pub fn attend(
    qkv: &[f32],
    pool: &[f32],
    step: &[u32],
    output: &mut [f32],
    #[comptime] blueprint: AttendBlueprint,
) {
    let tokens = comptime!(blueprint.tokens);
    let splits = comptime!(blueprint.splits);
    let head_chunks = comptime!(blueprint.head_chunks());
    let split = CUBE_POS % splits;
    let head_start = CUBE_POS / splits % head_chunks * comptime!(blueprint.heads);
    let kv_head = head_start / comptime!(blueprint.num_heads / blueprint.num_kv_heads);
    let token_start = CUBE_POS / comptime!(splits * head_chunks) * tokens;

    let num_tokens = step[header::NUM_TOKENS] as usize;
    let token_end = (token_start + tokens).min(num_tokens);
    let mut scratch = Scratch::new(comptime!(blueprint.clone()));
    let mut values = tile::new_values(comptime!(blueprint.clone()));
    stage_queries(qkv, &mut scratch, token_start, head_start, comptime!(blueprint.clone()));
    stage_rows(step, &mut scratch, token_start, token_end, comptime!(blueprint.clone()));

    let mut seq = 0usize;
    let mut seq_end = 0usize;
    if token_start < token_end {
        let seqs = step[header::SEQ_OF_TOKEN] as usize;
        seq = step[seqs + token_start] as usize;
        seq_end = step[seqs + token_end - 1] as usize + 1;
    }
    while seq < seq_end {
        let run = sequence_run(
            step,
            seq,
            token_start,
            token_end,
            split,
            comptime!(blueprint.clone()),
        );
        let mut start = run.tile_start;
        while start < run.end {
            tile::locate(
                step,
                &mut scratch,
                seq,
                kv_head,
                start,
                &run,
                comptime!(blueprint.clone()),
            );
            tile::score(pool, &mut scratch, seq, start, comptime!(blueprint.clone()));
            tile::weigh(&mut scratch, comptime!(blueprint.clone()));
            tile::add_values(
                pool,
                &scratch,
                &mut values,
                start,
                &run,
                comptime!(blueprint.clone()),
            );
            start += TILE;
        }
        seq += 1;
    }
    sync_cube();
    tile::write(
        output,
        &scratch,
        &values,
        token_start,
        head_start,
        split,
        comptime!(blueprint.clone()),
    );
}

/// Positions `[start, end)` that a cube walks for one sequence, and the tile `start` lies in.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Run {
    pub(super) tile_start: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The run of sequence `seq` for its tokens in `[token_start, token_end)`.
#[cube]
fn sequence_run(
    step: &[u32],
    seq: usize,
    token_start: usize,
    token_end: usize,
    split: usize,
    #[comptime] blueprint: AttendBlueprint,
) -> Run {
    let offsets = step[header::QUERY_OFFSETS] as usize;
    let positions = step[header::POSITIONS] as usize;
    let first = (step[offsets + seq] as usize).max(token_start);
    let last = (step[offsets + seq + 1] as usize).min(token_end) - 1;
    let end = step[positions + last] as usize + 1;
    let mut start = 0usize;
    if comptime!(blueprint.window.is_some()) {
        let window = comptime!(blueprint.window.unwrap_or(0));
        let seen = step[positions + first] as usize + 1;
        start = seen - seen.min(window);
    }
    let tile_start = start / TILE * TILE;
    if comptime!(blueprint.splits > 1) {
        let num_tiles = (end - tile_start).div_ceil(TILE);
        let run_tiles = num_tiles.div_ceil(comptime!(blueprint.splits)).max(RUN_TILES_MIN);
        let run_start = tile_start + split * run_tiles * TILE;
        let run_end = (run_start + run_tiles * TILE).min(end);
        Run { tile_start: run_start, start: start.max(run_start), end: run_end }
    } else {
        Run { tile_start, start, end }
    }
}

/// Brings the scaled queries of the cube's rows into shared memory, padded with zeros.
#[cube]
fn stage_queries(
    qkv: &[f32],
    scratch: &mut Scratch,
    token_start: usize,
    head_start: usize,
    #[comptime] blueprint: AttendBlueprint,
) {
    let quads = comptime!(tile::padded_quads(blueprint.head_dim));
    let d = comptime!(blueprint.head_dim);
    let row_len = comptime!((blueprint.num_heads + 2 * blueprint.num_kv_heads) * d);
    let factor = comptime!(blueprint.query_factor());
    let mut i = UNIT_POS as usize;
    while i < comptime!(blueprint.rows() * quads) {
        let row = i / quads;
        let column = i % quads * 4;
        let token = token_start + row / comptime!(blueprint.heads);
        let head = head_start + row % comptime!(blueprint.heads);
        let at = token * row_len + head * d + column;
        let mut quad = Quad::new(0.0f32);
        #[unroll]
        for k in 0..4usize {
            if column + k < d && at + k < qkv.len() {
                quad.insert(k, qkv[at + k] * factor);
            }
        }
        scratch.queries[i] = quad;
        i += comptime!(blueprint.units);
    }
}

/// Notes position and sequence of the tile's tokens, and starts the softmax of its rows.
#[cube]
fn stage_rows(
    step: &[u32],
    scratch: &mut Scratch,
    token_start: usize,
    token_end: usize,
    #[comptime] blueprint: AttendBlueprint,
) {
    let mut i = UNIT_POS as usize;
    while i < comptime!(blueprint.tokens) {
        let token = token_start + i;
        if token < token_end {
            scratch.positions[i] = step[step[header::POSITIONS] as usize + token];
            scratch.seqs[i] = step[step[header::SEQ_OF_TOKEN] as usize + token];
        } else {
            // Padding belongs to no sequence.
            scratch.positions[i] = 0u32;
            scratch.seqs[i] = u32::MAX;
        }
        i += comptime!(blueprint.units);
    }
    let mut row = UNIT_POS as usize;
    while row < comptime!(blueprint.rows()) {
        scratch.maxima[row] = MASKED;
        scratch.sums[row] = 0.0f32;
        scratch.rescale[row] = 1.0f32;
        row += comptime!(blueprint.units);
    }
}

/// Word of the step buffer that holds the block tables' offset.
pub(super) const fn block_tables_word(group: usize) -> usize {
    group_header_offset(group) + group_header::BLOCK_TABLES
}

/// Word of the step buffer that holds the length of a block table.
pub(super) const fn blocks_per_seq_word(group: usize) -> usize {
    group_header_offset(group) + group_header::BLOCKS_PER_SEQ
}
