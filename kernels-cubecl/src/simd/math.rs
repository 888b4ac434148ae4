//! Elementary functions on 16 lanes, from additions, multiplications and divisions alone, so that
//! they give the same bits on every set that fuses.
//!
//! Reductions are the usual ones (Muller, "Elementary Functions", 2016, chapter 11); the
//! polynomials are weighted least-squares fits made for this file, each good to 1e-8 before
//! rounding.

use super::{LANES, Simd};

/// ln 2 in two parts: products of the first with whole numbers up to 2^9 are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -0.000_212_194_44;

/// Below this [`exp`] is 0: the result would not be a normal number.
const EXP_MIN: f32 = -87.0;
/// Above this [`exp`] stays at e^88.
const EXP_MAX: f32 = 88.0;

/// e^x within 1e-7 relative; 0 below -87, e^88 above 88, NaN for NaN, exactly 1 for 0.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    let lowest = s.splat(EXP_MIN);
    // The value comes second, so that NaN passes.
    let t = s.min(s.splat(EXP_MAX), s.max(lowest, x));
    let n = s.round(s.mul(t, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-LN_2_HIGH), t);
    let r = s.fma(n, s.splat(-LN_2_LOW), r);
    let p = s.fma(s.splat(0.001_381_461), r, s.splat(0.008_368_711));
    let p = s.fma(p, r, s.splat(0.041_668_39));
    let p = s.fma(p, r, s.splat(0.166_665_21));
    let p = s.fma(p, r, s.splat(0.499_999_94));
    let p = s.fma(s.mul(p, r), r, r);
    let p = s.add(p, s.splat(1.0));
    s.select_less(x, lowest, s.splat(0.0), s.scale_pow2(p, n))
}

/// Hyperbolic tangent within 2e-7 relative.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let zero = s.splat(0.0);
    let size = s.max(s.sub(zero, x), x);
    // 1 - 2 / (e^2x + 1) cancels near 0, where the series is used instead.
    let one = s.splat(1.0);
    let far = s.div(s.splat(2.0), s.add(exp(s, s.add(size, size)), one));
    let far = s.sub(one, far);
    let far = s.select_less(x, zero, s.sub(zero, far), far);
    let square = s.mul(x, x);
    let p = s.fma(s.splat(-0.005_704_987_3), square, s.splat(0.020_639_088));
    let p = s.fma(p, square, s.splat(-0.053_739_715));
    let p = s.fma(p, square, s.splat(0.133_314_42));
    let p = s.fma(p, square, s.splat(-0.333_332_8));
    let near = s.fma(s.mul(p, square), x, x);
    s.select_less(size, s.splat(0.625), near, far)
}

/// Natural logarithm of positive normal numbers, within 2e-7 relative, also near 1.
#[inline(always)]
pub(crate) fn ln<S: Simd>(s: S, x: S::V) -> S::V {
    let values = s.to_array(x);
    let mut mantissa = [0.0; LANES];
    let mut exponent = [0.0; LANES];
    for i in 0..LANES {
        // Counted from sqrt(1/2), the exponent's carry puts mantissas into [sqrt(1/2), sqrt(2)).
        const ROOT_HALF: u32 = 0x3f35_04f3;
        let offset = values[i].to_bits().wrapping_sub(ROOT_HALF);
        exponent[i] = (offset as i32 >> 23) as f32;
        mantissa[i] = f32::from_bits((offset & 0x007f_ffff) + ROOT_HALF);
    }
    let e = s.load(&exponent);
    let r = s.sub(s.load(&mantissa), s.splat(1.0));
    let p = s.fma(s.splat(-0.076_344_97), r, s.splat(0.127_615_76));
    let p = s.fma(p, r, s.splat(-0.131_601_83));
    let p = s.fma(p, r, s.splat(0.142_017_57));
    let p = s.fma(p, r, s.splat(-0.166_233_57));
    let p = s.fma(p, r, s.splat(0.200_012_27));
    let p = s.fma(p, r, s.splat(-0.250_008_2));
    let p = s.fma(p, r, s.splat(0.333_333_3));
    let square = s.mul(r, r);
    let tail = s.mul(s.mul(p, r), square);
    let tail = s.fma(e, s.splat(LN_2_LOW), tail);
    let tail = s.fma(square, s.splat(-0.5), tail);
    s.fma(e, s.splat(LN_2_HIGH), s.add(r, tail))
}
