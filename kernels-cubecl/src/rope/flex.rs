//! Native rotary embedding: see the contract in [`super`].

use std::cell::RefCell;

use crate::simd::scratch::Scratch;
use crate::simd::shared::SharedMut;
use crate::simd::{Isa, Kernel, Simd};
use crate::spec::{RopePairing, RopeSpec};
use crate::threads::Threads;

/// Values from which rows are split over threads.
pub const PARALLEL_LEN: usize = 1 << 15;
/// Values that one task handles, about.
const TASK_LEN: usize = 1 << 13;

thread_local! {
    /// Cosines and sines of one token.
    static TURNS: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
}

/// Rotates the leading heads of each row, in place.
///
/// # Shapes
/// `x [T, num_heads * head_dim]`, `inv_freq [rotary_dim / 2]`, `positions [T]`.
pub fn rope(
    threads: &Threads,
    x: &mut [f32],
    inv_freq: &[f32],
    positions: &[u32],
    spec: &RopeSpec,
) {
    rope_on(Isa::detect(), threads, x, (inv_freq, positions), spec);
}

fn rope_on(
    isa: Isa,
    threads: &Threads,
    x: &mut [f32],
    (inv_freq, positions): (&[f32], &[u32]),
    spec: &RopeSpec,
) {
    let row_len = spec.num_heads * spec.head_dim;
    assert!(
        spec.num_rotated <= spec.num_heads
            && spec.rotary_dim <= spec.head_dim
            && spec.rotary_dim.is_multiple_of(2),
        "{spec:?}"
    );
    assert_eq!(inv_freq.len(), spec.rotary_dim / 2, "inverse frequencies");
    assert!(
        x.len() >= positions.len() * row_len,
        "{} values in rows of {row_len}",
        x.len()
    );
    let num_rows = positions.len();
    let parallel = num_rows * row_len >= PARALLEL_LEN;
    let rows_per_task = if parallel {
        TASK_LEN.div_ceil(row_len)
    } else {
        num_rows.max(1)
    };
    let x = SharedMut::new(x);
    threads.run(num_rows.div_ceil(rows_per_task), |task| {
        let rows = task * rows_per_task..((task + 1) * rows_per_task).min(num_rows);
        // SAFETY: each task has rows of its own.
        let x = unsafe { x.part(rows.start * row_len, rows.len() * row_len) };
        let positions = &positions[rows];
        TURNS.with_borrow_mut(|turns| {
            let [cos, sin] = turns.split([inv_freq.len(), inv_freq.len()]);
            isa.run(RopeKernel {
                x,
                inv_freq,
                positions,
                spec,
                cos,
                sin,
            });
        });
    });
}

/// Some rows, compiled for each instruction set.
struct RopeKernel<'a> {
    x: &'a mut [f32],
    inv_freq: &'a [f32],
    positions: &'a [u32],
    spec: &'a RopeSpec,
    cos: &'a mut [f32],
    sin: &'a mut [f32],
}

impl Kernel for RopeKernel<'_> {
    type Output = ();

    /// Plain loops: compilers vectorise them for the set, and nothing here needs a fixed order.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let spec = self.spec;
        let half = self.inv_freq.len();
        let rows = self.x.chunks_exact_mut(spec.num_heads * spec.head_dim);
        for (row, &position) in rows.zip(self.positions) {
            let turns = self.cos.iter_mut().zip(self.sin.iter_mut());
            for ((cos, sin), &inv_freq) in turns.zip(self.inv_freq) {
                let (s, c) = sin_cos(f64::from(position) * f64::from(inv_freq));
                *cos = c * spec.magnitude;
                *sin = s * spec.magnitude;
            }
            let (cos, sin) = (&self.cos[..half], &self.sin[..half]);
            for head in row.chunks_exact_mut(spec.head_dim).take(spec.num_rotated) {
                match spec.pairing {
                    RopePairing::Halves => {
                        let (low, high) = head[..2 * half].split_at_mut(half);
                        for i in 0..half {
                            let (a, b) = (low[i], high[i]);
                            low[i] = a * cos[i] - b * sin[i];
                            high[i] = a * sin[i] + b * cos[i];
                        }
                    }
                    RopePairing::Interleaved => {
                        let pairs = head[..2 * half].chunks_exact_mut(2);
                        for (i, pair) in pairs.enumerate() {
                            let (a, b) = (pair[0], pair[1]);
                            pair[0] = a * cos[i] - b * sin[i];
                            pair[1] = a * sin[i] + b * cos[i];
                        }
                    }
                }
            }
        }
    }
}

/// Sine and cosine of an angle of up to 2^31, without branches.
///
/// The quarter turns are taken off in f64, where even 2^31 leaves 22 bits of fraction; what is left
/// is at most pi / 4 and goes through polynomials in f32, good to 4e-9 before rounding.
#[inline(always)]
fn sin_cos(angle: f64) -> (f32, f32) {
    // Adding 1.5 * 2^52 rounds to a whole number and leaves it in the low bits.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let shifted = angle * std::f64::consts::FRAC_2_PI + SHIFT;
    let quarter = shifted.to_bits() as u32;
    let r = (angle - (shifted - SHIFT) * std::f64::consts::FRAC_PI_2) as f32;
    let square = r * r;
    let sin =
        ((-0.000_195_172_15 * square + 0.008_332_178) * square - 0.166_666_55) * square * r + r;
    let cos = ((0.000_024_433_06 * square - 0.001_388_731_5) * square + 0.041_666_647)
        * (square * square)
        - 0.5 * square
        + 1.0;
    // Quarters of the circle: (s, c), (c, -s), (-s, -c), (-c, s).
    let (sine, cosine) = if quarter & 1 == 0 {
        (sin, cos)
    } else {
        (cos, sin)
    };
    let sine_sign = (quarter & 2) << 30;
    let cosine_sign = (quarter.wrapping_add(1) & 2) << 30;
    (
        f32::from_bits(sine.to_bits() ^ sine_sign),
        f32::from_bits(cosine.to_bits() ^ cosine_sign),
    )
}

/// The rotation by its definition, in f64.
pub fn reference(x: &mut [f32], inv_freq: &[f32], positions: &[u32], spec: &RopeSpec) {
    let half = spec.rotary_dim / 2;
    for (row, &position) in x
        .chunks_exact_mut(spec.num_heads * spec.head_dim)
        .zip(positions)
    {
        for head in row.chunks_exact_mut(spec.head_dim).take(spec.num_rotated) {
            for (i, &inv_freq) in inv_freq.iter().enumerate() {
                let (first, second) = match spec.pairing {
                    RopePairing::Halves => (i, i + half),
                    RopePairing::Interleaved => (2 * i, 2 * i + 1),
                };
                let (sin, cos) = (f64::from(position) * f64::from(inv_freq)).sin_cos();
                let (a, b) = (f64::from(head[first]), f64::from(head[second]));
                let magnitude = f64::from(spec.magnitude);
                head[first] = (magnitude * (a * cos - b * sin)) as f32;
                head[second] = (magnitude * (a * sin + b * cos)) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::sample_values;
    use std::num::NonZeroUsize;

    #[test]
    fn rotations_are_within_1e_6_of_f64_up_to_position_131072() {
        let threads = Threads::new(NonZeroUsize::new(3).unwrap());
        for (head_dim, rotary_dim, pairing) in [
            (64, 64, RopePairing::Halves),
            (64, 64, RopePairing::Interleaved),
            (26, 18, RopePairing::Halves),
            (7, 6, RopePairing::Interleaved),
            (256, 256, RopePairing::Halves),
        ] {
            let spec = RopeSpec {
                num_heads: 5,
                num_rotated: 4,
                head_dim,
                rotary_dim,
                pairing,
                magnitude: 1.25,
            };
            let inv_freq: Vec<f32> = (0..rotary_dim / 2)
                .map(|i| 10_000f32.powf(-2.0 * i as f32 / rotary_dim as f32))
                .collect();
            let mut positions = vec![0, 1, 2, 3, 100, 4095, 65_537, 131_071, 131_072, 1_048_575];
            positions.extend((0..150).map(|i| i * 877));
            let x = sample_values(3, positions.len() * 5 * head_dim);
            let mut want = x.clone();
            reference(&mut want, &inv_freq, &positions, &spec);
            for isa in Isa::all() {
                let mut got = x.clone();
                rope_on(isa, &threads, &mut got, (&inv_freq, &positions), &spec);
                for (a, b) in got.iter().zip(&want) {
                    assert!((a - b).abs() <= 1e-6, "{isa:?} {spec:?}: {a} {b}");
                }
                // One row alone has the same bits.
                let row = 153 * 5 * head_dim..154 * 5 * head_dim;
                let mut alone = x[row.clone()].to_vec();
                rope_on(
                    isa,
                    &threads,
                    &mut alone,
                    (&inv_freq, &positions[153..154]),
                    &spec,
                );
                assert_eq!(alone, got[row]);
            }
        }
    }

    #[test]
    fn sine_and_cosine_are_exact_at_zero_and_good_around_every_quarter() {
        assert_eq!(sin_cos(0.0), (0.0, 1.0));
        for i in 0..200_000 {
            let angle = f64::from(i) * 0.654_321;
            let (sin, cos) = sin_cos(angle);
            let (want_sin, want_cos) = angle.sin_cos();
            assert!((f64::from(sin) - want_sin).abs() < 1.5e-7, "sin {angle}");
            assert!((f64::from(cos) - want_cos).abs() < 1.5e-7, "cos {angle}");
        }
    }
}
