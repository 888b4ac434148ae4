//! Activations as the int8 kernel reads them: runs of 32 values as signed bytes with a scale.
//!
//! A value is `scale * code`, `scale` a 127th of the largest magnitude in the run, so the error of
//! a value is at most half a scale. A run is quantised on its own: its bits depend on its 32 values.

use super::lanes::{Job, Lanes};
use crate::packed::dequantize::RUN_LEN;

/// Which of [`Run::starts`] an integer sum starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// 0: codes have no offset.
    Zero,
    /// -8 times the sum of the codes.
    Minus8,
    /// -16 times the sum of the codes.
    Minus16,
    /// -128 times the sum of the codes.
    Minus128,
    /// -32 times the sum of the first 16 codes.
    Minus32OfFirst,
    /// -32 times the sum of the last 16 codes.
    Minus32OfLast,
}

/// 32 quantised activations in one cache line, with everything a product with any format needs.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Run {
    /// Four signed codes in each word, lowest byte first.
    pub(super) codes: [i32; RUN_LEN / 4],
    /// What a code is worth.
    pub(super) scale: f32,
    /// Sum of the values, for weights with a minimum.
    pub(super) sum: f32,
    /// For each [`Start`].
    pub(super) starts: [i32; 6],
}

impl Run {
    /// A run of zeros.
    pub(super) const ZERO: Self = Self {
        codes: [0; RUN_LEN / 4],
        scale: 0.0,
        sum: 0.0,
        starts: [0; 6],
    };

    /// Quantises 32 values. Values that are not finite make a scale that is not.
    #[inline(always)]
    pub(super) fn quantize(values: &[f32; RUN_LEN]) -> Self {
        /// Below this a reciprocal overflows; such values count as zero.
        const TINY: f32 = 1e-36;
        // Magnitudes order like their bits, and a maximum of integers vectorises.
        let largest = values
            .iter()
            .fold(0, |max, value| max.max(value.abs().to_bits()));
        let largest = f32::from_bits(largest);
        let scale = largest * (1.0 / 127.0);
        let inverse = if largest > TINY { 127.0 / largest } else { 0.0 };
        let codes = values.map(|value| round(value * inverse));
        let half_sum = |half: &[i32]| half.iter().sum::<i32>();
        let (first, last) = (half_sum(&codes[..16]), half_sum(&codes[16..]));
        let sum = first + last;
        let mut words = [0; RUN_LEN / 4];
        for (word, codes) in words.iter_mut().zip(codes.as_chunks::<4>().0) {
            *word = i32::from_le_bytes(codes.map(|code| code as u8));
        }
        Self {
            codes: words,
            scale,
            sum: scale * sum as f32,
            starts: [0, -8 * sum, -16 * sum, -128 * sum, -32 * first, -32 * last],
        }
    }
}

/// Rounds to the nearest integer, ties to even, for magnitudes below 2^22: adding this constant
/// leaves no bits for a fraction. The same on every instruction set, and it vectorises on all.
#[inline(always)]
fn round(value: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    ((value + SHIFT).to_bits() as i32).wrapping_sub(SHIFT.to_bits() as i32)
}

/// Quantises as many values of `x` as `runs` take.
pub(super) struct Quantize<'a> {
    pub(super) x: &'a [f32],
    pub(super) runs: &'a mut [Run],
}

impl Job for Quantize<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for (values, run) in self.x.as_chunks().0.iter().zip(self.runs) {
            *run = Run::quantize(values);
        }
    }
}
