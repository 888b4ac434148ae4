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

/// Values of q in shared memory, and sums of V, at most, if one head fits: 4 KB each.
const STAGED_Q: usize = 1024;
/// Rows of a cube at most.
const ROWS_MAX: usize = 16;
/// Units of a full cube.
const UNITS: usize = 128;

/// How `attend` is specialised: the spec, the tile and the cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AttendBlueprint {
    /// H.
    pub(crate) num_heads: usize,
    /// G.
    pub(crate) num_kv_heads: usize,
    /// D.
    pub(crate) head_dim: usize,
    /// B.
    pub(crate) block_size: usize,
    /// KV group.
    pub(crate) group: usize,
    /// Bits of the factor on q k.
    pub(crate) scale_bits: u32,
    /// Positions a token sees.
    pub(crate) window: Option<usize>,
    /// Bits of the soft cap.
    pub(crate) soft_cap_bits: Option<u32>,
    /// Tokens per cube.
    pub(crate) tokens: usize,
    /// Q heads per cube: a divisor of H / G.
    pub(crate) heads: usize,
    /// Runs of the context.
    pub(crate) splits: usize,
    /// Units per cube.
    pub(crate) units: usize,
}

impl AttendBlueprint {
    /// The kernel for `num_tokens` tokens over a pool of `num_blocks` blocks.
    pub(crate) fn choose(
        properties: &DeviceProperties,
        spec: &AttentionSpec,
        num_tokens: usize,
        num_blocks: usize,
    ) -> Self {
        let kv = &spec.kv;
        let padded = kv.head_dim.next_multiple_of(tile::CHUNK_LEN);
        // Short heads with many rows would be compiled to more registers than there are.
        let rows_max = (STAGED_Q / padded).clamp(1, ROWS_MAX).min(padded / 4);
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
    pub(crate) const fn head_chunks(&self) -> usize {
        self.num_heads / self.heads
    }

    /// Cubes for `num_tokens` tokens.
    pub(crate) const fn num_cubes(&self, num_tokens: usize) -> usize {
        num_tokens.div_ceil(self.tokens) * self.head_chunks() * self.splits
    }

    /// Rows of a cube.
    pub(crate) const fn rows(&self) -> usize {
        self.tokens * self.heads
    }

    /// Values of a partial result: the weighted sum of V, the maximum and the sum of weights.
    pub(crate) const fn partial_len(&self) -> usize {
        self.head_dim + 2
    }

    /// Values per row of the output.
    pub(super) const fn out_len(&self) -> usize {
        if self.splits > 1 {
            self.partial_len() * self.splits
        } else {
            self.head_dim
        }
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

/// See `super::launch`. `output` is `[T, H * D]`, or `[T, H, splits, D + 2]` if the context is
/// split.
#[cube(launch_unchecked, create_dummy_kernel)]
pub(crate) fn attend(
    qkv: &[f32],
    pool: &[f32],
    step: &[u32],
    output: &mut [f32],
    #[comptime] blueprint: AttendBlueprint,
) {
    let mut scratch = Scratch::new(blueprint);
    if UNIT_POS == 0 {
        let out_len = comptime!(blueprint.out_len());
        scratch.place[place::OUT_ROWS] = (output.len() / out_len) as u32;
    }
    place_cube(step, &mut scratch, blueprint);
    scratch.units[UNIT_POS as usize] = UNIT_POS;
    sync_cube();
    stage_queries(qkv, &mut scratch, blueprint);
    start_rows(step, &mut scratch, blueprint);
    while scratch.place[place::SEQ] < scratch.place[place::SEQ_END] {
        // Every unit has read the condition.
        sync_cube();
        place_run(step, &mut scratch, blueprint);
        sync_cube();
        while scratch.place[place::TILE_START] < scratch.place[place::RUN_END] {
            tile::locate(step, &mut scratch, blueprint);
            tile::score(pool, &mut scratch, blueprint);
            tile::weigh(&mut scratch, blueprint);
            tile::add_values(pool, &mut scratch, blueprint);
            sync_cube();
            if UNIT_POS == 0 {
                scratch.place[place::TILE_START] += comptime!(TILE as u32);
            }
            sync_cube();
        }
        // Every unit has read the condition.
        sync_cube();
        if UNIT_POS == 0 {
            scratch.place[place::SEQ] += 1;
        }
        sync_cube();
    }
    tile::write(output, &scratch, blueprint);
}

/// Words of [`Scratch::place`]: what a cube works on.
///
/// It lies in shared memory, as do the sums: nothing but indices lives in registers from one phase
/// to the next, or `ptxas` would spill what a phase does not need.
pub(super) mod place {
    /// First token.
    pub(crate) const TOKEN_START: usize = 0;
    /// End of the live tokens.
    pub(crate) const TOKEN_END: usize = 1;
    /// First q head.
    pub(crate) const HEAD_START: usize = 2;
    /// Kv head.
    pub(crate) const KV_HEAD: usize = 3;
    /// Run of the context.
    pub(crate) const SPLIT: usize = 4;
    /// The sequence at hand.
    pub(crate) const SEQ: usize = 5;
    /// End of the sequences.
    pub(crate) const SEQ_END: usize = 6;
    /// First position of the tile at hand.
    pub(crate) const TILE_START: usize = 7;
    /// First position of the sequence to walk.
    pub(crate) const RUN_START: usize = 8;
    /// End of the positions to walk.
    pub(crate) const RUN_END: usize = 9;
    /// Where the block tables lie in the step.
    pub(crate) const TABLES: usize = 10;
    /// Length of a block table.
    pub(crate) const TABLE_LEN: usize = 11;
    /// Rows of the output.
    pub(crate) const OUT_ROWS: usize = 12;
    /// Number of words.
    pub(crate) const LEN: usize = 13;
}

#[cube]
fn place_cube(step: &[u32], scratch: &mut Scratch, #[comptime] blueprint: AttendBlueprint) {
    if UNIT_POS == 0 {
        let splits = comptime!(blueprint.splits);
        let head_chunks = comptime!(blueprint.head_chunks());
        let heads_per_kv = comptime!(blueprint.num_heads / blueprint.num_kv_heads);
        let head_start = CUBE_POS / splits % head_chunks * comptime!(blueprint.heads);
        let token_start = CUBE_POS / comptime!(splits * head_chunks) * comptime!(blueprint.tokens);
        let num_tokens = step[header::NUM_TOKENS] as usize;
        let token_end = (token_start + comptime!(blueprint.tokens)).min(num_tokens);
        scratch.place[place::TABLES] = step[comptime!(block_tables_word(blueprint.group))];
        scratch.place[place::TABLE_LEN] = step[comptime!(blocks_per_seq_word(blueprint.group))];
        scratch.place[place::TOKEN_START] = token_start as u32;
        scratch.place[place::TOKEN_END] = token_end as u32;
        scratch.place[place::HEAD_START] = head_start as u32;
        scratch.place[place::KV_HEAD] = (head_start / heads_per_kv) as u32;
        scratch.place[place::SPLIT] = (CUBE_POS % splits) as u32;
        if token_start < token_end {
            let seqs = step[header::SEQ_OF_TOKEN] as usize;
            scratch.place[place::SEQ] = step[seqs + token_start];
            scratch.place[place::SEQ_END] = step[seqs + token_end - 1] + 1;
        } else {
            // Padding only.
            scratch.place[place::SEQ] = 0u32;
            scratch.place[place::SEQ_END] = 0u32;
        }
    }
}

/// Finds the positions that the cube walks for its tokens of the sequence at hand.
#[cube]
fn place_run(step: &[u32], scratch: &mut Scratch, #[comptime] blueprint: AttendBlueprint) {
    if UNIT_POS == 0 {
        let seq = scratch.place[place::SEQ] as usize;
        let offsets = step[header::QUERY_OFFSETS] as usize + seq;
        let positions = step[header::POSITIONS] as usize;
        let first = step[offsets].max(scratch.place[place::TOKEN_START]);
        let last = step[offsets + 1].min(scratch.place[place::TOKEN_END]) - 1;
        let end = step[positions + last as usize] + 1;
        let tile = comptime!(TILE as u32);
        let mut start = 0u32;
        if comptime!(blueprint.window.is_some()) {
            let window = comptime!(blueprint.window.unwrap_or(0) as u32);
            let seen = step[positions + first as usize] + 1;
            start = seen - seen.min(window);
        }
        let mut tile_start = start / tile * tile;
        let mut run_end = end;
        if comptime!(blueprint.splits > 1) {
            let num_tiles = (end - tile_start).div_ceil(tile);
            let run_tiles = num_tiles
                .div_ceil(comptime!(blueprint.splits as u32))
                .max(comptime!(RUN_TILES_MIN as u32));
            tile_start += scratch.place[place::SPLIT] * run_tiles * tile;
            run_end = (tile_start + run_tiles * tile).min(end);
        }
        scratch.place[place::TILE_START] = tile_start;
        scratch.place[place::RUN_START] = start.max(tile_start);
        scratch.place[place::RUN_END] = run_end;
    }
}

/// Brings the scaled queries of the cube's rows into shared memory, padded with zeros.
#[cube]
fn stage_queries(qkv: &[f32], scratch: &mut Scratch, #[comptime] blueprint: AttendBlueprint) {
    let token_start = scratch.place[place::TOKEN_START] as usize;
    let head_start = scratch.place[place::HEAD_START] as usize;
    let quads = comptime!(tile::padded_quads(blueprint.head_dim));
    let d = comptime!(blueprint.head_dim);
    let row_len = comptime!((blueprint.num_heads + 2 * blueprint.num_kv_heads) * d);
    let factor = comptime!(blueprint.query_factor());
    let mut i = tile::unit(&scratch.units);
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

/// Notes position and sequence of the tile's tokens, and starts the sums of its rows.
#[cube]
fn start_rows(step: &[u32], scratch: &mut Scratch, #[comptime] blueprint: AttendBlueprint) {
    let token_start = scratch.place[place::TOKEN_START] as usize;
    let token_end = scratch.place[place::TOKEN_END] as usize;
    let mut i = tile::unit(&scratch.units);
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
    let mut row = tile::unit(&scratch.units);
    while row < comptime!(blueprint.rows()) {
        scratch.maxima[row] = MASKED;
        scratch.sums[row] = 0.0f32;
        scratch.rescale[row] = 1.0f32;
        row += comptime!(blueprint.units);
    }
    let mut i = tile::unit(&scratch.units);
    while i < comptime!(blueprint.rows() * blueprint.head_dim) {
        // From the end, so that the address is of no use later and need not be kept.
        scratch.values[comptime!(blueprint.rows() * blueprint.head_dim - 1) - i] = 0.0f32;
        i += comptime!(blueprint.units);
    }
    sync_cube();
}

/// Word of the step buffer that holds the block tables' offset.
const fn block_tables_word(group: usize) -> usize {
    group_header_offset(group) + group_header::BLOCK_TABLES
}

/// Word of the step buffer that holds the length of a block table.
const fn blocks_per_seq_word(group: usize) -> usize {
    group_header_offset(group) + group_header::BLOCKS_PER_SEQ
}
