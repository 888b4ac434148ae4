//! Reading packed weights inside a kernel: eight values at a time, in registers.
//!
//! Neighbours: [`super`] lays the words out; `linear` and `embed` use this.

use super::super::format::WeightFormat;
use super::{ROW_TILE, SUPER_GROUPS, code_words, has_super, high_words, scale_bits};
use cubecl::prelude::*;

/// Values read at a time.
pub(crate) const RUN_LEN: usize = 8;
/// Runs in a group.
pub(crate) const RUNS_PER_GROUP: usize = 4;

/// Where one row lies in a buffer of packed words.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct PackedRow {
    /// Index of the row's word 0; word `i` is `i * ROW_TILE` further.
    start: usize,
    /// Words of the row at which its planes begin.
    high: usize,
    scales: usize,
    supers: usize,
}

/// What turns the codes of one group into values.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct GroupScale {
    /// Factor of values 0 to 15.
    first: f32,
    /// Factor of values 16 to 31: the same, but for Q6_K.
    second: f32,
    /// Added to every value.
    min: f32,
}

/// Row `row` of a matrix with `groups` groups per row.
#[cube]
pub(crate) fn packed_row(row: usize, groups: usize, #[comptime] format: WeightFormat) -> PackedRow {
    let high = groups * comptime!(code_words(format));
    let scales = high + groups * comptime!(high_words(format));
    let bits = comptime!(scale_bits(format));
    let supers = scales + (groups * bits).div_ceil(32usize);
    let mut words = supers;
    if comptime!(has_super(format)) {
        words += groups.div_ceil(SUPER_GROUPS);
    }
    let start = row / ROW_TILE * ROW_TILE * words + row % ROW_TILE;
    PackedRow {
        start,
        high,
        scales,
        supers,
    }
}

#[cube]
fn word(words: &[u32], row: &PackedRow, index: usize) -> u32 {
    words[row.start + index * ROW_TILE]
}

/// Half `index` of a plane of halves.
#[cube]
fn half(words: &[u32], row: &PackedRow, plane: usize, index: usize) -> u32 {
    let pair = word(words, row, plane + index / 2);
    (pair >> (16u32 * u32::cast_from(index % 2))) & 0xffffu32
}

/// The f16 in the low 16 bits, subnormals included: scales of K-quants are often that small, and
/// devices may flush f32 subnormals, so those are not a way to get there.
#[cube]
pub(crate) fn f16_value(bits: u32) -> f32 {
    let magnitude = bits & 0x7fffu32;
    let normal = f32::from_bits((magnitude << 13u32) + (112u32 << 23u32));
    let subnormal = f32::cast_from(magnitude) * comptime!(2.0f32.powi(-24));
    let infinite = f32::from_bits((magnitude << 13u32) + (224u32 << 23u32));
    let finite = select(magnitude < 0x400u32, subnormal, normal);
    let value = select(magnitude < 0x7c00u32, finite, infinite);
    f32::from_bits(value.to_bits() | ((bits & 0x8000u32) << 16u32))
}

/// The bf16 in the low 16 bits.
#[cube]
pub(crate) fn bf16_value(bits: u32) -> f32 {
    f32::from_bits(bits << 16u32)
}

/// A code of at most 16 bits as a float, less `offset`: exact, and without the slow conversion
/// from integers. (The bits of 2^23 with the code in the mantissa are 2^23 + code.)
#[cube]
fn code_value(code: u32, #[comptime] offset: u32) -> f32 {
    f32::from_bits(code | 0x4b00_0000u32) - comptime!((0x0080_0000 + offset) as f32)
}

/// The scale of group `group`. Dense formats have none: the result is not read.
#[cube]
pub(crate) fn group_scale(
    words: &[u32],
    row: &PackedRow,
    group: usize,
    #[comptime] format: WeightFormat,
) -> GroupScale {
    if comptime!(matches!(
        format,
        WeightFormat::Q4_0 | WeightFormat::Q5_0 | WeightFormat::Q8_0
    )) {
        let scale = f16_value(half(words, row, row.scales, group));
        GroupScale {
            first: scale,
            second: scale,
            min: 0.0f32,
        }
    } else if comptime!(matches!(format, WeightFormat::Q4_1 | WeightFormat::Q5_1)) {
        let pair = word(words, row, row.scales + group);
        let scale = f16_value(pair & 0xffffu32);
        GroupScale {
            first: scale,
            second: scale,
            min: f16_value(pair >> 16u32),
        }
    } else if comptime!(matches!(format, WeightFormat::Q4K)) {
        let pair = word(words, row, row.supers + group / SUPER_GROUPS);
        let parts = half(words, row, row.scales, group);
        let scale = f16_value(pair & 0xffffu32) * code_value(parts & 0xffu32, 0u32);
        let min = f16_value(pair >> 16u32) * code_value(parts >> 8u32, 0u32);
        GroupScale {
            first: scale,
            second: scale,
            min: -min,
        }
    } else if comptime!(matches!(format, WeightFormat::Q6K)) {
        let unit = f16_value(word(words, row, row.supers + group / SUPER_GROUPS));
        // Flipping the sign bit of a signed byte adds 128 to it.
        let parts = half(words, row, row.scales, group) ^ 0x8080u32;
        let first = unit * code_value(parts & 0xffu32, 128u32);
        GroupScale {
            first,
            second: unit * code_value(parts >> 8u32, 128u32),
            min: 0.0f32,
        }
    } else {
        GroupScale {
            first: 1.0f32,
            second: 1.0f32,
            min: 0.0f32,
        }
    }
}

/// Values `[8 run, 8 run + 8)` of group `group`, for `run` in `0..4`.
#[cube]
pub(crate) fn read_run(
    words: &[u32],
    row: &PackedRow,
    group: usize,
    run: usize,
    scale: &GroupScale,
    #[comptime] format: WeightFormat,
) -> Array<f32> {
    let mut values = Array::<f32>::new(RUN_LEN);
    if comptime!(matches!(format, WeightFormat::F32)) {
        #[unroll]
        for i in 0..RUN_LEN {
            values[i] = f32::from_bits(word(words, row, 32 * group + RUN_LEN * run + i));
        }
    } else if comptime!(matches!(format, WeightFormat::F16 | WeightFormat::Bf16)) {
        #[unroll]
        for i in 0..comptime!(RUN_LEN / 2) {
            let pair = word(words, row, 16 * group + 4 * run + i);
            if comptime!(matches!(format, WeightFormat::F16)) {
                values[2 * i] = f16_value(pair & 0xffffu32);
                values[2 * i + 1] = f16_value(pair >> 16u32);
            } else {
                values[2 * i] = bf16_value(pair);
                values[2 * i + 1] = f32::from_bits(pair & 0xffff_0000u32);
            }
        }
    } else if comptime!(matches!(format, WeightFormat::Q8_0)) {
        #[unroll]
        for w in 0..2usize {
            // Flipping the sign bit of a signed byte adds 128 to it.
            let codes = word(words, row, 8 * group + 2 * run + w) ^ 0x8080_8080u32;
            #[unroll]
            for i in 0..4usize {
                let code = (codes >> comptime!(8 * i as u32)) & 0xffu32;
                values[4 * w + i] = code_value(code, 128u32) * scale.first;
            }
        }
    } else {
        read_codes(words, row, group, run, scale, &mut values, format);
    }
    values
}

/// `read_run` of the formats with 4-bit codes.
#[cube]
fn read_codes(
    words: &[u32],
    row: &PackedRow,
    group: usize,
    run: usize,
    scale: &GroupScale,
    values: &mut Array<f32>,
    #[comptime] format: WeightFormat,
) {
    let codes = word(words, row, 4 * group + run);
    let run_u32 = u32::cast_from(run);
    let mut high = 0u32;
    if comptime!(matches!(format, WeightFormat::Q5_0 | WeightFormat::Q5_1)) {
        high = word(words, row, row.high + group) >> (8u32 * run_u32);
    } else if comptime!(matches!(format, WeightFormat::Q6K)) {
        high = word(words, row, row.high + 2 * group + run / 2) >> (16u32 * (run_u32 % 2u32));
    }
    let factor = select(run < 2, scale.first, scale.second);
    #[unroll]
    for i in 0..RUN_LEN {
        let low = (codes >> comptime!(4 * i as u32)) & 15u32;
        if comptime!(matches!(format, WeightFormat::Q4_0)) {
            values[i] = code_value(low, 8u32) * factor;
        } else if comptime!(matches!(format, WeightFormat::Q5_0)) {
            let code = low | (((high >> comptime!(i as u32)) & 1u32) << 4u32);
            values[i] = code_value(code, 16u32) * factor;
        } else if comptime!(matches!(format, WeightFormat::Q5_1)) {
            let code = low | (((high >> comptime!(i as u32)) & 1u32) << 4u32);
            values[i] = fma(code_value(code, 0u32), factor, scale.min);
        } else if comptime!(matches!(format, WeightFormat::Q6K)) {
            let code = low | (((high >> comptime!(2 * i as u32)) & 3u32) << 4u32);
            values[i] = code_value(code, 32u32) * factor;
        } else {
            values[i] = fma(code_value(low, 0u32), factor, scale.min);
        }
    }
}
