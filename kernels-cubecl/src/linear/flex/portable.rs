//! [`Lanes`] in plain Rust, for every other CPU: loops over arrays that compilers turn into vector
//! instructions.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an operation on vectors or pointers"
)]

use half::{bf16, f16};

use super::lanes::{Job, Lanes};

/// Rows in a vector.
const LANES: usize = 8;

/// No more than the target's baseline.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// An array of results, one for each lane.
#[inline(always)]
fn each<T: Copy + Default>(mut lane: impl FnMut(usize) -> T) -> [T; LANES] {
    let mut lanes = [T::default(); LANES];
    for (i, value) in lanes.iter_mut().enumerate() {
        *value = lane(i);
    }
    lanes
}

impl Lanes for Portable {
    const LANES: usize = LANES;
    const ROWS_MAX: usize = 4;
    type F = [f32; LANES];
    type I = [u32; LANES];

    #[inline(always)]
    unsafe fn enter(job: impl Job) {
        job.run::<Self>();
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    #[inline(always)]
    unsafe fn zero() -> Self::F {
        [0.0; LANES]
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn splat_i32(value: i32) -> Self::I {
        [value as u32; LANES]
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::I {
        from.cast::<[[u8; 4]; LANES]>()
            .read()
            .map(u32::from_le_bytes)
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> Self::F {
        from.cast::<Self::F>().read_unaligned()
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> Self::F {
        from.cast::<[f16; LANES]>()
            .read_unaligned()
            .map(f16::to_f32)
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> Self::F {
        from.cast::<[bf16; LANES]>()
            .read_unaligned()
            .map(bf16::to_f32)
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::F {
        from.cast::<[u8; LANES]>().read().map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Self::F {
        from.cast::<[i8; LANES]>().read().map(f32::from)
    }

    #[inline(always)]
    unsafe fn store(value: Self::F, to: *mut f32) {
        to.cast::<Self::F>().write_unaligned(value);
    }

    #[inline(always)]
    unsafe fn and(value: Self::I, mask: i32) -> Self::I {
        each(|i| value[i] & mask as u32)
    }

    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        each(|i| a[i] | b[i])
    }

    #[inline(always)]
    unsafe fn shr<const BITS: u32>(value: Self::I) -> Self::I {
        each(|i| value[i] >> BITS)
    }

    #[inline(always)]
    unsafe fn shl<const BITS: u32>(value: Self::I) -> Self::I {
        each(|i| value[i] << BITS)
    }

    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(sum: Self::I, w: Self::I, x: i32) -> Self::I {
        let x = x.to_le_bytes().map(|byte| i32::from(byte as i8) as u32);
        each(|i| {
            let w = w[i].to_le_bytes().map(u32::from);
            let first = (w[0].wrapping_mul(x[0])).wrapping_add(w[1].wrapping_mul(x[1]));
            let last = (w[2].wrapping_mul(x[2])).wrapping_add(w[3].wrapping_mul(x[3]));
            sum[i].wrapping_add(first).wrapping_add(last)
        })
    }

    #[inline(always)]
    unsafe fn to_f32(value: Self::I) -> Self::F {
        each(|i| value[i] as i32 as f32)
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // Not fused: without the instruction that would be a call for each lane.
        each(|i| a[i] * b[i] + c[i])
    }
}
