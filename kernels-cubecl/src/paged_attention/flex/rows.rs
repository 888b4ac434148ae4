//! The work on one run of rows: segment by segment, tile by tile, a few query vectors at a time.

use std::ops::Range;

use super::merge::{HIDDEN, Part};
use super::plan::{Run, padded};
use super::products::{ROWS_MAX, query_keys, weights_values};
use super::tile::TileRows;
use super::{Inputs, SEGMENT, TILE};
use crate::simd::scratch::Scratch;
use crate::simd::{LANES, Simd, math};

/// Scores below this are hidden ones.
const VISIBLE_MIN: f32 = -1e38;

/// Query vectors whose scores exist at a time.
const BLOCK_VECTORS: usize = 4 * ROWS_MAX;
/// Values of D that a product looks at before it goes on to the next vectors: a piece of K or V of
/// this depth stays in the first-level cache for [`BLOCK_VECTORS`].
const DEPTH: usize = 64;

/// A run of rows and the memory it works in.
pub(super) struct Rows<'a> {
    inputs: &'a Inputs<'a>,
    run: &'a Run,
    /// Factor on `tanh` of the scores, where the model caps them.
    soft_cap: Option<f32>,
    /// Scaled, `[vectors, D]`.
    queries: &'a mut [f32],
    /// K of the tile, `[D, TILE]`.
    keys: &'a mut [f32],
    /// V of the tile, where it is not read in place.
    copied_values: &'a mut [f32],
    /// Scores, then weights, `[BLOCK_VECTORS, TILE]`.
    scores: &'a mut [f32],
    /// Factors that bring the weighted values of a block to its new maxima.
    keep: [f32; BLOCK_VECTORS],
    /// Of the segment: maxima, one per vector.
    maxima: &'a mut [f32],
    /// Sums, 16 per vector; added up at the end of the segment.
    lane_sums: &'a mut [f32],
    /// Sums, one per vector.
    sums: &'a mut [f32],
    /// Weighted values, `[vectors, padded D]`.
    values: &'a mut [f32],
}

/// What is done with the vectors of a block, in this order.
#[derive(Clone)]
enum Phase {
    /// Adds a range of D to the scores.
    Scores(Range<usize>),
    /// Turns scores into weights.
    Weights,
    /// Adds to a range of the columns of the weighted values.
    Values(Range<usize>),
}

/// Whether V of each tile is copied: to fill up its last vector, or because a run with many vectors
/// reads it often and rows that lie a power of two apart would push each other out of the cache.
fn copies_values(run: &Run) -> bool {
    !run.head_dim.is_multiple_of(LANES) || (run.head_dim > DEPTH && run.num_vectors > 2 * ROWS_MAX)
}

/// Values from one copied row to the next: an odd number of cache lines.
fn copied_stride(head_dim: usize) -> usize {
    padded(head_dim) / LANES / 2 * 2 * LANES + LANES
}

impl<'a> Rows<'a> {
    /// Takes memory from `scratch` and scales the queries.
    #[inline(always)]
    pub(super) fn new<S: Simd>(
        s: S,
        inputs: &'a Inputs<'a>,
        run: &'a Run,
        scratch: &'a mut Scratch,
    ) -> Self {
        let (n, d) = (run.num_vectors, run.head_dim);
        let copied = if copies_values(run) {
            TILE * copied_stride(d)
        } else {
            0
        };
        let strided = n.next_multiple_of(LANES);
        let scored = BLOCK_VECTORS * TILE;
        let lens = [
            n * d,
            d * TILE,
            copied,
            scored,
            strided,
            n * LANES,
            strided,
            n * padded(d),
        ];
        let [
            queries,
            keys,
            copied_values,
            scores,
            maxima,
            lane_sums,
            sums,
            values,
        ] = scratch.split(lens);
        let keep = [0.0; BLOCK_VECTORS];
        let soft_cap = inputs.spec.soft_cap;
        let scale = s.splat(soft_cap.map_or(inputs.spec.scale, |cap| inputs.spec.scale / cap));
        let heads = inputs.heads_per_kv();
        for (vector, to) in queries.chunks_exact_mut(d).enumerate() {
            let row = run.first_row + vector / heads;
            let head = run.kv_head * heads + vector % heads;
            let from = &inputs.qkv[row * inputs.row_len() + head * d..][..d];
            for (to, from) in to.chunks_mut(LANES).zip(from.chunks(LANES)) {
                s.store_part(to, s.mul(s.load_part(from, 0.0), scale));
            }
        }
        Self {
            inputs,
            run,
            soft_cap,
            queries,
            keys,
            copied_values,
            scores,
            keep,
            maxima,
            lane_sums,
            sums,
            values,
        }
    }

    /// Attention over the positions of one segment.
    #[inline(always)]
    pub(super) fn attend<S: Simd>(&mut self, s: S, segment: usize) -> Part<'_> {
        self.maxima.fill(HIDDEN);
        self.lane_sums.fill(0.0);
        self.values.fill(0.0);
        let first = self.inputs.first_visible(self.run.first_position);
        let end = self.run.first_position + self.run.num_rows;
        let start = (segment * SEGMENT).max(first / TILE * TILE);
        let end_of_segment = ((segment + 1) * SEGMENT).min(end);
        let find = |start: usize| {
            let visible = first.saturating_sub(start)..TILE.min(end - start);
            TileRows::find(self.inputs, self.run, start, visible)
        };
        let mut tile = find(start);
        for start in (start..end_of_segment).step_by(TILE) {
            // The next tile is fetched while this one is worked on; the last fetches itself again.
            let next_start = if start + TILE < end_of_segment {
                start + TILE
            } else {
                start
            };
            let next = find(next_start);
            self.transpose_keys(s, &tile, &next);
            self.copy_values(&mut tile);
            self.attend_tile(s, &tile);
            tile = next;
        }
        for (sum, lanes) in self.sums.iter_mut().zip(self.lane_sums.chunks_exact(LANES)) {
            *sum = s.sum(s.load(lanes));
        }
        Part {
            maxima: self.maxima,
            sums: self.sums,
            values: self.values,
        }
    }

    /// Copies V where that is called for.
    #[inline(always)]
    fn copy_values(&mut self, tile: &mut TileRows) {
        if !copies_values(self.run) {
            return;
        }
        let d = self.run.head_dim;
        for j in tile.visible.clone() {
            let row = &mut self.copied_values[j * copied_stride(d)..][..padded(d)];
            // SAFETY: `find` took the address from a slice with d values from there on.
            row[..d].copy_from_slice(unsafe { std::slice::from_raw_parts(tile.values[j], d) });
            row[d..].fill(0.0);
            tile.values[j] = row.as_ptr();
        }
    }

    /// K of the tile with positions side by side, which is how the scores are computed.
    #[inline(always)]
    fn transpose_keys<S: Simd>(&mut self, s: S, tile: &TileRows, next: &TileRows) {
        let d = self.run.head_dim;
        let groups = tile.visible.start / LANES..tile.visible.end.div_ceil(LANES);
        for group in groups {
            let rows = &tile.keys[group * LANES..(group + 1) * LANES];
            for first in (0..d).step_by(LANES) {
                let len = LANES.min(d - first);
                let mut square = [s.splat(0.0); LANES];
                for (to, &row) in square.iter_mut().zip(rows) {
                    // SAFETY: every address in `keys` is that of a row of d values in the pool.
                    unsafe {
                        *to = if len == LANES {
                            s.load_ptr(row.add(first))
                        } else {
                            s.load_part(std::slice::from_raw_parts(row.add(first), len), 0.0)
                        };
                    }
                }
                for j in next.visible.clone().skip(group * LANES).take(LANES) {
                    s.prefetch(next.keys[j].wrapping_add(first));
                    s.prefetch(next.values[j].wrapping_add(first));
                }
                let square = s.transpose(square);
                for (i, &column) in square[..len].iter().enumerate() {
                    s.store(&mut self.keys[(first + i) * TILE + group * LANES..], column);
                }
            }
        }
    }

    /// Scores, weights and weighted values of the vectors that see any of the tile.
    #[inline(always)]
    fn attend_tile<S: Simd>(&mut self, s: S, tile: &TileRows) {
        let (run, heads) = (self.run, self.inputs.heads_per_kv());
        let first_row = tile.start.saturating_sub(run.first_position);
        let end_row = match self.inputs.spec.window {
            None => run.num_rows,
            // The row at position p sees from p + 1 - window on.
            Some(window) => run
                .num_rows
                .min((tile.start + TILE + window - 1).saturating_sub(run.first_position)),
        };
        let d = run.head_dim;
        for start in (first_row * heads..end_row * heads).step_by(BLOCK_VECTORS) {
            let block = start..(start + BLOCK_VECTORS).min(end_row * heads);
            for first in (0..d).step_by(DEPTH) {
                let depth = first..(first + DEPTH).min(d);
                self.each_rows(s, tile, block.clone(), &Phase::Scores(depth));
            }
            self.each_rows(s, tile, block.clone(), &Phase::Weights);
            for first in (0..padded(d)).step_by(DEPTH) {
                let columns = first..(first + DEPTH).min(padded(d));
                self.each_rows(s, tile, block.clone(), &Phase::Values(columns));
            }
        }
    }

    /// Carries out a phase for the vectors of a block, as many at a time as registers hold.
    #[inline(always)]
    fn each_rows<S: Simd>(&mut self, s: S, tile: &TileRows, block: Range<usize>, phase: &Phase) {
        let mut vector = block.start;
        while vector < block.end {
            let offset = vector - block.start;
            match block.end - vector {
                1 => self.rows::<S, 1>(s, tile, (vector, offset), phase),
                2 => self.rows::<S, 2>(s, tile, (vector, offset), phase),
                3 => self.rows::<S, 3>(s, tile, (vector, offset), phase),
                4 => self.rows::<S, 4>(s, tile, (vector, offset), phase),
                5 => self.rows::<S, 5>(s, tile, (vector, offset), phase),
                _ => self.rows::<S, ROWS_MAX>(s, tile, (vector, offset), phase),
            }
            vector += ROWS_MAX;
        }
    }

    /// The positions, relative to the tile, that a vector sees; may be empty or reach outside.
    #[inline(always)]
    fn visible_to(&self, tile: &TileRows, vector: usize) -> (isize, isize) {
        let position = self.run.first_position + vector / self.inputs.heads_per_kv();
        let first = self.inputs.first_visible(position);
        (
            first as isize - tile.start as isize,
            position as isize + 1 - tile.start as isize,
        )
    }

    /// Carries out a phase for R vectors from `vector` on, which is number `offset` of its block.
    #[inline(always)]
    fn rows<S: Simd, const R: usize>(
        &mut self,
        s: S,
        tile: &TileRows,
        (vector, offset): (usize, usize),
        phase: &Phase,
    ) {
        let d = self.run.head_dim;
        let scores = offset * TILE..(offset + R) * TILE;
        match phase {
            Phase::Scores(depth) => {
                let queries = &self.queries[vector * d..(vector + R) * d];
                let scores = &mut self.scores[scores];
                query_keys::<S, R>(s, queries, self.keys, depth.clone(), scores);
            }
            Phase::Weights => self.weigh::<S, R>(s, tile, (vector, offset)),
            Phase::Values(columns) => {
                let (first, _) = self.visible_to(tile, vector);
                let (_, end) = self.visible_to(tile, vector + R - 1);
                let rows = first.max(0) as usize..end.min(TILE as isize) as usize;
                let row_len = padded(d);
                let values = &mut self.values[vector * row_len..(vector + R) * row_len];
                let weights = (&self.scores[scores], &self.keep[offset..offset + R]);
                // SAFETY: rows that a vector of the run sees are visible, so their addresses are
                // those of d values in the pool, d being whole vectors, or of a padded copy.
                unsafe {
                    let rows = (rows.start, &tile.values[rows]);
                    weights_values::<S, R>(s, weights, rows, columns.clone(), values);
                }
            }
        }
    }

    /// Hides the scores of positions that a vector does not see.
    #[inline(always)]
    fn hide<S: Simd>(&mut self, s: S, tile: &TileRows, (vector, offset): (usize, usize)) {
        const INDICES: [f32; LANES] = [
            0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.,
        ];
        let (first, end) = self.visible_to(tile, vector);
        // Clamped, the numbers are exact in f32.
        let first = s.splat(first.max(0) as f32);
        let last = s.splat((end.min(TILE as isize) - 1) as f32);
        let hidden = s.splat(HIDDEN);
        let scores = &mut self.scores[offset * TILE..(offset + 1) * TILE];
        for (group, lanes) in scores.chunks_exact_mut(LANES).enumerate() {
            let index = s.add(s.load(&INDICES), s.splat((group * LANES) as f32));
            let score = s.select_less(index, first, hidden, s.load(lanes));
            s.store(lanes, s.select_less(last, index, hidden, score));
        }
    }

    /// Turns scores into weights `e^(score - maximum)` and updates maxima and sums.
    #[inline(always)]
    fn weigh<S: Simd, const R: usize>(
        &mut self,
        s: S,
        tile: &TileRows,
        (vector, offset): (usize, usize),
    ) {
        if let Some(cap) = self.soft_cap {
            for lanes in self.scores[offset * TILE..(offset + R) * TILE].chunks_exact_mut(LANES) {
                let capped = s.mul(math::tanh(s, s.load(lanes)), s.splat(cap));
                s.store(lanes, capped);
            }
        }
        let (first_of_last, _) = self.visible_to(tile, vector + R - 1);
        let (_, end_of_first) = self.visible_to(tile, vector);
        let whole = first_of_last <= 0 && end_of_first >= TILE as isize;
        if !whole {
            for r in 0..R {
                self.hide(s, tile, (vector + r, offset + r));
            }
        }
        let mut old = [0.0; LANES];
        let mut new = [0.0; LANES];
        for r in 0..R {
            let row = &self.scores[(offset + r) * TILE..(offset + r + 1) * TILE];
            let low = s.max(s.load(row), s.load(&row[LANES..]));
            let high = s.max(s.load(&row[2 * LANES..]), s.load(&row[3 * LANES..]));
            let greatest = s.greatest(s.max(low, high));
            old[r] = self.maxima[vector + r];
            new[r] = if old[r] > greatest { old[r] } else { greatest };
            self.maxima[vector + r] = new[r];
        }
        let keep = s.to_array(math::exp(s, s.sub(s.load(&old), s.load(&new))));
        self.keep[offset..offset + R].copy_from_slice(&keep[..R]);
        for r in 0..R {
            let row = &mut self.scores[(offset + r) * TILE..(offset + r + 1) * TILE];
            let maximum = s.splat(new[r]);
            let mut weights = [s.splat(0.0); TILE / LANES];
            for group in 0..TILE / LANES {
                let score = s.load(&row[group * LANES..]);
                weights[group] = math::exp(s, s.sub(score, maximum));
                if !whole {
                    // A vector that sees nothing of the tile yet has the maximum of the hidden.
                    let visible_min = s.splat(VISIBLE_MIN);
                    weights[group] =
                        s.select_less(score, visible_min, s.splat(0.0), weights[group]);
                }
                s.store(&mut row[group * LANES..], weights[group]);
            }
            let sum = s.add(s.add(weights[0], weights[1]), s.add(weights[2], weights[3]));
            let lanes = &mut self.lane_sums[(vector + r) * LANES..(vector + r + 1) * LANES];
            let sum = s.fma(s.load(lanes), s.splat(keep[r]), sum);
            s.store(lanes, sum);
        }
    }
}
