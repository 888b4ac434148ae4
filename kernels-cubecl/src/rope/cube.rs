//! CubeCL kernel of [`super`]: one unit per pair of values.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`.

use crate::elementary::{sin_cos, turns};
use crate::launch::{CompileTarget, buffer, contiguous, elementwise, writable};
use crate::spec::{RopePairing, RopeSpec};
use crate::step_inputs::header;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Everything the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blueprint {
    num_heads: usize,
    num_rotated: usize,
    head_dim: usize,
    rotary_dim: usize,
    interleaved: bool,
    magnitude_bits: u32,
}

impl From<&RopeSpec> for Blueprint {
    fn from(spec: &RopeSpec) -> Self {
        Self {
            num_heads: spec.num_heads,
            num_rotated: spec.num_rotated,
            head_dim: spec.head_dim,
            rotary_dim: spec.rotary_dim,
            interleaved: spec.pairing == RopePairing::Interleaved,
            magnitude_bits: spec.magnitude.to_bits(),
        }
    }
}

/// Rotates the leading heads of each row, in place where `x` is ours alone.
pub(crate) fn rope(
    x: CubeTensor,
    inv_freq: CubeTensor,
    step: &CubeTensor,
    spec: &RopeSpec,
) -> CubeTensor {
    let x = writable(x);
    let inv_freq = contiguous(inv_freq);
    let num_tokens = x.meta.shape()[0];
    let num_pairs = num_tokens * spec.num_rotated * spec.rotary_dim / 2;
    let (count, dim) = elementwise(x.client.properties(), num_pairs);
    // SAFETY: the tensor function checked the shapes; the kernel checks the token.
    unsafe {
        rope_kernel::launch_unchecked(
            &x.client,
            count,
            dim,
            buffer(&x),
            buffer(&inv_freq),
            buffer(step),
            Blueprint::from(spec),
        );
    }
    x
}

/// The kernels that [`rope`] launches.
pub(crate) fn kernels(target: &CompileTarget, spec: &RopeSpec) -> Vec<Box<dyn CubeKernel>> {
    let (count, dim) = elementwise(&target.properties, 1);
    vec![Box::new(rope_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        count,
        dim,
        target.buffer(1),
        target.buffer(1),
        target.buffer(1),
        Blueprint::from(spec),
    ))]
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn rope_kernel(x: &mut [f32], inv_freq: &[f32], step: &[u32], #[comptime] blueprint: Blueprint) {
    let half = comptime!(blueprint.rotary_dim / 2);
    let head_dim = comptime!(blueprint.head_dim);
    let pair = ABSOLUTE_POS % half;
    let head = ABSOLUTE_POS / half % comptime!(blueprint.num_rotated);
    let token = ABSOLUTE_POS / comptime!(half * blueprint.num_rotated);
    if token < step[header::NUM_TOKENS] as usize {
        let position = step[step[header::POSITIONS] as usize + token];
        let turn = sin_cos(turns(position, inv_freq[pair]));
        let magnitude = comptime!(f32::from_bits(blueprint.magnitude_bits));
        let sin = turn.sin * magnitude;
        let cos = turn.cos * magnitude;

        let start = (token * comptime!(blueprint.num_heads) + head) * head_dim;
        let mut first = start + pair;
        let mut second = start + pair + half;
        if comptime!(blueprint.interleaved) {
            first = start + 2 * pair;
            second = first + 1;
        }
        let a = x[first];
        let b = x[second];
        x[first] = a * cos - b * sin;
        x[second] = b * cos + a * sin;
    }
}
