//! Sixteen f32 lanes on every processor: one kernel text, compiled for each instruction set and
//! chosen when the program runs.
//!
//! A kernel is a struct that implements [`Kernel`]; [`Isa::run`] compiles it once per instruction
//! set and calls the one it is asked for. All sets have 16 lanes (AVX2 uses register pairs, the
//! portable one arrays), so that the order of every sum is the same on all of them: AVX2 and
//! AVX-512 give the same bits, and so does any machine whose portable path fuses multiply and add.
//!
//! The types that implement [`Simd`] are tokens: one exists only where its instructions do, which
//! is what makes calling them sound.
//!
//! Neighbours: `avx512`, `avx2` and `portable` are the sets, `math` the functions built from them, `shared`
//! the slices that tasks of one op write side by side, `scratch` memory kept from call to call.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod math;
mod portable;
pub(crate) mod scratch;
pub(crate) mod shared;

#[cfg(target_arch = "x86_64")]
use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use avx512::Avx512;
use portable::Portable;

/// Lanes of a [`Simd::V`].
pub(crate) const LANES: usize = 16;

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Isa(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    Portable,
}

/// Work written once for all instruction sets.
pub(crate) trait Kernel {
    /// What it gives back.
    type Output;
    /// Does the work. Must be `#[inline(always)]`, as must all it calls with `simd`: only then is
    /// the code compiled for the set's instructions. For the same reason no vector goes through a
    /// closure or a function passed as a value.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

impl Isa {
    /// The best set of this processor. The answer is cached, asking is cheap.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(set) = Avx512::new() {
                return Self(Set::Avx512(set));
            }
            if let Some(set) = Avx2::new() {
                return Self(Set::Avx2(set));
            }
        }
        Self(Set::Portable)
    }

    /// Every set of this processor, for tests that compare them.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self(Set::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(Avx2::new().map(|set| Self(Set::Avx2(set))));
            all.extend(Avx512::new().map(|set| Self(Set::Avx512(set))));
        }
        all
    }

    /// Whether a multiplication and the addition after it round once; sets that agree on this
    /// agree on every bit.
    #[cfg(test)]
    pub(crate) fn is_fused(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) | Set::Avx2(_) => true,
            Set::Portable => portable::FUSED,
        }
    }

    /// Runs the kernel with this set.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(set) => set.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(set) => set.run(kernel),
            Set::Portable => kernel.run(Portable),
        }
    }
}

/// Operations on 16 lanes.
///
/// `max` and `min` give the second argument if either is NaN, as x86 does.
pub(crate) trait Simd: Copy {
    /// 16 lanes.
    type V: Copy;
    /// 16 integers of 64 bits, of which the low halves are words and the high ones may be anything.
    type W: Copy;
    /// Columns of 16 lanes a matrix product keeps in registers next to 6 rows.
    const COLUMNS: usize;

    /// One value in every lane.
    fn splat(self, value: f32) -> Self::V;
    /// Reads 16 values.
    ///
    /// # Safety
    /// `from` is valid for reads of 16 values.
    unsafe fn load_ptr(self, from: *const f32) -> Self::V;
    /// Writes 16 values.
    ///
    /// # Safety
    /// `to` is valid for writes of 16 values.
    unsafe fn store_ptr(self, to: *mut f32, v: Self::V);
    /// a + b.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// a - b.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// a b.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// a / b.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// a b + c.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// a > b ? a : b.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// a < b ? a : b.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// To the nearest whole number, ties to even; for values below 2^22.
    fn round(self, a: Self::V) -> Self::V;
    /// `a 2^n` for whole n in -126 ..= 127 and a and the result normal.
    fn scale_pow2(self, a: Self::V, n: Self::V) -> Self::V;
    /// a < b ? yes : no, lane by lane (no for NaN).
    fn select_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// A bit for each lane that is NaN, lane 0 lowest.
    fn nan_bits(self, a: Self::V) -> u32;
    /// A bit for each lane with a == b.
    fn equal_bits(self, a: Self::V, b: Self::V) -> u32;
    /// A bit for each lane with a < b.
    fn less_bits(self, a: Self::V, b: Self::V) -> u32;
    /// Words.
    fn words(self, words: &[u32; LANES]) -> Self::W;
    /// The 64-bit products of the words.
    fn multiply_words(self, a: Self::W, by: u32) -> Self::W;
    /// High halves become words.
    fn high_words(self, a: Self::W) -> Self::W;
    /// Bit by bit.
    fn xor_words(self, a: Self::W, b: Self::W) -> Self::W;
    /// The words.
    fn low_words(self, a: Self::W) -> [u32; LANES];
    /// Rows become columns.
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES];

    /// Asks for the cache line at an address, which need not be valid.
    #[inline(always)]
    fn prefetch(self, _at: *const f32) {}

    /// Reads the 16 leading values.
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::V {
        let from: &[f32; LANES] = from[..LANES].try_into().expect("the slice has 16 values");
        // SAFETY: the reference covers 16 values.
        unsafe { self.load_ptr(from.as_ptr()) }
    }

    /// Writes the 16 leading values.
    #[inline(always)]
    fn store(self, to: &mut [f32], v: Self::V) {
        let to: &mut [f32; LANES] = (&mut to[..LANES])
            .try_into()
            .expect("the slice has 16 values");
        // SAFETY: the reference covers 16 values.
        unsafe { self.store_ptr(to.as_mut_ptr(), v) }
    }

    /// Reads fewer than 16 values; the other lanes are `fill`.
    #[inline(always)]
    fn load_part(self, from: &[f32], fill: f32) -> Self::V {
        let mut lanes = [fill; LANES];
        lanes[..from.len()].copy_from_slice(from);
        self.load(&lanes)
    }

    /// Writes fewer than 16 values.
    #[inline(always)]
    fn store_part(self, to: &mut [f32], v: Self::V) {
        let lanes = self.to_array(v);
        to.copy_from_slice(&lanes[..to.len()]);
    }

    /// The lanes.
    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes, v);
        lanes
    }

    /// Sum of the lanes, by halves: the same order on every set.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let mut lanes = self.to_array(v);
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
        }
        lanes[0]
    }

    /// Greatest lane; a NaN may be missed.
    #[inline(always)]
    fn greatest(self, v: Self::V) -> f32 {
        let mut lanes = self.to_array(v);
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] = if lanes[i] > lanes[i + half] {
                    lanes[i]
                } else {
                    lanes[i + half]
                };
            }
        }
        lanes[0]
    }
}

/// Numbers in -1 .. 1 that look random and are the same everywhere.
#[cfg(test)]
pub(crate) fn sample_values(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

#[cfg(test)]
mod tests;
