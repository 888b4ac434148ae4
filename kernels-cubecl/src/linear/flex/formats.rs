//! How each format's tile is read: a run of 32 values of some rows into registers.
//!
//! The layout is that of [`crate::packed::native`]. `lane` is the first row of the tile that the
//! vectors hold: 0 where a vector holds all 16.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an operation on vectors or pointers"
)]

use super::activations::Start;
use super::lanes::Lanes;
use crate::packed::format::WeightFormat;
use crate::packed::native::{
    Q4_K_SCALE_BYTES, Q6_K_SCALE_BYTES, TILE_ROWS, VECTOR_BYTES, code_bytes, code_offset,
};

/// Vectors of codes in a run; vector `z` holds values `4 z..4 z + 4`.
pub(super) const VECTORS: usize = 8;

/// Scale of the first and of the last 16 values of a run, and what is added to each value.
pub(super) struct Scales<L: Lanes> {
    pub(super) scales: [L::F; 2],
    pub(super) min: L::F,
}

/// A format whose values are `(code - offset) * scale + min`.
///
/// # Safety
///
/// As [`Lanes`]; `codes` and `scales` must point to the codes of a run and to the scales of a tile
/// of this format.
pub(super) trait Quantized {
    const FORMAT: WeightFormat;
    /// What to start integer sums with, so that the offset is taken off: for the two halves of a
    /// run, or the whole run first where it has one scale.
    const STARTS: [Start; 2];
    /// Whether the halves of a run have scales of their own.
    const SPLIT: bool = false;
    /// Whether values have a minimum.
    const HAS_MIN: bool = false;
    /// Whether codes go beyond 127.
    const WIDE: bool = false;

    unsafe fn codes<L: Lanes>(codes: *const u8) -> [L::I; VECTORS];
    unsafe fn scales<L: Lanes>(scales: *const u8, run: usize, lane: usize) -> Scales<L>;
}

/// 32 values of some rows for the f32 kernel, in 8 quads.
///
/// # Safety
///
/// As [`Quantized`].
pub(super) trait Floats {
    const FORMAT: WeightFormat;
    /// A run, as far as it is decoded before its quads are.
    type Run<L: Lanes>: Copy;

    unsafe fn run<L: Lanes>(
        codes: *const u8,
        scales: *const u8,
        run: usize,
        lane: usize,
    ) -> Self::Run<L>;
    /// Values `4 z..4 z + 4`.
    unsafe fn quad<L: Lanes>(run: Self::Run<L>, z: usize) -> [L::F; 4];
}

pub(super) struct Q4_0;
pub(super) struct Q4_1;
pub(super) struct Q5_0;
pub(super) struct Q5_1;
pub(super) struct Q8_0;
pub(super) struct Q4K;
pub(super) struct Q6K;

impl Quantized for Q4_0 {
    const FORMAT: WeightFormat = WeightFormat::Q4_0;
    const STARTS: [Start; 2] = [Start::Minus8; 2];

    #[inline(always)]
    unsafe fn codes<L: Lanes>(codes: *const u8) -> [L::I; VECTORS] {
        nibbles::<L>(codes)
    }

    #[inline(always)]
    unsafe fn scales<L: Lanes>(scales: *const u8, run: usize, lane: usize) -> Scales<L> {
        f16_scale::<L>(scales, run, lane)
    }
}

impl Quantized for Q4_1 {
    const FORMAT: WeightFormat = WeightFormat::Q4_1;
    const STARTS: [Start; 2] = [Start::Zero; 2];
    const HAS_MIN: bool = true;

    #[inline(always)]
    unsafe fn codes<L: Lanes>(codes: *const u8) -> [L::I; VECTORS] {
        nibbles::<L>(codes)
    }

    #[inline(always)]
    unsafe fn scales<L: Lanes>(scales: *const u8, run: usize, lane: usize) -> Scales<L> {
        f16_scale_and_min::<L>(scales, run, lane)
    }
}

impl Quantized for Q5_0 {
    const FORMAT: WeightFormat = WeightFormat::Q5_0;
    const STARTS: [Start; 2] = [Start::Minus16; 2];

    #[inline(always)]
    unsafe fn codes<L: Lanes>(codes: *const u8) -> [L::I; VECTORS] {
        five_bits::<L>(codes)
    }

    #[inline(always)]
    unsafe fn scales<L: Lanes>(scales: *const u8, run: usize, lane: usize) -> Scales<L> {
        f16_scale::<L>(scales, run, lane)
    }
}

impl Quantized for Q5_1 {
    const FORMAT: WeightFormat = WeightFormat::Q5_1;
    const STARTS: [Start; 2] = [Start::Zero; 2];
    const HAS_MIN: bool = true;

    #[inline(always)]
    unsafe fn codes<L: Lanes>(codes: *const u8) -> [L::I; VECTORS] {
        five_bits::<L>(codes)
    }

    #[inline(always)]
    unsafe fn scales<L: Lanes>(scales: *const u8, run: usize, lane: usize) -> Scales<L> {
        f16_scale_and_min::<L>(scales, run, lane)
    }
}

impl Quantized for Q8_0 {
    const FORMAT: WeightFormat = WeightFormat::Q8_0;
    const STARTS: [Start; 2] = [Start::Minus128; 2];
    const WIDE: bool = true;

    #[inline(always)]
    unsafe fn codes<L: Lanes>(codes: *const u8) -> [L::I; VECTORS] {
        let mut vectors = [L::splat_i32(0); VECTORS];
        for (z, vector) in vectors.iter_mut().enumerate() {
            *vector = L::load_bytes(codes.add(z * VECTOR_BYTES));
        }
        vectors
    }

    #[inline(always)]
    unsafe fn scales<L: Lanes>(scales: *const u8, run: usize, lane: usize) -> Scales<L> {
        f16_scale::<L>(scales, run, lane)
    }
}

impl Quantized for Q4K {
    const FORMAT: WeightFormat = WeightFormat::Q4K;
    const STARTS: [Start; 2] = [Start::Zero; 2];
    const HAS_MIN: bool = true;

    #[inline(always)]
    unsafe fn codes<L: Lanes>(codes: *const u8) -> [L::I; VECTORS] {
        nibbles::<L>(codes)
    }

    #[inline(always)]
    unsafe fn scales<L: Lanes>(scales: *const u8, run: usize, lane: usize) -> Scales<L> {
        let block = scales.add(run / 8 * Q4_K_SCALE_BYTES);
        let super_scale = L::load_f16(block.add(2 * lane));
        let super_min = L::load_f16(block.add(2 * TILE_ROWS + 2 * lane));
        let group = block.add(4 * TILE_ROWS + run % 8 * 2 * TILE_ROWS + lane);
        let scale = L::mul(super_scale, L::load_u8(group));
        let min = L::mul(super_min, L::load_u8(group.add(TILE_ROWS)));
        Scales {
            scales: [scale; 2],
            min: L::mul(min, L::splat(-1.0)),
        }
    }
}

impl Quantized for Q6K {
    const FORMAT: WeightFormat = WeightFormat::Q6K;
    const STARTS: [Start; 2] = [Start::Minus32OfFirst, Start::Minus32OfLast];
    const SPLIT: bool = true;

    #[inline(always)]
    unsafe fn codes<L: Lanes>(codes: *const u8) -> [L::I; VECTORS] {
        const BITS: i32 = 0x3030_3030;
        let low = nibbles::<L>(codes);
        let first = L::load_bytes(codes.add(4 * VECTOR_BYTES));
        let last = L::load_bytes(codes.add(5 * VECTOR_BYTES));
        [
            L::or(low[0], L::and(L::shl::<4>(first), BITS)),
            L::or(low[1], L::and(L::shl::<2>(first), BITS)),
            L::or(low[2], L::and(first, BITS)),
            L::or(low[3], L::and(L::shr::<2>(first), BITS)),
            L::or(low[4], L::and(L::shl::<4>(last), BITS)),
            L::or(low[5], L::and(L::shl::<2>(last), BITS)),
            L::or(low[6], L::and(last, BITS)),
            L::or(low[7], L::and(L::shr::<2>(last), BITS)),
        ]
    }

    #[inline(always)]
    unsafe fn scales<L: Lanes>(scales: *const u8, run: usize, lane: usize) -> Scales<L> {
        let block = scales.add(run / 8 * Q6_K_SCALE_BYTES);
        let super_scale = L::load_f16(block.add(2 * lane));
        let group = block.add(2 * TILE_ROWS + run % 8 * 2 * TILE_ROWS + lane);
        let first = L::mul(super_scale, L::load_i8(group));
        let last = L::mul(super_scale, L::load_i8(group.add(TILE_ROWS)));
        Scales {
            scales: [first, last],
            min: L::zero(),
        }
    }
}

/// 4 vectors: the low halves of the bytes are `z = 0..4`, the high halves `z = 4..8`.
#[inline(always)]
unsafe fn nibbles<L: Lanes>(codes: *const u8) -> [L::I; VECTORS] {
    const LOW: i32 = 0x0f0f_0f0f;
    let mut vectors = [L::splat_i32(0); VECTORS];
    for z in 0..4 {
        let both = L::load_bytes(codes.add(z * VECTOR_BYTES));
        vectors[z] = L::and(both, LOW);
        vectors[z + 4] = L::and(L::shr::<4>(both), LOW);
    }
    vectors
}

/// [`nibbles`], then a vector whose bytes hold the fifth bit of `z` in bit `z`.
#[inline(always)]
unsafe fn five_bits<L: Lanes>(codes: *const u8) -> [L::I; VECTORS] {
    const BIT: i32 = 0x1010_1010;
    let low = nibbles::<L>(codes);
    let fifth = L::load_bytes(codes.add(4 * VECTOR_BYTES));
    [
        L::or(low[0], L::and(L::shl::<4>(fifth), BIT)),
        L::or(low[1], L::and(L::shl::<3>(fifth), BIT)),
        L::or(low[2], L::and(L::shl::<2>(fifth), BIT)),
        L::or(low[3], L::and(L::shl::<1>(fifth), BIT)),
        L::or(low[4], L::and(fifth, BIT)),
        L::or(low[5], L::and(L::shr::<1>(fifth), BIT)),
        L::or(low[6], L::and(L::shr::<2>(fifth), BIT)),
        L::or(low[7], L::and(L::shr::<3>(fifth), BIT)),
    ]
}

/// One f16 scale for each row and run.
#[inline(always)]
unsafe fn f16_scale<L: Lanes>(scales: *const u8, run: usize, lane: usize) -> Scales<L> {
    let scale = L::load_f16(scales.add(run * 2 * TILE_ROWS + 2 * lane));
    Scales {
        scales: [scale; 2],
        min: L::zero(),
    }
}

/// One f16 scale and one f16 minimum for each row and run.
#[inline(always)]
unsafe fn f16_scale_and_min<L: Lanes>(scales: *const u8, run: usize, lane: usize) -> Scales<L> {
    let scales = scales.add(run * 4 * TILE_ROWS + 2 * lane);
    Scales {
        scales: [L::load_f16(scales); 2],
        min: L::load_f16(scales.add(2 * TILE_ROWS)),
    }
}

/// A run of a quantised format whose codes are yet to become f32.
#[derive(Clone, Copy)]
pub(super) struct CodedRun<L: Lanes> {
    codes: [L::I; VECTORS],
    scales: [L::F; 2],
    mins: [L::F; 2],
}

impl<Q: Quantized> Floats for Q {
    const FORMAT: WeightFormat = Q::FORMAT;
    type Run<L: Lanes> = CodedRun<L>;

    #[inline(always)]
    unsafe fn run<L: Lanes>(
        codes: *const u8,
        scales: *const u8,
        run: usize,
        lane: usize,
    ) -> CodedRun<L> {
        let Scales { scales, min } = Q::scales::<L>(scales, run, lane);
        let offset = L::splat(-f32::from(code_offset(Q::FORMAT)));
        CodedRun {
            codes: Q::codes::<L>(codes),
            scales,
            mins: [
                L::mul_add(offset, scales[0], min),
                L::mul_add(offset, scales[1], min),
            ],
        }
    }

    #[inline(always)]
    unsafe fn quad<L: Lanes>(run: CodedRun<L>, z: usize) -> [L::F; 4] {
        const BYTE: i32 = 0xff;
        let codes = run.codes[z];
        let (scale, min) = (run.scales[z / 4], run.mins[z / 4]);
        [
            L::mul_add(L::to_f32(L::and(codes, BYTE)), scale, min),
            L::mul_add(L::to_f32(L::and(L::shr::<8>(codes), BYTE)), scale, min),
            L::mul_add(L::to_f32(L::and(L::shr::<16>(codes), BYTE)), scale, min),
            L::mul_add(L::to_f32(L::shr::<24>(codes)), scale, min),
        ]
    }
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;

impl Floats for F32 {
    const FORMAT: WeightFormat = WeightFormat::F32;
    type Run<L: Lanes> = *const u8;

    #[inline(always)]
    unsafe fn run<L: Lanes>(codes: *const u8, _: *const u8, _: usize, _: usize) -> *const u8 {
        codes
    }

    #[inline(always)]
    unsafe fn quad<L: Lanes>(run: *const u8, z: usize) -> [L::F; 4] {
        let at = |i: usize| run.add((4 * z + i) * 4 * TILE_ROWS);
        [
            L::load_f32(at(0)),
            L::load_f32(at(1)),
            L::load_f32(at(2)),
            L::load_f32(at(3)),
        ]
    }
}

impl Floats for F16 {
    const FORMAT: WeightFormat = WeightFormat::F16;
    type Run<L: Lanes> = *const u8;

    #[inline(always)]
    unsafe fn run<L: Lanes>(codes: *const u8, _: *const u8, _: usize, _: usize) -> *const u8 {
        codes
    }

    #[inline(always)]
    unsafe fn quad<L: Lanes>(run: *const u8, z: usize) -> [L::F; 4] {
        let at = |i: usize| run.add((4 * z + i) * 2 * TILE_ROWS);
        [
            L::load_f16(at(0)),
            L::load_f16(at(1)),
            L::load_f16(at(2)),
            L::load_f16(at(3)),
        ]
    }
}

impl Floats for Bf16 {
    const FORMAT: WeightFormat = WeightFormat::Bf16;
    type Run<L: Lanes> = *const u8;

    #[inline(always)]
    unsafe fn run<L: Lanes>(codes: *const u8, _: *const u8, _: usize, _: usize) -> *const u8 {
        codes
    }

    #[inline(always)]
    unsafe fn quad<L: Lanes>(run: *const u8, z: usize) -> [L::F; 4] {
        let at = |i: usize| run.add((4 * z + i) * 2 * TILE_ROWS);
        [
            L::load_bf16(at(0)),
            L::load_bf16(at(1)),
            L::load_bf16(at(2)),
            L::load_bf16(at(3)),
        ]
    }
}

/// Bytes from one run's codes to the next, and to the lanes `lane..` of a run.
pub(super) const fn run_start(format: WeightFormat, run: usize, lane: usize) -> usize {
    let lane_bytes = match format {
        WeightFormat::F16 | WeightFormat::Bf16 => 2,
        _ => 4,
    };
    run * code_bytes(format) + lane * lane_bytes
}
