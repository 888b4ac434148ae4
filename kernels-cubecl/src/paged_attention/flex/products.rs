//! The two matrix products of a tile, for up to [`ROWS_MAX`] query vectors at once.
//!
//! Every result is one chain of fused multiply-adds in ascending order of the summed index, so it
//! does not depend on how many rows or columns are computed together, nor on where a chain was put
//! aside in memory: neither product needs all of K or V of a tile in the first-level cache.

use std::ops::Range;

use super::TILE;
use crate::simd::{LANES, Simd};

/// Query vectors held in registers: 6 rows of 4 vectors leave 8 of AVX-512's 32 registers free, 6
/// rows of one register pair leave 4 of AVX2's 16.
pub(super) const ROWS_MAX: usize = 6;

/// `scores[r][j] += sum over i in depth of queries[r][i] * keys[i][j]`; from 0 where depth starts.
///
/// `queries [R, D]`, `keys [D, TILE]`, `scores [R, TILE]`.
#[inline(always)]
pub(super) fn query_keys<S: Simd, const R: usize>(
    s: S,
    queries: &[f32],
    keys: &[f32],
    depth: Range<usize>,
    scores: &mut [f32],
) {
    if S::COLUMNS == 4 {
        query_key_columns::<S, R, 4>(s, queries, keys, (depth, 0), scores);
    } else {
        for column in (0..TILE).step_by(LANES) {
            query_key_columns::<S, R, 1>(s, queries, keys, (depth.clone(), column), scores);
        }
    }
}

#[inline(always)]
fn query_key_columns<S: Simd, const R: usize, const C: usize>(
    s: S,
    queries: &[f32],
    keys: &[f32],
    (depth, column): (Range<usize>, usize),
    scores: &mut [f32],
) {
    let head_dim = keys.len() / TILE;
    assert!(
        column + C * LANES <= TILE
            && depth.end <= head_dim
            && queries.len() >= R * head_dim
            && scores.len() >= R * TILE
    );
    let mut sums = [[s.splat(0.0); C]; R];
    if depth.start > 0 {
        for r in 0..R {
            for c in 0..C {
                sums[r][c] = s.load(&scores[r * TILE + column + c * LANES..]);
            }
        }
    }
    for i in depth {
        let mut row = [s.splat(0.0); C];
        for (c, key) in row.iter_mut().enumerate() {
            // SAFETY: row i of `keys` has TILE values, and column + C * LANES <= TILE.
            *key = unsafe { s.load_ptr(keys.as_ptr().add(i * TILE + column + c * LANES)) };
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `queries` has R rows of head_dim values, as asserted.
            let query = s.splat(unsafe { *queries.as_ptr().add(r * head_dim + i) });
            for (sum, &key) in sums.iter_mut().zip(&row) {
                *sum = s.fma(query, key, *sum);
            }
        }
    }
    for r in 0..R {
        for c in 0..C {
            s.store(&mut scores[r * TILE + column + c * LANES..], sums[r][c]);
        }
    }
}

/// `values[r] = values[r] * keep[r] + sum over j in first .. first + rows of weights[r][j] * v[j]`,
/// in the given columns.
///
/// `weights [R, TILE]`, `keep [R]`, `values [R, padded D]`; `rows` are the addresses of the rows of
/// V from position `first` of the tile on; `columns` are whole vectors.
///
/// # Safety
/// Each of `rows` is valid for reads of as many values as a row of `values` has.
#[inline(always)]
pub(super) unsafe fn weights_values<S: Simd, const R: usize>(
    s: S,
    (weights, keep): (&[f32], &[f32]),
    (first, rows): (usize, &[*const f32]),
    columns: Range<usize>,
    values: &mut [f32],
) {
    let mut column = columns.start;
    if S::COLUMNS == 4 {
        while column + 4 * LANES <= columns.end {
            // SAFETY: the caller vouches for the rows; the columns lie inside a row.
            unsafe {
                weights_values_columns::<S, R, 4>(
                    s,
                    (weights, keep),
                    (first, rows),
                    column,
                    values,
                );
            }
            column += 4 * LANES;
        }
    }
    while column + LANES <= columns.end {
        // SAFETY: as above.
        unsafe {
            weights_values_columns::<S, R, 1>(s, (weights, keep), (first, rows), column, values);
        }
        column += LANES;
    }
}

#[inline(always)]
unsafe fn weights_values_columns<S: Simd, const R: usize, const C: usize>(
    s: S,
    (weights, keep): (&[f32], &[f32]),
    (first, rows): (usize, &[*const f32]),
    column: usize,
    values: &mut [f32],
) {
    let row_len = values.len() / R;
    assert!(
        column + C * LANES <= row_len
            && first + rows.len() <= TILE
            && weights.len() >= R * TILE
            && keep.len() >= R
    );
    let mut sums = [[s.splat(0.0); C]; R];
    for r in 0..R {
        let keep = s.splat(keep[r]);
        for c in 0..C {
            let old = s.load(&values[r * row_len + column + c * LANES..]);
            sums[r][c] = s.mul(old, keep);
        }
    }
    for (j, &v) in rows.iter().enumerate() {
        let mut row = [s.splat(0.0); C];
        for (c, value) in row.iter_mut().enumerate() {
            // SAFETY: the caller vouches for `row_len` values from `v` on.
            *value = unsafe { s.load_ptr(v.add(column + c * LANES)) };
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `weights` has R rows of TILE values and first + j < TILE, as asserted.
            let weight = s.splat(unsafe { *weights.as_ptr().add(r * TILE + first + j) });
            for (sum, &value) in sums.iter_mut().zip(&row) {
                *sum = s.fma(weight, value, *sum);
            }
        }
    }
    for r in 0..R {
        for c in 0..C {
            s.store(&mut values[r * row_len + column + c * LANES..], sums[r][c]);
        }
    }
}
