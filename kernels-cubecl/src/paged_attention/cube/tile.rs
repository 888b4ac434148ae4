//! One tile of the context: scores, online softmax, weighted sum of V.
//!
//! ```text
//! score       unit: position u % 32, every (U / 32)-th row; K staged 32 values of D at a time
//! weigh       unit: a row for its maximum and sum, scattered scores for their exponentials
//! add_values  unit: values u % L, + L, .. of D, every (U / L)-th row; V read straight from the pool
//! ```
//!
//! U units, L the power of two that covers D. With one unit (CubeCL's `cpu` runtime) every loop
//! is that unit's, and sums live in memory instead of registers.
//!
//! Neighbours: called by [`super::attend`] alone.

use super::attend::{AttendBlueprint, place};
use super::math::{add_product, cap, exp2};
use super::share::{Share, at_most_last, row_lane_of};
use super::{MASKED, Quad, TILE};
use crate::step_inputs::header;
use cubecl::prelude::*;

/// Quads of K staged per position.
const CHUNK: usize = 8;
/// Values of D staged at a time.
pub(super) const CHUNK_LEN: usize = 4 * CHUNK;
/// Quads between positions of staged K: odd, so that positions lie in different banks.
const STRIDE: usize = CHUNK + 1;

/// Quads of a head, rounded up to whole chunks.
pub(super) const fn padded_quads(head_dim: usize) -> usize {
    head_dim.div_ceil(CHUNK_LEN) * CHUNK
}

/// Shared memory of a cube.
#[derive(CubeType)]
pub(super) struct Scratch {
    /// What the cube works on, by [`place`].
    pub(super) place: Shared<[u32]>,
    /// Each unit's position, for `unit`.
    pub(super) units: Shared<[u32]>,
    /// Scaled queries, `[rows, padded_quads]`.
    pub(super) queries: Shared<[Quad]>,
    /// Position of each token.
    pub(super) positions: Shared<[u32]>,
    /// Sequence of each token.
    pub(super) seqs: Shared<[u32]>,
    /// Index in the pool of K of each position of the tile.
    keys: Shared<[u32]>,
    /// A chunk of K of each position of the tile.
    staged: Shared<[Quad]>,
    /// Scores, then weights: `[TILE, rows]`.
    scores: Shared<[f32]>,
    /// Per row: the largest score so far.
    pub(super) maxima: Shared<[f32]>,
    /// Per row: the sum of weights so far.
    pub(super) sums: Shared<[f32]>,
    /// Weighted sums of V so far, `[rows, D]`.
    pub(super) values: Shared<[f32]>,
    /// Per row: what the last tile's maximum scales earlier weights by.
    pub(super) rescale: Shared<[f32]>,
}

#[cube]
impl Scratch {
    pub(super) fn new(#[comptime] blueprint: AttendBlueprint) -> Scratch {
        let rows = comptime!(blueprint.rows());
        let quads = comptime!(padded_quads(blueprint.head_dim));
        Scratch {
            place: Shared::<[u32]>::new_slice(place::LEN),
            units: Shared::<[u32]>::new_slice(blueprint.units),
            queries: Shared::<[Quad]>::new_slice(comptime!(rows * quads)),
            positions: Shared::<[u32]>::new_slice(comptime!(blueprint.tokens)),
            seqs: Shared::<[u32]>::new_slice(comptime!(blueprint.tokens)),
            keys: Shared::<[u32]>::new_slice(TILE),
            staged: Shared::<[Quad]>::new_slice(comptime!(TILE * STRIDE)),
            scores: Shared::<[f32]>::new_slice(comptime!(TILE * rows)),
            maxima: Shared::<[f32]>::new_slice(rows),
            sums: Shared::<[f32]>::new_slice(rows),
            values: Shared::<[f32]>::new_slice(comptime!(rows * blueprint.head_dim)),
            rescale: Shared::<[f32]>::new_slice(rows),
        }
    }
}

/// This unit's position in the cube. A phase reads it from shared memory, so that what follows from
/// it is computed anew in each: kept from phase to phase, it would cost registers that others need.
#[cube]
pub(super) fn unit(units: &Shared<[u32]>) -> usize {
    units[UNIT_POS as usize] as usize
}

/// Finds the tile's positions in the pool. Positions outside the run are sought in the null block:
/// whatever lies there is masked, and its V is not read.
#[cube]
pub(super) fn locate(step: &[u32], scratch: &mut Scratch, #[comptime] blueprint: AttendBlueprint) {
    let block_size = comptime!(blueprint.block_size);
    let head_len = comptime!(blueprint.block_size * blueprint.head_dim);
    let kv_head = scratch.place[place::KV_HEAD] as usize;
    let table = scratch.place[place::SEQ] * scratch.place[place::TABLE_LEN];
    let table = (table + scratch.place[place::TABLES]) as usize;
    let tile_start = scratch.place[place::TILE_START];
    let run_start = scratch.place[place::RUN_START];
    let run_end = scratch.place[place::RUN_END];
    let mut i = unit(&scratch.units);
    while i < TILE {
        let position = tile_start + i as u32;
        let mut key = 0usize;
        if position >= run_start && position < run_end {
            let place = place_of(step, scratch.place[place::SEQ], position) as usize;
            let block = step[table + place / block_size] as usize;
            let head = block * comptime!(2 * blueprint.num_kv_heads) + kv_head;
            key = head * head_len + place % block_size * comptime!(blueprint.head_dim);
        }
        scratch.keys[i] = key as u32;
        i += comptime!(blueprint.units);
    }
    sync_cube();
}

/// Where a position of entry `seq` lies: in order, or where the tail of a draft's branch says.
#[cube]
fn place_of(step: &[u32], seq: u32, position: u32) -> u32 {
    let mut place = position;
    let base = step[step[header::TAIL_BASES] as usize + seq as usize];
    if position >= base {
        let offset = step[step[header::TAIL_OFFSETS] as usize + seq as usize] + position - base;
        place = step[step[header::TAILS] as usize + offset as usize];
    }
    place
}

/// Scores of every row and position of the tile; [`MASKED`] where a row does not see a position.
#[cube]
pub(super) fn score(pool: &[f32], scratch: &mut Scratch, #[comptime] blueprint: AttendBlueprint) {
    let share = comptime!(Share::of_positions(&blueprint));
    let quads = comptime!(padded_quads(blueprint.head_dim));
    let rows = comptime!(blueprint.rows());
    let many = comptime!(blueprint.units > 1);
    let lane = unit(&scratch.units) % comptime!(share.lanes);
    let row_lane = row_lane_of(unit(&scratch.units), share);
    let mut dots = Array::<f32>::new(comptime!(share.per_lane * share.rows));
    #[unroll(many)]
    for i in 0..comptime!(share.per_lane * share.rows) {
        dots[i] = 0.0f32;
    }
    for chunk in 0..comptime!(quads / CHUNK) {
        stage_keys(pool, scratch, chunk, blueprint);
        sync_cube();
        #[unroll(many)]
        for quad in 0..CHUNK {
            #[unroll(many)]
            for p in 0..comptime!(share.per_lane) {
                let key = scratch.staged[(lane + p * comptime!(share.lanes)) * STRIDE + quad];
                #[unroll(many)]
                for r in 0..comptime!(share.rows) {
                    let row = row_lane + r * comptime!(share.row_lanes);
                    let row = at_most_last(row, rows, comptime!(share.rows_fit(rows)));
                    let query = scratch.queries[row * quads + chunk * CHUNK + quad];
                    let i = p * comptime!(share.rows) + r;
                    dots[i] = add_product(dots[i], query, key);
                }
            }
        }
        sync_cube();
    }
    let seq = scratch.place[place::SEQ];
    let tile_start = scratch.place[place::TILE_START];
    #[unroll(many)]
    for p in 0..comptime!(share.per_lane) {
        #[unroll(many)]
        for r in 0..comptime!(share.rows) {
            let row = row_lane + r * comptime!(share.row_lanes);
            let i = lane + p * comptime!(share.lanes);
            if row < rows {
                let token = row / comptime!(blueprint.heads);
                let position = tile_start + i as u32;
                let own = scratch.positions[token];
                let mut seen = scratch.seqs[token] == seq && position <= own;
                if comptime!(blueprint.window.is_some()) {
                    let window = comptime!(blueprint.window.unwrap_or(0) as u32);
                    seen = seen && own - position.min(own) < window;
                }
                let dot = cap(
                    dots[p * comptime!(share.rows) + r],
                    comptime!(blueprint.soft_cap_bits),
                );
                scratch.scores[i * rows + row] = select(seen, dot, MASKED);
            }
        }
    }
    sync_cube();
}

#[cube]
fn stage_keys(
    pool: &[f32],
    scratch: &mut Scratch,
    chunk: usize,
    #[comptime] blueprint: AttendBlueprint,
) {
    let d = comptime!(blueprint.head_dim);
    let mut i = unit(&scratch.units);
    while i < comptime!(TILE * CHUNK) {
        let position = i / CHUNK;
        let column = (chunk * CHUNK + i % CHUNK) * 4;
        let at = scratch.keys[position] as usize + column;
        let mut quad = Quad::new(0.0f32);
        #[unroll]
        for k in 0..4usize {
            if comptime!(d % CHUNK_LEN == 0) || column + k < d {
                quad.insert(k, pool[at + k]);
            }
        }
        scratch.staged[position * STRIDE + i % CHUNK] = quad;
        i += comptime!(blueprint.units);
    }
}

/// The online softmax: scores become weights, and earlier weights get a new scale.
#[cube]
pub(super) fn weigh(scratch: &mut Scratch, #[comptime] blueprint: AttendBlueprint) {
    let rows = comptime!(blueprint.rows());
    let mut row = unit(&scratch.units);
    while row < rows {
        let before = scratch.maxima[row];
        let mut maximum = before;
        for i in 0..TILE {
            maximum = maximum.max(scratch.scores[i * rows + row]);
        }
        scratch.maxima[row] = maximum;
        scratch.rescale[row] = exp2(before - maximum);
        row += comptime!(blueprint.units);
    }
    sync_cube();
    let mut i = unit(&scratch.units);
    while i < comptime!(TILE * rows) {
        let score = scratch.scores[i];
        let weight = exp2(score - scratch.maxima[i % rows]);
        // A row that has seen nothing yet has the maximum MASKED.
        scratch.scores[i] = select(score > comptime!(MASKED / 2.0), weight, 0.0f32);
        i += comptime!(blueprint.units);
    }
    sync_cube();
    let mut row = unit(&scratch.units);
    while row < rows {
        let mut sum = scratch.sums[row] * scratch.rescale[row];
        for i in 0..TILE {
            sum += scratch.scores[i * rows + row];
        }
        scratch.sums[row] = sum;
        row += comptime!(blueprint.units);
    }
}

/// Adds the tile's weighted values to the sums.
#[cube]
pub(super) fn add_values(
    pool: &[f32],
    scratch: &mut Scratch,
    #[comptime] blueprint: AttendBlueprint,
) {
    let share = comptime!(Share::of_values(&blueprint));
    let rows = comptime!(blueprint.rows());
    let many = comptime!(blueprint.units > 1);
    let d = comptime!(blueprint.head_dim);
    let lane = unit(&scratch.units) % comptime!(share.lanes);
    let row_lane = row_lane_of(unit(&scratch.units), share);
    let value_offset = comptime!(blueprint.num_kv_heads * blueprint.block_size * d);
    let mut sums = Array::<f32>::new(comptime!(share.rows * share.per_lane));
    #[unroll(many)]
    for r in 0..comptime!(share.rows) {
        let row = row_lane + r * comptime!(share.row_lanes);
        let row = at_most_last(row, rows, comptime!(share.rows_fit(rows)));
        #[unroll(many)]
        for j in 0..comptime!(share.per_lane) {
            let column = lane + j * comptime!(share.lanes);
            let column = at_most_last(column, d, comptime!(share.lanes_fit(d)));
            let k = r * comptime!(share.per_lane) + j;
            sums[k] = scratch.values[row * d + column] * scratch.rescale[row];
        }
    }
    // Only positions of the run: others may hold anything, and 0 times that may be NaN.
    let tile_start = scratch.place[place::TILE_START];
    let first = scratch.place[place::RUN_START].max(tile_start) - tile_start;
    let end = (scratch.place[place::RUN_END] - tile_start).min(comptime!(TILE as u32));
    for i in first as usize..end as usize {
        let at = scratch.keys[i] as usize + value_offset;
        #[unroll(many)]
        for j in 0..comptime!(share.per_lane) {
            let column = lane + j * comptime!(share.lanes);
            let column = at_most_last(column, d, comptime!(share.lanes_fit(d)));
            let value = pool[at + column];
            #[unroll(many)]
            for r in 0..comptime!(share.rows) {
                let row = row_lane + r * comptime!(share.row_lanes);
                let row = at_most_last(row, rows, comptime!(share.rows_fit(rows)));
                let k = r * comptime!(share.per_lane) + j;
                sums[k] = fma(scratch.scores[i * rows + row], value, sums[k]);
            }
        }
    }
    #[unroll(many)]
    for r in 0..comptime!(share.rows) {
        let row = row_lane + r * comptime!(share.row_lanes);
        #[unroll(many)]
        for j in 0..comptime!(share.per_lane) {
            let column = lane + j * comptime!(share.lanes);
            if row < rows && column < d {
                scratch.values[row * d + column] = sums[r * comptime!(share.per_lane) + j];
            }
        }
    }
}

/// Writes the cube's rows, or their partial results.
#[cube]
pub(super) fn write(output: &mut [f32], scratch: &Scratch, #[comptime] blueprint: AttendBlueprint) {
    let token_start = scratch.place[place::TOKEN_START] as usize;
    let head_start = scratch.place[place::HEAD_START] as usize;
    let split = scratch.place[place::SPLIT] as usize;
    let split_up = comptime!(blueprint.splits > 1);
    let d = comptime!(blueprint.head_dim);
    let out_len = comptime!(blueprint.out_len());
    let num_rows = scratch.place[place::OUT_ROWS] as usize;
    let mut i = unit(&scratch.units);
    while i < comptime!(blueprint.rows() * d) {
        let row = i / d;
        let column = i % d;
        let token = token_start + row / comptime!(blueprint.heads);
        let head = head_start + row % comptime!(blueprint.heads);
        let out_row = token * comptime!(blueprint.num_heads) + head;
        if out_row < num_rows {
            let at = out_row * out_len + split * comptime!(blueprint.partial_len());
            let sum = scratch.sums[row];
            if comptime!(split_up) {
                output[at + column] = scratch.values[i];
                if column == 0 {
                    output[at + d] = scratch.maxima[row];
                    output[at + d + 1] = sum;
                }
            } else {
                let factor = select(sum > 0.0f32, 1.0f32 / sum, 0.0f32);
                output[at + column] = scratch.values[i] * factor;
            }
        }
        i += comptime!(blueprint.units);
    }
}
