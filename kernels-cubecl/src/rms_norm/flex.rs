//! Native norm of rows: see the contract in [`super`].

use crate::simd::shared::SharedMut;
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::spec::RmsNormSpec;
use crate::threads::Threads;

/// Values from which rows are split over threads.
pub const PARALLEL_LEN: usize = 1 << 15;
/// Values that one task handles, about.
const TASK_LEN: usize = 1 << 13;
/// Sums side by side, so that additions do not wait for each other.
const CHAINS: usize = 4;

/// Norm of each row of `x` into `out`.
///
/// # Shapes
/// `x`, `out` `[T, num_groups * group_len]`, `gamma [num_normed, group_len]`.
pub fn rms_norm(threads: &Threads, x: &[f32], gamma: &[f32], spec: &RmsNormSpec, out: &mut [f32]) {
    rms_norm_on(Isa::detect(), threads, (None, x), (gamma, spec), out);
}

/// Adds `x` to `residual`, and puts the norm of the sum into `out`.
///
/// # Shapes
/// As [`rms_norm`]; `residual` as `x`.
pub fn add_rms_norm(
    threads: &Threads,
    residual: &mut [f32],
    x: &[f32],
    gamma: &[f32],
    spec: &RmsNormSpec,
    out: &mut [f32],
) {
    rms_norm_on(
        Isa::detect(),
        threads,
        (Some(residual), x),
        (gamma, spec),
        out,
    );
}

fn rms_norm_on(
    isa: Isa,
    threads: &Threads,
    (residual, x): (Option<&mut [f32]>, &[f32]),
    (gamma, spec): (&[f32], &RmsNormSpec),
    out: &mut [f32],
) {
    let row_len = spec.num_groups * spec.group_len;
    assert!(spec.num_normed <= spec.num_groups, "{spec:?}");
    assert_eq!(
        gamma.len(),
        spec.num_normed * spec.group_len,
        "length of gamma"
    );
    assert_eq!(x.len(), out.len(), "length of the output");
    assert!(
        x.len().is_multiple_of(row_len),
        "{} values in rows of {row_len}",
        x.len()
    );
    if let Some(residual) = &residual {
        assert_eq!(x.len(), residual.len(), "length of the residual");
    }
    let residual = residual.map(SharedMut::new);
    let out = SharedMut::new(out);
    let num_rows = x.len() / row_len;
    let rows_per_task = if x.len() < PARALLEL_LEN {
        num_rows
    } else {
        TASK_LEN.div_ceil(row_len)
    };
    threads.run(num_rows.div_ceil(rows_per_task.max(1)), |task| {
        let start = task * rows_per_task * row_len;
        let len = (rows_per_task * row_len).min(x.len() - start);
        // SAFETY: each task has rows of its own.
        let out = unsafe { out.part(start, len) };
        // SAFETY: as above.
        let residual = residual
            .as_ref()
            .map(|residual| unsafe { residual.part(start, len) });
        let x = &x[start..start + len];
        isa.run(NormKernel {
            residual,
            x,
            gamma,
            spec,
            out,
        });
    });
}

/// Some rows, compiled for each instruction set.
struct NormKernel<'a> {
    residual: Option<&'a mut [f32]>,
    x: &'a [f32],
    gamma: &'a [f32],
    spec: &'a RmsNormSpec,
    out: &'a mut [f32],
}

impl Kernel for NormKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let spec = self.spec;
        let mut x = self.x;
        if let Some(residual) = self.residual {
            for (sum, x) in residual.iter_mut().zip(x) {
                *sum += x;
            }
            x = residual;
        }
        let row_len = spec.num_groups * spec.group_len;
        let normed = spec.num_normed * spec.group_len;
        for (x, out) in x
            .chunks_exact(row_len)
            .zip(self.out.chunks_exact_mut(row_len))
        {
            for group in 0..spec.num_normed {
                let range = group * spec.group_len..(group + 1) * spec.group_len;
                let (x, gamma) = (&x[range.clone()], &self.gamma[range.clone()]);
                let mean = sum_of_squares(s, x) / spec.group_len as f32;
                let factor = 1.0 / (mean + spec.epsilon).sqrt();
                for ((out, x), gamma) in out[range].iter_mut().zip(x).zip(gamma) {
                    *out = x * factor * gamma;
                }
            }
            out[normed..].copy_from_slice(&x[normed..]);
        }
    }
}

/// In an order that depends on the length alone.
#[inline(always)]
fn sum_of_squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); CHAINS];
    let mut chunks = x.chunks_exact(CHAINS * LANES);
    for chunk in &mut chunks {
        for (i, sum) in sums.iter_mut().enumerate() {
            let x = s.load(&chunk[i * LANES..]);
            *sum = s.fma(x, x, *sum);
        }
    }
    for chunk in chunks.remainder().chunks(LANES) {
        let x = s.load_part(chunk, 0.0);
        sums[0] = s.fma(x, x, sums[0]);
    }
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}

/// The norm by its definition, in f64.
pub fn reference(x: &[f32], gamma: &[f32], spec: &RmsNormSpec, out: &mut [f32]) {
    let row_len = spec.num_groups * spec.group_len;
    for (x, out) in x.chunks_exact(row_len).zip(out.chunks_exact_mut(row_len)) {
        out.copy_from_slice(x);
        for (group, gamma) in gamma.chunks_exact(spec.group_len).enumerate() {
            let range = group * spec.group_len..(group + 1) * spec.group_len;
            let squares = x[range.clone()]
                .iter()
                .map(|&x| f64::from(x) * f64::from(x));
            let mean = squares.sum::<f64>() / spec.group_len as f64;
            let factor = 1.0 / (mean + f64::from(spec.epsilon)).sqrt();
            for ((out, &x), &gamma) in out[range.clone()].iter_mut().zip(&x[range]).zip(gamma) {
                *out = (f64::from(x) * factor * f64::from(gamma)) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::sample_values;
    use std::num::NonZeroUsize;

    fn specs() -> Vec<RmsNormSpec> {
        let spec = |num_groups, num_normed, group_len| RmsNormSpec {
            num_groups,
            num_normed,
            group_len,
            epsilon: 1e-5,
        };
        vec![
            spec(1, 1, 576),
            spec(6, 5, 256),
            spec(1, 1, 1),
            spec(3, 2, 15),
            spec(1, 1, 65),
        ]
    }

    #[test]
    fn norms_are_their_definition_and_rows_do_not_depend_on_each_other() {
        let threads = Threads::new(NonZeroUsize::new(3).unwrap());
        for spec in specs() {
            let row_len = spec.num_groups * spec.group_len;
            for num_rows in [1, 2, 37, 40_000 / row_len] {
                let x = sample_values(7, num_rows * row_len);
                let gamma = sample_values(8, spec.num_normed * spec.group_len);
                let mut want = vec![0.0; x.len()];
                reference(&x, &gamma, &spec, &mut want);
                for isa in Isa::all() {
                    let run = |x: &[f32]| {
                        let mut out = vec![f32::NAN; x.len()];
                        rms_norm_on(isa, &threads, (None, x), (&gamma, &spec), &mut out);
                        out
                    };
                    let got = run(&x);
                    for (a, b) in got.iter().zip(&want) {
                        assert!((a - b).abs() <= 1e-5 * b.abs(), "{spec:?} {isa:?}: {a} {b}");
                    }
                    for row in [0, num_rows / 2, num_rows - 1] {
                        let row = row * row_len..(row + 1) * row_len;
                        assert_eq!(run(&x[row.clone()]), got[row], "{spec:?} {isa:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_residual_becomes_the_sum_whose_norm_is_taken() {
        let threads = Threads::new(NonZeroUsize::new(2).unwrap());
        let spec = specs()[1];
        let x = sample_values(1, 53 * 1536);
        let before = sample_values(2, x.len());
        let gamma = sample_values(3, 5 * 256);
        let sum: Vec<f32> = before.iter().zip(&x).map(|(a, b)| a + b).collect();
        for isa in Isa::all() {
            let mut want = vec![0.0; x.len()];
            rms_norm_on(isa, &threads, (None, &sum), (&gamma, &spec), &mut want);
            let (mut residual, mut out) = (before.clone(), vec![0.0; x.len()]);
            let rows = (Some(&mut residual[..]), &x[..]);
            rms_norm_on(isa, &threads, rows, (&gamma, &spec), &mut out);
            assert_eq!((residual, out), (sum.clone(), want));
        }
    }
}
