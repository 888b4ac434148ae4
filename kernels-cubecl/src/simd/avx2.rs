//! AVX2 with FMA: two registers for 16 lanes.

use std::arch::x86_64::{
    __m256, __m256i, _CMP_EQ_OQ, _CMP_LT_OQ, _CMP_UNORD_Q, _MM_FROUND_NO_EXC,
    _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_add_epi32,
    _mm256_add_ps, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_ps,
    _mm256_cvtepu32_epi64, _mm256_cvtps_epi32, _mm256_div_ps, _mm256_fmadd_ps, _mm256_loadu_ps,
    _mm256_max_ps, _mm256_min_ps, _mm256_movemask_ps, _mm256_mul_epu32, _mm256_mul_ps,
    _mm256_permute2f128_ps, _mm256_round_ps, _mm256_set1_epi64x, _mm256_set1_ps, _mm256_shuffle_ps,
    _mm256_slli_epi32, _mm256_srli_epi64, _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_ps,
    _mm256_unpackhi_ps, _mm256_unpacklo_ps, _mm256_xor_si256,
};

use super::{Kernel, LANES, Simd};

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

/// Proof that the processor has AVX2 and FMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avx2(());

impl Avx2 {
    /// `None` if the processor lacks any of it.
    pub(super) fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        has.then_some(Self(()))
    }

    /// Compiles and runs the kernel with these instructions.
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma")]
        fn with_features<K: Kernel>(simd: Avx2, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: the token exists only where the processor has the features.
        unsafe { with_features(self, kernel) }
    }
}

// Below, `SAFETY: token` stands for: the token exists only where the processor has the instruction.
/// Both halves of a register pair.
macro_rules! both {
    ($f:ident, $($v:ident),+) => {
        // SAFETY: token.
        unsafe { [$f($($v[0]),+), $f($($v[1]),+)] }
    };
}

impl Simd for Avx2 {
    type V = [__m256; 2];
    type W = [__m256i; 4];
    const COLUMNS: usize = 1;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        // SAFETY: token.
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    unsafe fn load_ptr(self, from: *const f32) -> Self::V {
        // SAFETY: token; the caller vouches for the memory.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }

    #[inline(always)]
    unsafe fn store_ptr(self, to: *mut f32, v: Self::V) {
        // SAFETY: token; the caller vouches for the memory.
        unsafe {
            _mm256_storeu_ps(to, v[0]);
            _mm256_storeu_ps(to.add(8), v[1]);
        }
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_add_ps, a, b)
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_sub_ps, a, b)
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_mul_ps, a, b)
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_div_ps, a, b)
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        both!(_mm256_fmadd_ps, a, b, c)
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_max_ps, a, b)
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_min_ps, a, b)
    }

    #[inline(always)]
    fn prefetch(self, at: *const f32) {
        // SAFETY: prefetching does not access memory, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe {
            [
                _mm256_round_ps::<NEAREST>(a[0]),
                _mm256_round_ps::<NEAREST>(a[1]),
            ]
        }
    }

    #[inline(always)]
    fn scale_pow2(self, a: Self::V, n: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { [scale_pow2_8(a[0], n[0]), scale_pow2_8(a[1], n[1])] }
    }

    #[inline(always)]
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe {
            [
                _mm256_blendv_ps(no[0], yes[0], _mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0])),
                _mm256_blendv_ps(no[1], yes[1], _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1])),
            ]
        }
    }

    #[inline(always)]
    fn nan_bits(self, a: Self::V) -> u32 {
        // SAFETY: token.
        unsafe {
            let low = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(a[0], a[0]));
            let high = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(a[1], a[1]));
            low as u32 | (high as u32) << 8
        }
    }

    #[inline(always)]
    fn equal_bits(self, a: Self::V, b: Self::V) -> u32 {
        // SAFETY: token.
        unsafe {
            let low = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(a[0], b[0]));
            let high = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(a[1], b[1]));
            low as u32 | (high as u32) << 8
        }
    }

    #[inline(always)]
    fn less_bits(self, a: Self::V, b: Self::V) -> u32 {
        // SAFETY: token.
        unsafe {
            let low = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0]));
            let high = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1]));
            low as u32 | (high as u32) << 8
        }
    }

    /// Four 8 x 8 squares, each as in AVX-512.
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        let mut out = rows;
        let mut square = [rows[0][0]; 8];
        for down in 0..2 {
            for right in 0..2 {
                for i in 0..8 {
                    square[i] = rows[8 * down + i][right];
                }
                // SAFETY: token.
                let turned = unsafe { transpose_8(square) };
                for i in 0..8 {
                    out[8 * right + i][down] = turned[i];
                }
            }
        }
        out
    }

    #[inline(always)]
    fn words(self, words: &[u32; LANES]) -> Self::W {
        // SAFETY: token; the array has four times 4 words.
        unsafe {
            let from = words.as_ptr();
            [
                _mm256_cvtepu32_epi64(_mm_loadu_si128(from.cast())),
                _mm256_cvtepu32_epi64(_mm_loadu_si128(from.add(4).cast())),
                _mm256_cvtepu32_epi64(_mm_loadu_si128(from.add(8).cast())),
                _mm256_cvtepu32_epi64(_mm_loadu_si128(from.add(12).cast())),
            ]
        }
    }

    #[inline(always)]
    fn multiply_words(self, a: Self::W, by: u32) -> Self::W {
        let mut out = a;
        for i in 0..4 {
            // SAFETY: token.
            out[i] = unsafe { _mm256_mul_epu32(a[i], _mm256_set1_epi64x(i64::from(by))) };
        }
        out
    }

    #[inline(always)]
    fn high_words(self, a: Self::W) -> Self::W {
        let mut out = a;
        for i in 0..4 {
            // SAFETY: token.
            out[i] = unsafe { _mm256_srli_epi64::<32>(a[i]) };
        }
        out
    }

    #[inline(always)]
    fn xor_words(self, a: Self::W, b: Self::W) -> Self::W {
        let mut out = a;
        for i in 0..4 {
            // SAFETY: token.
            out[i] = unsafe { _mm256_xor_si256(a[i], b[i]) };
        }
        out
    }

    #[inline(always)]
    fn low_words(self, a: Self::W) -> [u32; LANES] {
        let mut wide = [0_u64; LANES];
        for (four, a) in wide.chunks_exact_mut(4).zip(a) {
            // SAFETY: token; the chunk has 4 values.
            unsafe { _mm256_storeu_si256(four.as_mut_ptr().cast(), a) };
        }
        let mut words = [0; LANES];
        for i in 0..LANES {
            words[i] = wide[i] as u32;
        }
        words
    }
}

/// `a 2^n`: n goes straight into the exponent.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn scale_pow2_8(a: __m256, n: __m256) -> __m256 {
    let exponent = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
    _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), exponent))
}

/// Rows become columns.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn transpose_8(rows: [__m256; 8]) -> [__m256; 8] {
    let mut fours = rows;
    for i in [0, 4] {
        let [a, b, c, d] = [rows[i], rows[i + 1], rows[i + 2], rows[i + 3]];
        let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
        fours[i] = _mm256_shuffle_ps::<0x44>(ab_low, cd_low);
        fours[i + 1] = _mm256_shuffle_ps::<0xee>(ab_low, cd_low);
        fours[i + 2] = _mm256_shuffle_ps::<0x44>(ab_high, cd_high);
        fours[i + 3] = _mm256_shuffle_ps::<0xee>(ab_high, cd_high);
    }
    let mut out = rows;
    for k in 0..4 {
        out[k] = _mm256_permute2f128_ps::<0x20>(fours[k], fours[4 + k]);
        out[4 + k] = _mm256_permute2f128_ps::<0x31>(fours[k], fours[4 + k]);
    }
    out
}
