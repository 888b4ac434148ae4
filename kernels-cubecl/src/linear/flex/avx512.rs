//! [`Lanes`] for x86-64 with AVX-512: a vector holds all 16 rows of a tile.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an operation on vectors or pointers"
)]

use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_loadu_si256,
    _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512, _mm512_castsi512_ps, _mm512_cvtepi8_epi32,
    _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtepu16_epi32, _mm512_cvtph_ps,
    _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_madd_epi16,
    _mm512_maddubs_epi16, _mm512_mul_ps, _mm512_or_si512, _mm512_set1_epi8, _mm512_set1_epi16,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_srli_epi32,
    _mm512_storeu_ps,
};

use super::lanes::{Job, Lanes};

/// AVX-512 F and BW, and with `VNNI` the instruction that does 64 multiplications of bytes.
#[derive(Clone, Copy)]
pub(super) struct Avx512<const VNNI: bool>;

impl<const VNNI: bool> Lanes for Avx512<VNNI> {
    const LANES: usize = 16;
    const ROWS_MAX: usize = 8;
    type F = __m512;
    type I = __m512i;

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
    unsafe fn zero() -> __m512 {
        _mm512_setzero_ps()
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        _mm512_set1_ps(value)
    }

    #[inline(always)]
    unsafe fn splat_i32(value: i32) -> __m512i {
        _mm512_set1_epi32(value)
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> __m512i {
        _mm512_loadu_si512(from.cast())
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> __m512 {
        _mm512_loadu_ps(from.cast())
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m512 {
        let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())))
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())))
    }

    #[inline(always)]
    unsafe fn store(value: __m512, to: *mut f32) {
        _mm512_storeu_ps(to, value);
    }

    #[inline(always)]
    unsafe fn and(value: __m512i, mask: i32) -> __m512i {
        _mm512_and_si512(value, _mm512_set1_epi32(mask))
    }

    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        _mm512_or_si512(a, b)
    }

    #[inline(always)]
    unsafe fn shr<const BITS: u32>(value: __m512i) -> __m512i {
        _mm512_srli_epi32::<BITS>(value)
    }

    #[inline(always)]
    unsafe fn shl<const BITS: u32>(value: __m512i) -> __m512i {
        _mm512_slli_epi32::<BITS>(value)
    }

    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(sum: __m512i, w: __m512i, x: i32) -> __m512i {
        let x = _mm512_set1_epi32(x);
        if VNNI {
            return _mm512_dpbusd_epi32(sum, w, x);
        }
        // Pairs of products saturate at 16 bits, so bytes above 127 go in two parts.
        let ones = _mm512_set1_epi16(1);
        if WIDE {
            let top = _mm512_and_si512(w, _mm512_set1_epi8(-128));
            let pairs = _mm512_maddubs_epi16(top, x);
            let sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, ones));
            let rest = _mm512_and_si512(w, _mm512_set1_epi8(127));
            let pairs = _mm512_maddubs_epi16(rest, x);
            return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, ones));
        }
        _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(w, x), ones))
    }

    #[inline(always)]
    unsafe fn to_f32(value: __m512i) -> __m512 {
        _mm512_cvtepi32_ps(value)
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2,fma,f16c")]
unsafe fn with_vnni(job: impl Job) {
    job.run::<Avx512<true>>();
}

#[target_feature(enable = "avx512f,avx512bw,avx2,fma,f16c")]
unsafe fn without_vnni(job: impl Job) {
    job.run::<Avx512<false>>();
}
