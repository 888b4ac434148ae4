//! CubeCL kernel of [`super`]: one unit per value of the output.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`.

use crate::launch::{CompileTarget, buffer, contiguous, elementwise, empty_f32};
use crate::step_inputs::header;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// The rows of `x` whose logits are wanted; rows past their live number are zeros.
pub(crate) fn gather_rows(x: CubeTensor, step: &CubeTensor, num_rows: usize) -> CubeTensor {
    let x = contiguous(x);
    let columns = x.meta.shape()[1];
    let out = empty_f32(&x, [num_rows, columns]);
    let (count, dim) = elementwise(x.client.properties(), num_rows * columns);
    // SAFETY: the tensor function checked the shapes; the kernel checks the row.
    unsafe {
        gather_rows_kernel::launch_unchecked(
            &x.client,
            count,
            dim,
            buffer(&x),
            buffer(step),
            buffer(&out),
            columns,
        );
    }
    out
}

/// The kernels that [`gather_rows`] launches.
pub(crate) fn kernels(target: &CompileTarget, columns: usize) -> Vec<Box<dyn CubeKernel>> {
    let (count, dim) = elementwise(&target.properties, 1);
    vec![Box::new(gather_rows_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        count,
        dim,
        target.buffer(1),
        target.buffer(1),
        target.buffer(1),
        columns,
    ))]
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn gather_rows_kernel(x: &[f32], step: &[u32], out: &mut [f32], #[comptime] columns: usize) {
    if ABSOLUTE_POS < out.len() {
        let row = ABSOLUTE_POS / columns;
        let mut value = 0.0f32;
        if row < step[header::NUM_LOGIT_ROWS] as usize {
            let token = step[step[header::LOGIT_ROWS] as usize + row] as usize;
            let source = token * columns + ABSOLUTE_POS % columns;
            if source < x.len() {
                value = x[source];
            }
        }
        out[ABSOLUTE_POS] = value;
    }
}
