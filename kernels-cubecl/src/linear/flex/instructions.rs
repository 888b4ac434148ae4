//! Which instructions a product is computed with, and the kernels compiled for them.

use std::marker::PhantomData;

use super::activations::{Quantize, Run};
#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
use super::formats::{Bf16, F16, F32, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q6K, Q8_0};
use super::lanes::Lanes;
use super::micro::{Float, Int8, Product};
use super::portable::Portable;
use super::tiles::{Multiply, Tiles};
use crate::packed::format::WeightFormat;

/// The instructions a product is computed with. Results differ in rounding only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// x86-64: AVX-512 F, BW and VNNI.
    Avx512Vnni,
    /// x86-64: AVX-512 F and BW.
    Avx512,
    /// x86-64: AVX2, FMA, F16C and AVX-VNNI.
    AvxVnni,
    /// x86-64: AVX2, FMA and F16C.
    Avx2,
    /// Whatever the binary was compiled for.
    Portable,
}

/// Multiplies some tiles.
///
/// Callers promise what [`Multiply`] asks for and that the instructions are available.
pub(super) type Kernel = unsafe fn(&Tiles<'_>);

impl InstructionSet {
    /// Every set, best first.
    pub const ALL: [Self; 5] = [
        Self::Avx512Vnni,
        Self::Avx512,
        Self::AvxVnni,
        Self::Avx2,
        Self::Portable,
    ];

    /// The best one this CPU has.
    pub fn detect() -> Self {
        Self::ALL
            .into_iter()
            .find(|set| set.is_available())
            .unwrap_or(Self::Portable)
    }

    /// Whether this CPU has it.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 =
            avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        match self {
            Self::Avx512Vnni => avx512 && is_x86_feature_detected!("avx512vnni"),
            Self::Avx512 => avx512,
            Self::AvxVnni => avx2 && is_x86_feature_detected!("avxvnni"),
            Self::Avx2 => avx2,
            Self::Portable => true,
        }
    }

    /// Whether this CPU has it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == Self::Portable
    }

    /// Quantises as many values of `x` as `runs` take.
    pub(super) fn quantize(self, x: &[f32], runs: &mut [Run]) {
        assert!(self.is_available(), "this CPU has no {self:?}");
        let job = Quantize { x, runs };
        // SAFETY: the instructions are available, and the job is safe with any.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Avx512Vnni => Avx512::<true>::enter(job),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 => Avx512::<false>::enter(job),
                #[cfg(target_arch = "x86_64")]
                Self::AvxVnni => Avx2::<true>::enter(job),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => Avx2::<false>::enter(job),
                _ => Portable::enter(job),
            }
        }
    }

    /// The kernel for a format and int8 or f32 activations.
    pub(super) fn kernel(self, format: WeightFormat, is_int8: bool) -> Kernel {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => select::<Avx512<true>>(format, is_int8),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => select::<Avx512<false>>(format, is_int8),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => select::<Avx2<true>>(format, is_int8),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => select::<Avx2<false>>(format, is_int8),
            _ => select::<Portable>(format, is_int8),
        }
    }
}

fn select<L: Lanes>(format: WeightFormat, is_int8: bool) -> Kernel {
    match (format, is_int8) {
        (WeightFormat::F32, _) => multiply::<L, Float<F32>>,
        (WeightFormat::F16, _) => multiply::<L, Float<F16>>,
        (WeightFormat::Bf16, _) => multiply::<L, Float<Bf16>>,
        (WeightFormat::Q4_0, true) => multiply::<L, Int8<Q4_0>>,
        (WeightFormat::Q4_0, false) => multiply::<L, Float<Q4_0>>,
        (WeightFormat::Q4_1, true) => multiply::<L, Int8<Q4_1>>,
        (WeightFormat::Q4_1, false) => multiply::<L, Float<Q4_1>>,
        (WeightFormat::Q5_0, true) => multiply::<L, Int8<Q5_0>>,
        (WeightFormat::Q5_0, false) => multiply::<L, Float<Q5_0>>,
        (WeightFormat::Q5_1, true) => multiply::<L, Int8<Q5_1>>,
        (WeightFormat::Q5_1, false) => multiply::<L, Float<Q5_1>>,
        (WeightFormat::Q8_0, true) => multiply::<L, Int8<Q8_0>>,
        (WeightFormat::Q8_0, false) => multiply::<L, Float<Q8_0>>,
        (WeightFormat::Q4K, true) => multiply::<L, Int8<Q4K>>,
        (WeightFormat::Q4K, false) => multiply::<L, Float<Q4K>>,
        (WeightFormat::Q6K, true) => multiply::<L, Int8<Q6K>>,
        (WeightFormat::Q6K, false) => multiply::<L, Float<Q6K>>,
    }
}

unsafe fn multiply<L: Lanes, P: Product>(tiles: &Tiles<'_>) {
    debug_assert_eq!(tiles.layout.format, P::FORMAT);
    // SAFETY: the caller's promise.
    unsafe { L::enter(Multiply::<P>(tiles, PhantomData)) };
}
