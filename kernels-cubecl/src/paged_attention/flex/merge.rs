//! Putting the softmax of several segments together.
//!
//! Each segment leaves, for every query vector, the maximum m of its scores, the sum l of
//! `e^(score - m)` and the values o weighted with these. Two such results merge into
//! `m' = max(m1, m2)`, `l' = l1 e^(m1 - m') + l2 e^(m2 - m')`, and o alike.

use super::Inputs;
use super::plan::{Run, padded, part_len};
use crate::simd::scratch::Scratch;
use crate::simd::shared::SharedMut;
use crate::simd::{LANES, Simd, math};

/// The maximum of no scores, and what hides a score: finite, so that differences are not NaN.
pub(super) const HIDDEN: f32 = -3e38;

/// What a segment leaves.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// m, one per vector.
    pub(super) maxima: &'a [f32],
    /// l, one per vector.
    pub(super) sums: &'a [f32],
    /// o, padded rows.
    pub(super) values: &'a [f32],
}

impl<'a> Part<'a> {
    /// Reads what [`PartMut`] wrote.
    pub(super) fn new(place: &'a [f32], num_vectors: usize) -> Self {
        let stride = num_vectors.next_multiple_of(LANES);
        let (maxima, rest) = place.split_at(stride);
        let (sums, values) = rest.split_at(stride);
        Self {
            maxima,
            sums,
            values,
        }
    }
}

/// Room for what a segment leaves.
pub(super) struct PartMut<'a> {
    maxima: &'a mut [f32],
    sums: &'a mut [f32],
    values: &'a mut [f32],
}

impl<'a> PartMut<'a> {
    /// Cuts `place` up.
    pub(super) fn new(place: &'a mut [f32], num_vectors: usize) -> Self {
        let stride = num_vectors.next_multiple_of(LANES);
        let (maxima, rest) = place.split_at_mut(stride);
        let (sums, values) = rest.split_at_mut(stride);
        Self {
            maxima,
            sums,
            values,
        }
    }

    /// Keeps a part.
    pub(super) fn copy_from(&mut self, part: Part<'_>) {
        self.maxima
            .copy_from_slice(&part.maxima[..self.maxima.len()]);
        self.sums.copy_from_slice(&part.sums[..self.sums.len()]);
        self.values
            .copy_from_slice(&part.values[..self.values.len()]);
    }
}

/// The segments merged so far.
pub(super) struct Running<'a> {
    place: PartMut<'a>,
    num_vectors: usize,
    head_dim: usize,
}

impl<'a> Running<'a> {
    /// No segment yet.
    pub(super) fn new(scratch: &'a mut Scratch, num_vectors: usize, head_dim: usize) -> Self {
        let place = PartMut::new(scratch.get(part_len(num_vectors, head_dim)), num_vectors);
        place.maxima.fill(HIDDEN);
        place.sums.fill(0.0);
        place.values.fill(0.0);
        Self {
            place,
            num_vectors,
            head_dim,
        }
    }

    /// Adds the next segment.
    #[inline(always)]
    pub(super) fn merge<S: Simd>(&mut self, s: S, part: Part<'_>) {
        let row_len = padded(self.head_dim);
        for first in (0..self.num_vectors).step_by(LANES) {
            let (m1, m2) = (
                s.load(&self.place.maxima[first..]),
                s.load(&part.maxima[first..]),
            );
            let maximum = s.max(m1, m2);
            let keep = math::exp(s, s.sub(m1, maximum));
            let take = math::exp(s, s.sub(m2, maximum));
            let sum = s.mul(s.load(&part.sums[first..]), take);
            let sum = s.fma(s.load(&self.place.sums[first..]), keep, sum);
            s.store(&mut self.place.maxima[first..], maximum);
            s.store(&mut self.place.sums[first..], sum);
            let (keep, take) = (s.to_array(keep), s.to_array(take));
            for vector in first..self.num_vectors.min(first + LANES) {
                let row = vector * row_len..(vector + 1) * row_len;
                let (keep, take) = (s.splat(keep[vector - first]), s.splat(take[vector - first]));
                let old = self.place.values[row.clone()].chunks_exact_mut(LANES);
                for (old, new) in old.zip(part.values[row].chunks_exact(LANES)) {
                    let merged = s.fma(s.load(old), keep, s.mul(s.load(new), take));
                    s.store(old, merged);
                }
            }
        }
    }

    /// Divides by the sums and writes the rows of `run`.
    #[inline(always)]
    pub(super) fn write<S: Simd>(
        &self,
        s: S,
        inputs: &Inputs<'_>,
        run: &Run,
        out: &SharedMut<'_, f32>,
    ) {
        let (heads, d) = (inputs.heads_per_kv(), self.head_dim);
        let out_row_len = inputs.spec.kv.num_heads * d;
        for vector in 0..self.num_vectors {
            let row = run.first_row + vector / heads;
            let head = run.kv_head * heads + vector % heads;
            // SAFETY: a run has its rows and heads to itself, and of its tasks only the last one
            // writes.
            let to = unsafe { out.part(row * out_row_len + head * d, d) };
            let inverse = s.splat(1.0 / self.place.sums[vector]);
            let from = &self.place.values[vector * padded(d)..];
            for (to, from) in to.chunks_mut(LANES).zip(from.chunks_exact(LANES)) {
                let value = s.mul(s.load(from), inverse);
                if to.len() == LANES {
                    s.store(to, value);
                } else {
                    s.store_part(to, value);
                }
            }
        }
    }
}
