//! Elementary functions of f32 for kernels, made of plain arithmetic.
//!
//! Why not the device's own: WGSL promises only an absolute error of 2^-21 for logarithms near 1
//! and 2^-11 for sines, where Gumbel noise and rotations need a few ulp, and on CUDA the accurate
//! versions need a library file. These give the same results, within an ulp or two, on every
//! device. Reductions and polynomials are those of the Cephes library (Moshier, 1992,
//! `single/expf.c`, `logf.c`, `sinf.c`).
//!
//! Neighbours: used by rope, glu, sample and `paged_attention`.

use cubecl::prelude::*;

/// e^x: 0 below -87, finite above 88.
#[cube]
pub(crate) fn exp(x: f32) -> f32 {
    let clamped = clamp(x, -87.0f32, 88.0f32);
    let n = (clamped * comptime!(std::f32::consts::LOG2_E) + 0.5f32).floor();
    // ln 2 in two parts, so that the product with the first is exact.
    let r = clamped - n * 0.693_359_4_f32 - n * -0.000_212_194_44_f32;
    let p = 0.000_198_756_92_f32;
    let p = p * r + 0.001_398_2_f32;
    let p = p * r + 0.008_333_452_f32;
    let p = p * r + 0.041_665_796_f32;
    let p = p * r + 0.166_666_66_f32;
    let p = p * r + 0.5f32;
    let mantissa = p * r * r + r + 1.0f32;
    let power_of_two = f32::from_bits(u32::cast_from(i32::cast_from(n) + 127i32) << 23u32);
    select(x < -87.0f32, 0.0f32, mantissa * power_of_two)
}

/// Natural logarithm of a positive normal number.
#[cube]
pub(crate) fn ln(x: f32) -> f32 {
    let bits = x.to_bits();
    let exponent = i32::cast_from(bits >> 23u32) - 126i32;
    let mantissa = f32::from_bits((bits & 0x007f_ffffu32) | 0x3f00_0000u32);
    // The mantissa into [sqrt(1/2), sqrt(2)), so that the polynomial sees a number near 0.
    let small = mantissa < 0.707_106_77_f32;
    let e = f32::cast_from(select(small, exponent - 1i32, exponent));
    let r = select(small, mantissa + mantissa, mantissa) - 1.0f32;
    let square = r * r;
    let p = 0.070_376_836_f32;
    let p = p * r - 0.115_146_1_f32;
    let p = p * r + 0.116_769_99_f32;
    let p = p * r - 0.124_201_41_f32;
    let p = p * r + 0.142_493_23_f32;
    let p = p * r - 0.166_680_58_f32;
    let p = p * r + 0.200_007_15_f32;
    let p = p * r - 0.249_999_94_f32;
    let p = p * r + 0.333_333_3_f32;
    let tail = p * r * square - e * 0.000_212_194_44_f32 - 0.5f32 * square;
    r + tail + e * 0.693_359_4_f32
}

/// Sine and cosine of one angle.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct SinCos {
    /// Sine.
    pub(crate) sin: f32,
    /// Cosine.
    pub(crate) cos: f32,
}

/// The angle `position * inv_freq` as a fraction of a turn, in units of 2^-32 turns.
///
/// In integers, because the angle must be exact to some 2^-20 of a turn at positions of 2^17 and
/// more, where a product in f32 is off by whole hundredths of a radian, and because tricks that
/// make f32 more exact do not survive compilers that reorder sums.
///
/// `inv_freq` in radians, at least 0 and below 2^24.
#[cube]
pub(crate) fn turns(position: u32, inv_freq: f32) -> u32 {
    // inv_freq = mantissa * 2^(exponent - 150), 1 / (2 pi) = (high * 2^32 + low) * 2^-66.
    let bits = inv_freq.to_bits();
    let exponent = bits >> 23u32;
    let mantissa = (bits & 0x007f_ffffu32) | 0x0080_0000u32;
    let low = comptime!(0x4e44_1529u32);
    let high = comptime!(0xa2f9_836eu32);
    // The product of the two has 88 bits: word2, word1, word0.
    let word0 = mantissa * low;
    let middle = mantissa * high;
    let word1 = mantissa.mul_hi(low) + middle;
    let word2 = mantissa.mul_hi(high) + select(word1 < middle, 1u32, 0u32);
    // Shifted right so that the last 64 bits are a fraction of a turn per position.
    let shift = 152u32 - exponent;
    let fraction_low = bits_from(word0, word1, word2, shift);
    let fraction_high = bits_from(word0, word1, word2, shift + 32u32);
    let turns = fraction_high * position + fraction_low.mul_hi(position);
    // Frequencies below 2^-71 do not turn; zero has no leading bit to be set above.
    select(exponent < 56u32, 0u32, turns)
}

/// 32 bits of a number of three words, from bit `from` on.
#[cube]
fn bits_from(word0: u32, word1: u32, word2: u32, from: u32) -> u32 {
    let word = from / 32u32;
    let shift = from % 32u32;
    let here = select(word == 0u32, word0, select(word == 1u32, word1, word2));
    let next = select(word == 0u32, word1, select(word == 1u32, word2, 0u32));
    let here = select(word > 2u32, 0u32, here);
    // A shift by 32 is not defined, so the upper part is shifted in two steps.
    (here >> shift) | ((next << (31u32 - shift)) << 1u32)
}

/// Sine and cosine of `turns` units of 2^-32 turns.
#[cube]
pub(crate) fn sin_cos(turns: u32) -> SinCos {
    // The nearest quarter, and how far the angle is from it: at most an eighth of a turn.
    let quarter = (turns + 0x2000_0000u32) >> 30u32;
    let rest = i32::cast_from(turns - (quarter << 30u32));
    // 2 pi / 2^32
    let r = f32::cast_from(rest) * 1.462_918_1e-9_f32;
    let square = r * r;
    let s = square * -0.000_195_152_96_f32 + 0.008_332_161_f32;
    let s = s * square - 0.166_666_55_f32;
    let sine = s * square * r + r;
    let c = square * 0.000_024_433_157_f32 - 0.001_388_731_6_f32;
    let c = c * square + 0.041_666_646_f32;
    let cosine = c * square * square - 0.5f32 * square + 1.0f32;
    // Quarters of the circle: (s, c), (c, -s), (-s, -c), (-c, s).
    let odd = (quarter & 1u32) == 1u32;
    let sin = select(odd, cosine, sine);
    let cos = select(odd, sine, cosine);
    SinCos {
        sin: select(quarter >= 2u32, -sin, sin),
        cos: select(quarter == 1u32 || quarter == 2u32, -cos, cos),
    }
}

/// 1 / (1 + e^-x).
#[cube]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0f32 / (1.0f32 + exp(-x))
}

/// Hyperbolic tangent, by its definition: absolute error a few ulp of 1.
#[cube]
pub(crate) fn tanh(x: f32) -> f32 {
    1.0f32 - 2.0f32 / (exp(2.0f32 * x) + 1.0f32)
}
