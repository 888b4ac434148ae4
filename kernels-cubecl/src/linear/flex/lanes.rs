//! What a micro-kernel needs of an instruction set: a vector that holds some rows of a tile.
//!
//! A tile has 16 rows; a vector holds [`Lanes::LANES`] of them, 32 bits each, either as f32, as i32
//! or as 4 bytes. Formats and micro-kernels are written once over this trait; [`super::avx512`],
//! [`super::avx2`] and [`super::portable`] implement it.

/// Work that [`Lanes::enter`] compiles for an instruction set. Implementations are
/// `#[inline(always)]`, and so is all they call.
pub(super) trait Job {
    /// Does it.
    ///
    /// # Safety
    ///
    /// As [`Lanes`], and what the job itself asks for.
    unsafe fn run<L: Lanes>(self);
}

/// Operations on vectors of one 32-bit lane for each of [`Self::LANES`] rows.
///
/// # Safety
///
/// Every function needs the instruction set it is written for, and loads and stores need their
/// pointer to be valid for the bytes they name. Callers are `#[inline(always)]` down from a function
/// with the right `#[target_feature]`.
pub(super) trait Lanes: Copy {
    /// Rows in a vector: 16 or a divisor of it.
    const LANES: usize;
    /// Most rows of activations whose sums fit in registers beside a run of weights.
    const ROWS_MAX: usize;
    /// f32 lanes.
    type F: Copy;
    /// 32-bit integer lanes, or 4 bytes in each.
    type I: Copy;

    /// Runs `job` in a function compiled for this instruction set.
    unsafe fn enter(job: impl Job);

    /// Asks for the cache line at `from`, which need not be a valid address.
    unsafe fn prefetch(from: *const u8);

    /// All lanes zero.
    unsafe fn zero() -> Self::F;
    /// One value in all lanes.
    unsafe fn splat(value: f32) -> Self::F;
    /// One value in all lanes.
    unsafe fn splat_i32(value: i32) -> Self::I;
    /// Loads `4 * LANES` bytes.
    unsafe fn load_bytes(from: *const u8) -> Self::I;
    /// Loads `LANES` f32.
    unsafe fn load_f32(from: *const u8) -> Self::F;
    /// Loads `LANES` f16.
    unsafe fn load_f16(from: *const u8) -> Self::F;
    /// Loads `LANES` bf16.
    unsafe fn load_bf16(from: *const u8) -> Self::F;
    /// Loads `LANES` u8 as numbers.
    unsafe fn load_u8(from: *const u8) -> Self::F;
    /// Loads `LANES` i8 as numbers.
    unsafe fn load_i8(from: *const u8) -> Self::F;
    /// Stores `LANES` f32.
    unsafe fn store(value: Self::F, to: *mut f32);

    /// Bitwise and with the same 32 bits in each lane.
    unsafe fn and(value: Self::I, mask: i32) -> Self::I;
    /// Bitwise or.
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// Shifts each lane right, filling with zeros.
    unsafe fn shr<const BITS: u32>(value: Self::I) -> Self::I;
    /// Shifts each lane left.
    unsafe fn shl<const BITS: u32>(value: Self::I) -> Self::I;
    /// In each lane: `sum + w0 x0 + w1 x1 + w2 x2 + w3 x3` for 4 unsigned bytes `w` of the lane and
    /// 4 signed bytes `x`, the same for all lanes, each in `-127..=127`. Exact. Unless `WIDE`, the
    /// bytes `w` are below 128.
    unsafe fn dot<const WIDE: bool>(sum: Self::I, w: Self::I, x: i32) -> Self::I;
    /// Nearest f32.
    unsafe fn to_f32(value: Self::I) -> Self::F;
    /// Product.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// Sum.
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the instruction set can.
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
}
