//! The two micro-kernels: one tile of weights times up to [`Lanes::ROWS_MAX`] rows of activations.
//!
//! Both walk the runs of a row in order and keep one set of sums per row of activations, so the
//! order of a sum depends on K and the format alone, never on how many rows there are.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an operation on vectors or pointers"
)]

use super::activations::Run;
use super::formats::{Floats, Quantized, Scales, VECTORS, run_start};
use super::lanes::Lanes;
use crate::packed::dequantize::RUN_LEN;
use crate::packed::format::WeightFormat;
use crate::packed::native::{Line, TileLayout, code_bytes};

/// A tile of packed weights.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) codes: *const u8,
    pub(super) scales: *const u8,
    pub(super) layout: TileLayout,
}

impl Tile {
    /// The tile at `codes`.
    ///
    /// # Safety
    ///
    /// `codes` must point to a tile of the layout.
    #[inline(always)]
    pub(super) unsafe fn new(codes: *const u8, layout: TileLayout) -> Self {
        Self {
            codes,
            scales: codes.add(layout.scales_start),
            layout,
        }
    }

    /// Asks for run `run` of the *next* tile. A few rows of activations take less time than memory
    /// does to answer, and the CPU's own guesses end with each page.
    #[inline(always)]
    unsafe fn prefetch_next<L: Lanes>(&self, format: WeightFormat, run: usize) {
        let TileLayout {
            tile_bytes,
            scale_bytes,
            ..
        } = self.layout;
        let codes = self
            .codes
            .wrapping_add(tile_bytes + run * code_bytes(format));
        for line in 0..code_bytes(format) / size_of::<Line>() {
            L::prefetch(codes.wrapping_add(line * size_of::<Line>()));
        }
        L::prefetch(self.scales.wrapping_add(tile_bytes + run * scale_bytes));
    }
}

/// A kind of product: what the activations are, and how they meet the weights.
pub(super) trait Product {
    const FORMAT: WeightFormat;
    /// One run's worth of activations.
    type Input;

    /// Products of the tile's rows `lane..lane + LANES` with `M` rows of activations, which start
    /// `num_runs` inputs apart.
    ///
    /// # Safety
    ///
    /// As [`Lanes`]; `tile` is a tile of [`Self::FORMAT`]; `input` points to `M * num_runs` inputs.
    unsafe fn rows<L: Lanes, const M: usize>(
        tile: Tile,
        lane: usize,
        input: *const Self::Input,
    ) -> [L::F; M];
}

/// Quantised weights and int8 activations: integer sums within a run, f32 from run to run.
pub(super) struct Int8<Q>(Q);

impl<Q: Quantized> Product for Int8<Q> {
    const FORMAT: WeightFormat = Q::FORMAT;
    type Input = Run;

    #[inline(always)]
    unsafe fn rows<L: Lanes, const M: usize>(
        tile: Tile,
        lane: usize,
        input: *const Run,
    ) -> [L::F; M] {
        let num_runs = tile.layout.num_runs;
        let mut sums = [L::zero(); M];
        for run in 0..num_runs {
            let codes = Q::codes::<L>(tile.codes.add(run_start(Q::FORMAT, run, lane)));
            let scales = Q::scales::<L>(tile.scales, run, lane);
            tile.prefetch_next::<L>(Q::FORMAT, run);
            for (row, sum) in sums.iter_mut().enumerate() {
                let x = &*input.add(row * num_runs + run);
                let product = scaled_dot::<L, Q>(&codes, &scales, x);
                *sum = L::mul_add(product, L::splat(x.scale), *sum);
                if Q::HAS_MIN {
                    *sum = L::mul_add(scales.min, L::splat(x.sum), *sum);
                }
            }
        }
        sums
    }
}

/// The integer products of a run, times the scales of the weights.
#[inline(always)]
unsafe fn scaled_dot<L: Lanes, Q: Quantized>(
    codes: &[L::I; VECTORS],
    scales: &Scales<L>,
    x: &Run,
) -> L::F {
    let start = |half: usize| L::splat_i32(x.starts[Q::STARTS[half] as usize]);
    let mut first = start(0);
    for (&w, &x) in codes[..VECTORS / 2].iter().zip(&x.codes[..VECTORS / 2]) {
        first = dot::<L, Q>(first, w, x);
    }
    let mut last = if Q::SPLIT { start(1) } else { first };
    for (&w, &x) in codes[VECTORS / 2..].iter().zip(&x.codes[VECTORS / 2..]) {
        last = dot::<L, Q>(last, w, x);
    }
    let product = L::mul(L::to_f32(last), scales.scales[1]);
    if Q::SPLIT {
        L::mul_add(L::to_f32(first), scales.scales[0], product)
    } else {
        product
    }
}

#[inline(always)]
unsafe fn dot<L: Lanes, Q: Quantized>(sum: L::I, w: L::I, x: i32) -> L::I {
    if Q::WIDE {
        L::dot::<true>(sum, w, x)
    } else {
        L::dot::<false>(sum, w, x)
    }
}

/// Any weights, as f32, and f32 activations.
pub(super) struct Float<F>(F);

impl<F: Floats> Product for Float<F> {
    const FORMAT: WeightFormat = F::FORMAT;
    type Input = [f32; RUN_LEN];

    #[inline(always)]
    unsafe fn rows<L: Lanes, const M: usize>(
        tile: Tile,
        lane: usize,
        input: *const [f32; RUN_LEN],
    ) -> [L::F; M] {
        // Even and odd values apart: two chains of additions hide each other's latency.
        let mut even = [L::zero(); M];
        let mut odd = [L::zero(); M];
        let num_runs = tile.layout.num_runs;
        for run in 0..num_runs {
            let codes = tile.codes.add(run_start(F::FORMAT, run, lane));
            let weights = F::run::<L>(codes, tile.scales, run, lane);
            tile.prefetch_next::<L>(F::FORMAT, run);
            for z in 0..VECTORS {
                let w = F::quad::<L>(weights, z);
                for row in 0..M {
                    let x = input.add(row * num_runs + run).cast::<f32>().add(4 * z);
                    even[row] = L::mul_add(w[0], L::splat(*x), even[row]);
                    odd[row] = L::mul_add(w[1], L::splat(*x.add(1)), odd[row]);
                    even[row] = L::mul_add(w[2], L::splat(*x.add(2)), even[row]);
                    odd[row] = L::mul_add(w[3], L::splat(*x.add(3)), odd[row]);
                }
            }
        }
        for row in 0..M {
            even[row] = L::add(even[row], odd[row]);
        }
        even
    }
}
