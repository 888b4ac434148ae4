//! The arithmetic of attention, of plain operations: the same on every device, and on CUDA without
//! a library of mathematical functions.

use super::Quad;
use cubecl::prelude::*;

/// `sum` plus the product of two runs of four, in order.
#[cube]
pub(super) fn add_product(sum: f32, a: Quad, b: Quad) -> f32 {
    let sum = fma(a.extract(0usize), b.extract(0usize), sum);
    let sum = fma(a.extract(1usize), b.extract(1usize), sum);
    let sum = fma(a.extract(2usize), b.extract(2usize), sum);
    fma(a.extract(3usize), b.extract(3usize), sum)
}

/// The exponent of 2 that a product of q and k stands for. With a soft cap the product is the
/// score in units of the cap.
#[cube]
pub(super) fn cap(product: f32, #[comptime] soft_cap_bits: Option<u32>) -> f32 {
    if comptime!(soft_cap_bits.is_some()) {
        let cap = comptime!(f32::from_bits(soft_cap_bits.unwrap_or(0)));
        tanh(product) * comptime!(cap * std::f32::consts::LOG2_E)
    } else {
        product
    }
}

/// Hyperbolic tangent with a relative error of a few ulp: the definition loses digits near zero,
/// where scores mostly are, so there the odd series (to y^11) stands in.
#[cube]
fn tanh(y: f32) -> f32 {
    let magnitude = y.abs().min(15.0f32);
    let e = exp2(-magnitude * comptime!(2.0 * std::f32::consts::LOG2_E));
    let far = (1.0f32 - e) / (1.0f32 + e);
    let square = y * y;
    let p = fma(
        square,
        comptime!(-1382.0f32 / 155_925.0),
        comptime!(62.0f32 / 2835.0),
    );
    let p = fma(square, p, comptime!(-17.0f32 / 315.0));
    let p = fma(square, p, comptime!(2.0f32 / 15.0));
    let p = fma(square, p, comptime!(-1.0f32 / 3.0));
    let near = fma(y * square, p, y);
    select(magnitude < 0.25f32, near, select(y < 0.0f32, -far, far))
}

/// 2^x for `x <= 0`, at least 2^-126: Taylor's series of 2^f for f in [-1/2, 1/2], whose rest is
/// below 6e-9, times a power of two made of bits. Plain arithmetic, so the same on every device.
#[cube]
pub(super) fn exp2(x: f32) -> f32 {
    let x = x.max(-126.0f32);
    let whole = (x + 0.5f32).floor();
    let f = x - whole;
    let p = fma(f, 0.000_015_252_734_f32, 0.000_154_035_3_f32);
    let p = fma(f, p, 0.001_333_355_8_f32);
    let p = fma(f, p, 0.009_618_129_f32);
    let p = fma(f, p, 0.055_504_11_f32);
    let p = fma(f, p, 0.240_226_5_f32);
    let p = fma(f, p, std::f32::consts::LN_2);
    let p = fma(f, p, 1.0f32);
    p * f32::from_bits(u32::cast_from(i32::cast_from(whole) + 127i32) << 23u32)
}
