//! AVX-512: one register for 16 lanes.

use std::arch::x86_64::{
    __m512, __m512i, _CMP_EQ_OQ, _CMP_LT_OQ, _CMP_UNORD_Q, _MM_FROUND_NO_EXC,
    _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm512_add_ps, _mm512_cmp_ps_mask, _mm512_cvtepi64_epi32, _mm512_cvtepu32_epi64, _mm512_div_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_blend_ps, _mm512_max_ps, _mm512_min_ps,
    _mm512_mul_epu32, _mm512_mul_ps, _mm512_reduce_max_ps, _mm512_roundscale_ps, _mm512_scalef_ps,
    _mm512_set1_epi64, _mm512_set1_ps, _mm512_shuffle_f32x4, _mm512_shuffle_ps, _mm512_srli_epi64,
    _mm512_storeu_ps, _mm512_sub_ps, _mm512_unpackhi_ps, _mm512_unpacklo_ps, _mm512_xor_si512,
};

use super::{Kernel, LANES, Simd};

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

/// Proof that the processor has AVX-512 (F, VL, BW, DQ), AVX2 and FMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avx512(());

impl Avx512 {
    /// `None` if the processor lacks any of it.
    pub(super) fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma");
        has.then_some(Self(()))
    }

    /// Compiles and runs the kernel with these instructions.
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
        fn with_features<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: the token exists only where the processor has the features.
        unsafe { with_features(self, kernel) }
    }
}

// Below, `SAFETY: token` stands for: the token exists only where the processor has the instruction.
impl Simd for Avx512 {
    type V = __m512;
    type W = [__m512i; 2];
    const COLUMNS: usize = 4;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load_ptr(self, from: *const f32) -> Self::V {
        // SAFETY: token; the caller vouches for the memory.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store_ptr(self, to: *mut f32, v: Self::V) {
        // SAFETY: token; the caller vouches for the memory.
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn prefetch(self, at: *const f32) {
        // SAFETY: prefetching does not access memory, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_roundscale_ps::<NEAREST>(a) }
    }

    #[inline(always)]
    fn scale_pow2(self, a: Self::V, n: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_scalef_ps(a, n) }
    }

    #[inline(always)]
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        // SAFETY: token.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes) }
    }

    #[inline(always)]
    fn nan_bits(self, a: Self::V) -> u32 {
        // SAFETY: token.
        u32::from(unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a) })
    }

    #[inline(always)]
    fn equal_bits(self, a: Self::V, b: Self::V) -> u32 {
        // SAFETY: token.
        u32::from(unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) })
    }

    #[inline(always)]
    fn less_bits(self, a: Self::V, b: Self::V) -> u32 {
        // SAFETY: token.
        u32::from(unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) })
    }

    #[inline(always)]
    fn greatest(self, v: Self::V) -> f32 {
        // SAFETY: token.
        unsafe { _mm512_reduce_max_ps(v) }
    }

    /// Pairs, then fours inside the 128-bit quarters, then the quarters themselves.
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        let mut fours = rows;
        let mut out = rows;
        // SAFETY: token.
        unsafe {
            for i in (0..LANES).step_by(4) {
                let [a, b, c, d] = [rows[i], rows[i + 1], rows[i + 2], rows[i + 3]];
                let (ab_low, ab_high) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let (cd_low, cd_high) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                // fours[i + k], quarter q: column 4 q + k of rows i .. i + 4.
                fours[i] = _mm512_shuffle_ps::<0x44>(ab_low, cd_low);
                fours[i + 1] = _mm512_shuffle_ps::<0xee>(ab_low, cd_low);
                fours[i + 2] = _mm512_shuffle_ps::<0x44>(ab_high, cd_high);
                fours[i + 3] = _mm512_shuffle_ps::<0xee>(ab_high, cd_high);
            }
            for k in 0..4 {
                let [a, b, c, d] = [fours[k], fours[4 + k], fours[8 + k], fours[12 + k]];
                let (ab_01, ab_23) = (
                    _mm512_shuffle_f32x4::<0x44>(a, b),
                    _mm512_shuffle_f32x4::<0xee>(a, b),
                );
                let (cd_01, cd_23) = (
                    _mm512_shuffle_f32x4::<0x44>(c, d),
                    _mm512_shuffle_f32x4::<0xee>(c, d),
                );
                out[k] = _mm512_shuffle_f32x4::<0x88>(ab_01, cd_01);
                out[4 + k] = _mm512_shuffle_f32x4::<0xdd>(ab_01, cd_01);
                out[8 + k] = _mm512_shuffle_f32x4::<0x88>(ab_23, cd_23);
                out[12 + k] = _mm512_shuffle_f32x4::<0xdd>(ab_23, cd_23);
            }
        }
        out
    }

    #[inline(always)]
    fn words(self, words: &[u32; LANES]) -> Self::W {
        // SAFETY: token; the array has two times 8 words.
        unsafe {
            [
                _mm512_cvtepu32_epi64(_mm256_loadu_si256(words.as_ptr().cast())),
                _mm512_cvtepu32_epi64(_mm256_loadu_si256(words.as_ptr().add(8).cast())),
            ]
        }
    }

    #[inline(always)]
    fn multiply_words(self, a: Self::W, by: u32) -> Self::W {
        // SAFETY: token.
        unsafe {
            let by = _mm512_set1_epi64(i64::from(by));
            [_mm512_mul_epu32(a[0], by), _mm512_mul_epu32(a[1], by)]
        }
    }

    #[inline(always)]
    fn high_words(self, a: Self::W) -> Self::W {
        // SAFETY: token.
        unsafe { [_mm512_srli_epi64::<32>(a[0]), _mm512_srli_epi64::<32>(a[1])] }
    }

    #[inline(always)]
    fn xor_words(self, a: Self::W, b: Self::W) -> Self::W {
        // SAFETY: token.
        unsafe { [_mm512_xor_si512(a[0], b[0]), _mm512_xor_si512(a[1], b[1])] }
    }

    #[inline(always)]
    fn low_words(self, a: Self::W) -> [u32; LANES] {
        let mut words = [0; LANES];
        // SAFETY: token; the array has two times 8 words.
        unsafe {
            _mm256_storeu_si256(words.as_mut_ptr().cast(), _mm512_cvtepi64_epi32(a[0]));
            _mm256_storeu_si256(
                words.as_mut_ptr().add(8).cast(),
                _mm512_cvtepi64_epi32(a[1]),
            );
        }
        words
    }
}
