use super::{Isa, Kernel, LANES, Simd, math};

/// Applies a lane function to every value.
struct Map<'a, F>(&'a [f32], F);

trait Lanes {
    fn apply<S: Simd>(&self, simd: S, x: S::V) -> S::V;
}

impl<F: Lanes> Kernel for Map<'_, F> {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        let mut out = vec![0.0; self.0.len()];
        for (x, y) in self.0.chunks(LANES).zip(out.chunks_mut(LANES)) {
            simd.store_part(y, self.1.apply(simd, simd.load_part(x, 1.0)));
        }
        out
    }
}

macro_rules! lanes {
    ($name:ident, $f:path) => {
        struct $name;
        impl Lanes for $name {
            #[inline(always)]
            fn apply<S: Simd>(&self, simd: S, x: S::V) -> S::V {
                $f(simd, x)
            }
        }
    };
}
lanes!(Exp, math::exp);
lanes!(Tanh, math::tanh);
lanes!(Ln, math::ln);

fn worst(xs: &[f32], ys: &[f32], exact: impl Fn(f64) -> f64) -> f64 {
    let error = |(&x, &y): (&f32, &f32)| {
        let want = exact(f64::from(x));
        if want == 0.0 {
            f64::from(y).abs()
        } else {
            ((f64::from(y) - want) / want).abs()
        }
    };
    xs.iter().zip(ys).map(error).fold(0.0, f64::max)
}

fn spread(low: f32, high: f32) -> Vec<f32> {
    (0..100_003)
        .map(|i| low + (high - low) * (i as f32 / 100_002.0))
        .collect()
}

#[test]
fn elementary_functions_are_good_to_two_ulp_on_every_set() {
    let exps = spread(-86.9, 87.9);
    let small = spread(-1e-3, 1e-3);
    let tanhs = spread(-12.0, 12.0);
    let logs: Vec<f32> = exps.iter().map(|x| x.exp()).collect();
    let near_one = spread(0.9, 1.1);
    let below_one: Vec<f32> = (1..5000).map(|i| 1.0 - i as f32 * 2f32.powi(-24)).collect();
    for isa in Isa::all() {
        let check = |name, error: f64| assert!(error < 2.5e-7, "{name} on {isa:?}: {error}");
        check("exp", worst(&exps, &isa.run(Map(&exps, Exp)), f64::exp));
        check("exp", worst(&small, &isa.run(Map(&small, Exp)), f64::exp));
        check(
            "tanh",
            worst(&tanhs, &isa.run(Map(&tanhs, Tanh)), f64::tanh),
        );
        check(
            "tanh",
            worst(&small, &isa.run(Map(&small, Tanh)), f64::tanh),
        );
        check("ln", worst(&logs, &isa.run(Map(&logs, Ln)), f64::ln));
        check(
            "ln",
            worst(&near_one, &isa.run(Map(&near_one, Ln)), f64::ln),
        );
        check(
            "ln",
            worst(&below_one, &isa.run(Map(&below_one, Ln)), f64::ln),
        );
    }
}

#[test]
fn exp_is_one_at_zero_and_keeps_nan() {
    let xs = [
        0.0,
        -0.0,
        f32::NAN,
        f32::NEG_INFINITY,
        -88.0,
        f32::INFINITY,
        200.0,
    ];
    for isa in Isa::all() {
        let ys = isa.run(Map(&xs, Exp));
        assert_eq!(ys[..2], [1.0, 1.0]);
        assert!(ys[2].is_nan());
        assert_eq!(ys[3..5], [0.0, 0.0]);
        assert!(ys[5] > 1e38 && ys[6] > 1e38);
    }
}

#[test]
fn sets_that_fuse_agree_on_every_bit() {
    let xs = spread(-30.0, 30.0);
    let positive: Vec<f32> = xs.iter().map(|x| x.abs() + 1e-20).collect();
    let run = |isa: Isa| {
        [
            isa.run(Map(&xs, Exp)),
            isa.run(Map(&xs, Tanh)),
            isa.run(Map(&positive, Ln)),
        ]
        .map(|ys| ys.into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    let fused: Vec<Isa> = Isa::all()
        .into_iter()
        .filter(|isa| isa.is_fused())
        .collect();
    for pair in fused.windows(2) {
        assert!(run(pair[0]) == run(pair[1]), "{pair:?}");
    }
}

struct Transpose([[f32; LANES]; LANES]);
impl Kernel for Transpose {
    type Output = [[f32; LANES]; LANES];
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Output {
        simd.transpose(self.0.map(|row| simd.load(&row)))
            .map(|row| simd.to_array(row))
    }
}

#[test]
fn transposing_swaps_rows_and_columns() {
    let rows = std::array::from_fn(|i| std::array::from_fn(|j| (16 * i + j) as f32));
    for isa in Isa::all() {
        let columns = isa.run(Transpose(rows));
        for (i, row) in rows.iter().enumerate() {
            for (j, value) in row.iter().enumerate() {
                assert_eq!(columns[j][i].to_bits(), value.to_bits(), "{isa:?}");
            }
        }
    }
}
