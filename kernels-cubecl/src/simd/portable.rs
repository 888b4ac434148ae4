//! Sixteen lanes as an array: plain loops that compilers turn into whatever vectors the target has.

use super::{LANES, Simd};

/// Whether the target fuses multiply and add without being asked at run time.
pub(super) const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// The set every processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Portable;

/// Lane by lane.
#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for i in 0..LANES {
        out[i] = f(a[i], b[i]);
    }
    out
}

impl Simd for Portable {
    type V = [f32; LANES];
    type W = [u64; LANES];
    const COLUMNS: usize = 1;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn load_ptr(self, from: *const f32) -> Self::V {
        // SAFETY: the caller vouches for 16 values; arrays of f32 need no more than f32's alignment.
        unsafe { *from.cast::<Self::V>() }
    }

    #[inline(always)]
    unsafe fn store_ptr(self, to: *mut f32, v: Self::V) {
        // SAFETY: as in `load_ptr`.
        unsafe { *to.cast::<Self::V>() = v }
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        let mut out = [0.0; LANES];
        for i in 0..LANES {
            // Where the target cannot fuse, `mul_add` would be a slow library call.
            out[i] = if FUSED {
                a[i].mul_add(b[i], c[i])
            } else {
                a[i] * b[i] + c[i]
            };
        }
        out
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        // Adding 1.5 * 2^23 leaves no fraction bits: the processor's rounding does the work.
        const SHIFT: f32 = 12_582_912.0;
        zip(a, a, |a, _| (a + SHIFT) - SHIFT)
    }

    #[inline(always)]
    fn scale_pow2(self, a: Self::V, n: Self::V) -> Self::V {
        zip(a, n, |a, n| {
            f32::from_bits(a.to_bits().wrapping_add((n as i32 as u32) << 23))
        })
    }

    #[inline(always)]
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        let mut out = [0.0; LANES];
        for i in 0..LANES {
            out[i] = if a[i] < b[i] { yes[i] } else { no[i] };
        }
        out
    }

    #[inline(always)]
    fn nan_bits(self, a: Self::V) -> u32 {
        a.iter()
            .enumerate()
            .fold(0, |bits, (i, a)| bits | u32::from(a.is_nan()) << i)
    }

    #[inline(always)]
    #[expect(clippy::float_cmp, reason = "equality of bits is the question")]
    fn equal_bits(self, a: Self::V, b: Self::V) -> u32 {
        (0..LANES).fold(0, |bits, i| bits | u32::from(a[i] == b[i]) << i)
    }

    #[inline(always)]
    fn less_bits(self, a: Self::V, b: Self::V) -> u32 {
        (0..LANES).fold(0, |bits, i| bits | u32::from(a[i] < b[i]) << i)
    }

    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        let mut columns = [[0.0; LANES]; LANES];
        for (i, row) in rows.iter().enumerate() {
            for (j, column) in columns.iter_mut().enumerate() {
                column[i] = row[j];
            }
        }
        columns
    }

    #[inline(always)]
    fn words(self, words: &[u32; LANES]) -> Self::W {
        let mut out = [0; LANES];
        for i in 0..LANES {
            out[i] = u64::from(words[i]);
        }
        out
    }

    #[inline(always)]
    fn multiply_words(self, mut a: Self::W, by: u32) -> Self::W {
        for lane in &mut a {
            *lane = (*lane & u64::from(u32::MAX)) * u64::from(by);
        }
        a
    }

    #[inline(always)]
    fn high_words(self, mut a: Self::W) -> Self::W {
        for lane in &mut a {
            *lane >>= 32;
        }
        a
    }

    #[inline(always)]
    fn xor_words(self, mut a: Self::W, b: Self::W) -> Self::W {
        for i in 0..LANES {
            a[i] ^= b[i];
        }
        a
    }

    #[inline(always)]
    fn low_words(self, a: Self::W) -> [u32; LANES] {
        let mut words = [0; LANES];
        for i in 0..LANES {
            words[i] = a[i] as u32;
        }
        words
    }
}
