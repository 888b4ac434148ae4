//! CubeCL kernel of [`super`]: one unit per value of the output.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`.

use crate::elementary::sigmoid;
use crate::launch::{CompileTarget, buffer, contiguous, elementwise, empty_f32};
use crate::spec::Activation;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Everything the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blueprint {
    d_ff: usize,
    activation: Activation,
}

/// `activation(gate) * up` of rows `[gate | up]`.
pub(crate) fn glu(x: CubeTensor, activation: Activation) -> CubeTensor {
    let x = contiguous(x);
    let num_tokens = x.meta.shape()[0];
    let d_ff = x.meta.shape()[1] / 2;
    let out = empty_f32(&x, [num_tokens, d_ff]);
    let (count, dim) = elementwise(x.client.properties(), num_tokens * d_ff);
    // SAFETY: the tensor function checked the shapes; units past the output do nothing.
    unsafe {
        glu_kernel::launch_unchecked(
            &x.client,
            count,
            dim,
            buffer(&x),
            buffer(&out),
            Blueprint { d_ff, activation },
        );
    }
    out
}

/// The kernels that [`glu`] launches.
pub(crate) fn kernels(
    target: &CompileTarget,
    d_ff: usize,
    activation: Activation,
) -> Vec<Box<dyn CubeKernel>> {
    let (count, dim) = elementwise(&target.properties, 1);
    vec![Box::new(glu_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        count,
        dim,
        target.buffer(1),
        target.buffer(1),
        Blueprint { d_ff, activation },
    ))]
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn glu_kernel(x: &[f32], out: &mut [f32], #[comptime] blueprint: Blueprint) {
    let d_ff = comptime!(blueprint.d_ff);
    if ABSOLUTE_POS < out.len() {
        let start = ABSOLUTE_POS / d_ff * comptime!(2 * blueprint.d_ff) + ABSOLUTE_POS % d_ff;
        out[ABSOLUTE_POS] = activate(x[start], blueprint.activation) * x[start + d_ff];
    }
}

#[cube]
fn activate(x: f32, #[comptime] activation: Activation) -> f32 {
    match activation {
        Activation::Silu => x * sigmoid(x),
        // 0.5 (1 + tanh u) is sigmoid(2 u), which does not cancel where x is far below 0.
        Activation::GeluTanh => {
            let u = 0.797_884_6_f32 * (x + 0.044_715_f32 * x * x * x);
            x * sigmoid(2.0f32 * u)
        }
    }
}
