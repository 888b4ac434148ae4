//! `linear` on a CubeCL device: packed weights are unpacked in registers.
//!
//! Two kernels. [`few`] is for up to [`FEW_ROWS_MAX`] rows of `x`, where reading the weights is
//! the cost: each weight is read once for all rows of a tile. [`many`] is for more, where
//! arithmetic is the cost: each weight and each value of `x` is read from shared memory for many
//! sums. Each part of a matrix is a launch of its own that writes its own columns.
//!
//! K is summed in an order that depends on K, the format's group and the kernel alone.
//!
//! Neighbours: [`crate::packed::device`] lays out and reads the weights; [`super::flex`] is the
//! native twin.

pub(crate) mod few;
pub(crate) mod many;

use crate::launch;
use crate::packed::device::ROW_TILE;
use crate::packed::format::WeightFormat;
use crate::spec::{MatrixSpec, PartSpec};
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;
use few::FewBlueprint;
use many::ManyBlueprint;

/// Most rows of `x` for which weights are read once per tile of rows.
pub(crate) const FEW_ROWS_MAX: usize = 32;

/// The numbers of rows a tile of [`few`] is compiled for.
pub(crate) const FEW_TILES: [usize; 3] = [1, 4, 8];

/// A vector of four neighbouring values of K.
type Quad = Vector<f32, Const<4>>;

/// Which kernel a launch uses, and how it is specialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Blueprint {
    /// `few::linear_few`.
    Few(FewBlueprint),
    /// `many::linear_many`.
    Many(ManyBlueprint),
}

impl Blueprint {
    /// The kernel for `num_tokens` rows of `x`.
    pub(crate) fn choose(
        properties: &DeviceProperties,
        format: WeightFormat,
        num_tokens: usize,
    ) -> Self {
        // Below a full cube, units are threads that wait for each other (CubeCL's `cpu` runtime):
        // one unit does it all.
        let full = launch::units_per_cube(properties, few::UNITS) as usize == few::UNITS;
        if num_tokens > FEW_ROWS_MAX {
            return Self::Many(ManyBlueprint::new(format, full));
        }
        let largest = FEW_TILES[FEW_TILES.len() - 1];
        let rows = FEW_TILES
            .into_iter()
            .find(|&rows| rows >= num_tokens)
            .unwrap_or(largest);
        Self::Few(FewBlueprint::new(format, rows, full))
    }
}

/// `x [T, d_input]` times the transpose of the matrix, plus `bias [d_output]`: `[T, d_output]`.
///
/// `weights` are the parts of `matrix` in order, packed by [`crate::packed::device::pack`].
pub(crate) fn launch(
    x: CubeTensor,
    weights: &[CubeTensor],
    bias: Option<&CubeTensor>,
    matrix: &MatrixSpec,
) -> CubeTensor {
    let num_tokens = x.meta.shape()[0];
    let x = launch::contiguous(x);
    let output = launch::empty_f32(&x, [num_tokens, matrix.d_output]);
    for (part, words) in matrix.parts.iter().zip(weights) {
        if part.num_rows > 0 && num_tokens > 0 {
            let blueprint = Blueprint::choose(x.client.properties(), part.format, num_tokens);
            let problem = Problem {
                num_tokens,
                matrix,
                part,
            };
            launch_part(&x, words, bias, &output, &problem, blueprint);
        }
    }
    output
}

struct Problem<'a> {
    num_tokens: usize,
    matrix: &'a MatrixSpec,
    part: &'a PartSpec,
}

fn launch_part(
    x: &CubeTensor,
    words: &CubeTensor,
    bias: Option<&CubeTensor>,
    output: &CubeTensor,
    problem: &Problem<'_>,
    blueprint: Blueprint,
) {
    let Problem {
        num_tokens,
        matrix,
        part,
    } = *problem;
    let shape = LinearShapeLaunch::new(
        num_tokens,
        matrix.d_input,
        part.num_rows,
        part.row_start,
        matrix.d_output,
    );
    let bias = bias.map(launch::buffer).into();
    match blueprint {
        Blueprint::Few(blueprint) => {
            let cubes =
                part.num_rows.div_ceil(blueprint.lanes) * num_tokens.div_ceil(blueprint.rows);
            // SAFETY: `words` holds the part's rows (the tensor function checks its length), the
            // kernel reads rows, tokens and columns below those of `shape` and writes only them.
            unsafe {
                few::linear_few::launch_unchecked(
                    &x.client,
                    launch::cube_count(cubes),
                    CubeDim::new_1d(blueprint.units() as u32),
                    launch::buffer(x),
                    launch::buffer(words),
                    bias,
                    launch::buffer(output),
                    shape,
                    blueprint,
                );
            }
        }
        Blueprint::Many(blueprint) => {
            let cubes = part.num_rows.div_ceil(blueprint.tile_outputs())
                * num_tokens.div_ceil(blueprint.tile_tokens());
            // SAFETY: as above.
            unsafe {
                many::linear_many::launch_unchecked(
                    &x.client,
                    launch::cube_count(cubes),
                    CubeDim::new_1d(blueprint.units() as u32),
                    launch::buffer(x),
                    launch::buffer(words),
                    bias,
                    launch::buffer(output),
                    shape,
                    blueprint,
                );
            }
        }
    }
}

/// Sizes of one part's product.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct LinearShape {
    /// T.
    num_tokens: usize,
    /// K.
    d_input: usize,
    /// Rows in the part.
    num_rows: usize,
    /// First row of the part, which is its first column in the output.
    row_start: usize,
    /// Columns of the output.
    d_output: usize,
}

/// Four values of a row of `x` from column `column`, zeros past its end or past the last token.
#[cube]
fn read_quad(x: &[f32], shape: &LinearShape, token: usize, column: usize) -> Quad {
    let mut quad = Quad::new(0.0f32);
    if token < shape.num_tokens {
        let start = token * shape.d_input + column;
        if column + 4 <= shape.d_input {
            #[unroll]
            for i in 0..4usize {
                quad.insert(i, x[start + i]);
            }
        } else {
            #[unroll]
            for i in 0..4usize {
                if column + i < shape.d_input {
                    quad.insert(i, x[start + i]);
                }
            }
        }
    }
    quad
}

/// `sum` plus the product of two runs of four, in order.
#[cube]
fn add_product(sum: f32, a: Quad, b: Quad) -> f32 {
    let sum = fma(a.extract(0usize), b.extract(0usize), sum);
    let sum = fma(a.extract(1usize), b.extract(1usize), sum);
    let sum = fma(a.extract(2usize), b.extract(2usize), sum);
    fma(a.extract(3usize), b.extract(3usize), sum)
}

/// Writes one output, if it is one.
#[cube]
fn write_output(
    output: &mut [f32],
    bias: &ComptimeOption<&[f32]>,
    shape: &LinearShape,
    token: usize,
    row: usize,
    sum: f32,
) {
    if token < shape.num_tokens && row < shape.num_rows {
        let column = shape.row_start + row;
        let mut value = sum;
        #[comptime]
        if let ComptimeOption::Some(bias) = bias {
            value += bias[column];
        }
        output[token * shape.d_output + column] = value;
    }
}

const _: () = assert!(
    few::LANES == ROW_TILE,
    "neighbouring units read neighbouring words"
);

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
