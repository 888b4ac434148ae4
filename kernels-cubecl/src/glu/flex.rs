//! Native gated linear unit: see the contract in [`super`].

use crate::simd::shared::SharedMut;
use crate::simd::{Isa, Kernel, LANES, Simd, math};
use crate::spec::Activation;
use crate::threads::Threads;

/// Output values from which the work is split over threads.
pub const PARALLEL_LEN: usize = 1 << 12;
/// Output values that one task handles, at most.
const TASK_LEN: usize = 1 << 11;

/// `act(gate) * up` for each row `gate | up` of `x`.
///
/// # Shapes
/// `x [T, 2 * d_ff]`, `out [T, d_ff]`.
pub fn glu(threads: &Threads, x: &[f32], d_ff: usize, activation: Activation, out: &mut [f32]) {
    glu_on(Isa::detect(), threads, (x, d_ff), activation, out);
}

fn glu_on(
    isa: Isa,
    threads: &Threads,
    (x, d_ff): (&[f32], usize),
    activation: Activation,
    out: &mut [f32],
) {
    assert_eq!(x.len(), 2 * out.len(), "values of gate and up");
    assert!(
        out.len().is_multiple_of(d_ff),
        "{} values in rows of {d_ff}",
        out.len()
    );
    let num_rows = out.len() / d_ff;
    let parallel = out.len() >= PARALLEL_LEN;
    // Rows are cut into pieces, so that one long row is shared too.
    let piece_len = if parallel { TASK_LEN.min(d_ff) } else { d_ff };
    let pieces_per_row = d_ff.div_ceil(piece_len);
    let out = SharedMut::new(out);
    let piece = |task: usize| {
        let (row, start) = (task / pieces_per_row, task % pieces_per_row * piece_len);
        let len = piece_len.min(d_ff - start);
        let gate = &x[row * 2 * d_ff + start..][..len];
        let up = &x[(row * 2 + 1) * d_ff + start..][..len];
        // SAFETY: each task has a piece of its own.
        let out = unsafe { out.part(row * d_ff + start, len) };
        isa.run(GluKernel {
            gate,
            up,
            activation,
            out,
        });
    };
    let num_pieces = num_rows * pieces_per_row;
    if parallel {
        threads.run(num_pieces, piece);
    } else {
        (0..num_pieces).for_each(piece);
    }
}

/// A piece of a row, compiled for each instruction set.
struct GluKernel<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    activation: Activation,
    out: &'a mut [f32],
}

impl Kernel for GluKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.activation {
            Activation::Silu => self.each::<S, Silu>(s),
            Activation::GeluTanh => self.each::<S, GeluTanh>(s),
        }
    }
}

impl GluKernel<'_> {
    #[inline(always)]
    fn each<S: Simd, A: Gate>(self, s: S) {
        let whole = self.out.len() / LANES * LANES;
        for i in (0..whole).step_by(LANES) {
            let y = s.mul(A::apply(s, s.load(&self.gate[i..])), s.load(&self.up[i..]));
            s.store(&mut self.out[i..], y);
        }
        if whole < self.out.len() {
            let gate = s.load_part(&self.gate[whole..], 0.0);
            let y = s.mul(A::apply(s, gate), s.load_part(&self.up[whole..], 0.0));
            s.store_part(&mut self.out[whole..], y);
        }
    }
}

/// An activation as a type: a function passed as a value would not be inlined for sure, and be
/// compiled without the instructions of the set.
trait Gate {
    fn apply<S: Simd>(s: S, x: S::V) -> S::V;
}

struct Silu;

impl Gate for Silu {
    #[inline(always)]
    fn apply<S: Simd>(s: S, x: S::V) -> S::V {
        let e = math::exp(s, s.sub(s.splat(0.0), x));
        s.div(x, s.add(s.splat(1.0), e))
    }
}

struct GeluTanh;

impl Gate for GeluTanh {
    #[inline(always)]
    fn apply<S: Simd>(s: S, x: S::V) -> S::V {
        // -2 sqrt(2 / pi), and the same times 0.044715.
        let p = s.fma(s.mul(x, x), s.splat(-0.071_354_814), s.splat(-1.595_769));
        s.div(x, s.add(s.splat(1.0), math::exp(s, s.mul(p, x))))
    }
}

/// The unit by its definition, in f64.
pub fn reference(x: &[f32], d_ff: usize, activation: Activation, out: &mut [f32]) {
    for (row, out) in x.chunks_exact(2 * d_ff).zip(out.chunks_exact_mut(d_ff)) {
        for i in 0..d_ff {
            let (gate, up) = (f64::from(row[i]), f64::from(row[d_ff + i]));
            let activated = match activation {
                Activation::Silu => gate / (1.0 + (-gate).exp()),
                Activation::GeluTanh => {
                    let inner =
                        (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
                    // 1 + tanh(t), without its cancellation at negative t.
                    gate / (1.0 + (-2.0 * inner).exp())
                }
            };
            out[i] = (activated * up) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::sample_values;
    use std::num::NonZeroUsize;

    #[test]
    fn gates_are_their_definition_on_every_set_and_any_number_of_rows() {
        let threads = Threads::new(NonZeroUsize::new(3).unwrap());
        for (num_rows, d_ff) in [(1, 1), (3, 17), (1, 5000), (37, 130), (7, 2049), (2, 16)] {
            let mut x = sample_values(5, num_rows * 2 * d_ff);
            for value in &mut x {
                *value *= 8.0;
            }
            for activation in [Activation::Silu, Activation::GeluTanh] {
                let mut want = vec![0.0; num_rows * d_ff];
                reference(&x, d_ff, activation, &mut want);
                for isa in Isa::all() {
                    let mut got = vec![f32::NAN; want.len()];
                    glu_on(isa, &threads, (&x, d_ff), activation, &mut got);
                    for (a, b) in got.iter().zip(&want) {
                        let close = (a - b).abs() <= 1e-5 * b.abs() + 1e-30;
                        assert!(close, "{activation:?} {isa:?}: {a} {b}");
                    }
                    let last = num_rows - 1;
                    let mut alone = vec![f32::NAN; d_ff];
                    let row = (&x[last * 2 * d_ff..], d_ff);
                    glu_on(isa, &threads, row, activation, &mut alone);
                    assert_eq!(alone, got[last * d_ff..], "{activation:?} {isa:?}");
                }
            }
        }
    }

    #[test]
    fn far_from_zero_a_gate_is_the_identity_or_nothing_and_nan_stays() {
        let threads = Threads::new(NonZeroUsize::MIN);
        let x = [100.0, -100.0, 0.0, f32::NAN, 1.0, 1.0, 1.0, 1.0];
        for activation in [Activation::Silu, Activation::GeluTanh] {
            for isa in Isa::all() {
                let mut out = [1.0; 4];
                glu_on(isa, &threads, (&x, 4), activation, &mut out);
                assert!((out[0] - 100.0).abs() < 1e-4 && out[1].abs() < 1e-30 && out[2] == 0.0);
                assert!(out[3].is_nan());
            }
        }
    }
}
