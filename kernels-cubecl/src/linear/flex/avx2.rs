//! [`Lanes`] for x86-64 with AVX2: a vector holds half the rows of a tile.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an operation on vectors or pointers"
)]

use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_cvtsi32_si128, _mm_loadl_epi64, _mm_loadu_si128,
    _mm_prefetch, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256, _mm256_castsi256_ps,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtepu16_epi32,
    _mm256_cvtph_ps, _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_sll_epi32,
    _mm256_slli_epi32, _mm256_srl_epi32, _mm256_storeu_ps,
};

use super::lanes::{Job, Lanes};

/// AVX2, FMA and F16C, and with `VNNI` the instruction that does 32 multiplications of bytes.
#[derive(Clone, Copy)]
pub(super) struct Avx2<const VNNI: bool>;

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn with_vnni(job: impl Job) {
    job.run::<Avx2<true>>();
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn without_vnni(job: impl Job) {
    job.run::<Avx2<false>>();
}

impl<const VNNI: bool> Lanes for Avx2<VNNI> {
    const LANES: usize = 8;
    const ROWS_MAX: usize = 4;
    type F = __m256;
    type I = __m256i;

    #[inline(always)]
    unsafe fn enter(job: impl Job) {
        if VNNI {
            with_vnni(job);
        } else {
            without_vnni(job);
        }
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(from.cast());
    }

    #[inline(always)]
    unsafe fn zero() -> __m256 {
        _mm256_setzero_ps()
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        _mm256_set1_ps(value)
    }

    #[inline(always)]
    unsafe fn splat_i32(value: i32) -> __m256i {
        _mm256_set1_epi32(value)
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> __m256i {
        _mm256_loadu_si256(from.cast())
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> __m256 {
        _mm256_loadu_ps(from.cast())
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m256 {
        _mm256_cvtph_ps(_mm_loadu_si128(from.cast()))
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m256 {
        let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> __m256 {
        _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast())))
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> __m256 {
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())))
    }

    #[inline(always)]
    unsafe fn store(value: __m256, to: *mut f32) {
        _mm256_storeu_ps(to, value);
    }

    #[inline(always)]
    unsafe fn and(value: __m256i, mask: i32) -> __m256i {
        _mm256_and_si256(value, _mm256_set1_epi32(mask))
    }

    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        _mm256_or_si256(a, b)
    }

    #[inline(always)]
    unsafe fn shr<const BITS: u32>(value: __m256i) -> __m256i {
        _mm256_srl_epi32(value, _mm_cvtsi32_si128(BITS as i32))
    }

    #[inline(always)]
    unsafe fn shl<const BITS: u32>(value: __m256i) -> __m256i {
        _mm256_sll_epi32(value, _mm_cvtsi32_si128(BITS as i32))
    }

    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(sum: __m256i, w: __m256i, x: i32) -> __m256i {
        let x = _mm256_set1_epi32(x);
        if VNNI {
            return _mm256_dpbusd_avx_epi32(sum, w, x);
        }
        // Pairs of products saturate at 16 bits, so bytes above 127 go in two parts.
        let ones = _mm256_set1_epi16(1);
        if WIDE {
            let top = _mm256_and_si256(w, _mm256_set1_epi8(-128));
            let pairs = _mm256_maddubs_epi16(top, x);
            let sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
            let rest = _mm256_and_si256(w, _mm256_set1_epi8(127));
            let pairs = _mm256_maddubs_epi16(rest, x);
            return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
        _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones))
    }

    #[inline(always)]
    unsafe fn to_f32(value: __m256i) -> __m256 {
        _mm256_cvtepi32_ps(value)
    }

    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        _mm256_mul_ps(a, b)
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(a, b)
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        _mm256_fmadd_ps(a, b, c)
    }
}
