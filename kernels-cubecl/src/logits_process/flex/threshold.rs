//! Finding the value at which a count or a mass is reached, without sorting.
//!
//! Floats become integers of the same order, and the range of those is halved: each step is one pass over
//! the values, which a cache holds. Once few values are left in the range, these are sorted.
//!
//! Neighbours: [`super::filters`] finds the limits of filters with it, [`crate::logprobs`] the most likely
//! tokens.

use crate::simd::{Isa, Kernel, LANES, Simd};

/// From here on values are sorted.
const FEW: usize = 1024;
/// Values whose weights are summed in f32 before they join an f64: an order that depends on nothing
/// but their number.
const BLOCK: usize = 1024;

/// An integer that orders as the float does. A zero's sign tells, which comparisons of floats do not see:
/// thresholds are compared as floats.
fn key(value: f32) -> u32 {
    let bits = value.to_bits();
    if bits >> 31 == 0 {
        bits | 0x8000_0000
    } else {
        !bits
    }
}

/// The float of that key.
fn value_of(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 {
        key & 0x7fff_ffff
    } else {
        !key
    })
}

/// What a threshold is looked for in.
#[derive(Clone, Copy)]
pub(crate) struct Weighted<'a> {
    /// No NaN, no `+inf`; `-inf` has no weight.
    pub(crate) values: &'a [f32],
    /// One per value, at least 0; `None` counts values.
    pub(crate) weights: Option<&'a [f32]>,
    /// The greatest of the values, finite.
    pub(crate) greatest: f32,
}

/// The greatest of the values at which the weights of values not below it reach `target`; if all
/// together do not, the least finite value or less.
pub(crate) fn threshold(isa: Isa, weighted: Weighted<'_>, target: f64) -> f32 {
    let (mut low, mut high) = (key(f32::MIN), key(weighted.greatest));
    // Weight above `high`, and the numbers of values from `low` on and above `high`.
    let (mut weight_above, mut num_low, mut num_above) = (0.0, weighted.values.len(), 0);
    while low < high && num_low - num_above > FEW {
        let middle = low + (high - low).div_ceil(2);
        let (weight, count) = isa.run(Above {
            weighted,
            threshold: value_of(middle),
        });
        if weight >= target {
            (low, num_low) = (middle, count);
        } else {
            (high, weight_above, num_above) = (middle - 1, weight, count);
        }
    }
    let range = (value_of(low), value_of(high.saturating_add(1)));
    if low == high {
        return range.0;
    }
    let mut few: Vec<(f32, f32)> = Vec::with_capacity(FEW);
    for (i, &value) in weighted.values.iter().enumerate() {
        if value >= range.0 && value < range.1 {
            few.push((value, weighted.weights.map_or(1.0, |weights| weights[i])));
        }
    }
    few.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let mut weight = weight_above;
    let reached = few.iter().find(|(_, more)| {
        weight += f64::from(*more);
        weight >= target
    });
    reached.or(few.last()).map_or(range.0, |&(value, _)| value)
}

/// Weight and number of the values that are not below a threshold.
struct Above<'a> {
    weighted: Weighted<'a>,
    threshold: f32,
}

impl Kernel for Above<'_> {
    type Output = (f64, usize);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f64, usize) {
        let threshold = s.splat(self.threshold);
        let zero = s.splat(0.0);
        let (mut total, mut count) = (0.0, 0);
        for (block, values) in self.weighted.values.chunks(BLOCK).enumerate() {
            let mut sums = [zero; 2];
            for (i, lanes) in values.chunks(LANES).enumerate() {
                let x = if lanes.len() == LANES {
                    s.load(lanes)
                } else {
                    s.load_part(lanes, f32::NEG_INFINITY)
                };
                count += (!s.less_bits(x, threshold) & 0xffff).count_ones() as usize;
                if let Some(weights) = self.weighted.weights {
                    let weights = &weights[block * BLOCK + i * LANES..][..lanes.len()];
                    let weight = if lanes.len() == LANES {
                        s.load(weights)
                    } else {
                        s.load_part(weights, 0.0)
                    };
                    let weight = s.select_less(x, threshold, zero, weight);
                    sums[i % 2] = s.add(sums[i % 2], weight);
                }
            }
            total += f64::from(s.sum(s.add(sums[0], sums[1])));
        }
        if self.weighted.weights.is_none() {
            total = count as f64;
        }
        (total, count)
    }
}

/// Writes `exp((value - maximum) / temperature)` of each value and gives their sum.
pub(crate) struct Masses<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) maximum: f32,
    pub(crate) temperature: f32,
    /// As many as there are values, or none if only the sum is wanted.
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Masses<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        let (maximum, divisor) = (s.splat(self.maximum), s.splat(self.temperature));
        let mut total = 0.0;
        for (block, values) in self.values.chunks(BLOCK).enumerate() {
            let mut sum = s.splat(0.0);
            for (i, lanes) in values.chunks(LANES).enumerate() {
                let x = if lanes.len() == LANES {
                    s.load(lanes)
                } else {
                    s.load_part(lanes, f32::NEG_INFINITY)
                };
                let mass = crate::simd::math::exp(s, s.div(s.sub(x, maximum), divisor));
                sum = s.add(sum, mass);
                if !self.out.is_empty() {
                    let place = &mut self.out[block * BLOCK + i * LANES..][..lanes.len()];
                    if lanes.len() == LANES {
                        s.store(place, mass);
                    } else {
                        s.store_part(place, mass);
                    }
                }
            }
            total += f64::from(s.sum(sum));
        }
        total
    }
}
