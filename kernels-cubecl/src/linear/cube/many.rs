//! The product for many rows of `x`: a tile of outputs per cube, weights unpacked into shared
//! memory once per tile.
//!
//! ```text
//! cube:    4 U rows of the matrix  x  8 V rows of x, one group of K at a time
//! unit:    rows u, u + U, ..  x  rows of x v, v + V, .. : 32 sums in registers
//! shared:  quads (4 neighbouring values of K): quad q of row r lies at r * 8 + (q ^ (r % 8)),
//!          so that neighbouring rows lie in different banks
//! ```
//!
//! 16 KB of shared memory at U = 16, V = 8.

use super::{LinearShape, Quad, add_product, read_quad, write_output};
use crate::packed::device::GROUP_LEN;
use crate::packed::device::read::{RUNS_PER_GROUP, group_scale, packed_row, read_run};
use crate::packed::format::WeightFormat;
use cubecl::prelude::*;

/// Rows of the matrix per unit.
const UNIT_OUTPUTS: usize = 4;
/// Rows of `x` per unit.
const UNIT_TOKENS: usize = 8;
/// Quads in a group.
const QUADS: usize = GROUP_LEN / 4;

/// Units of a full cube along the rows of the matrix.
const FULL_OUTPUTS: usize = 16;
/// Units of a full cube along the rows of `x`.
const FULL_TOKENS: usize = 8;

const _: () = assert!(
    (UNIT_TOKENS * QUADS).is_multiple_of(FULL_OUTPUTS)
        && (UNIT_OUTPUTS * RUNS_PER_GROUP).is_multiple_of(FULL_TOKENS),
    "units stage equal shares of the tiles"
);

/// How `linear_many` is specialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ManyBlueprint {
    /// Format of the weights.
    pub(crate) format: WeightFormat,
    /// Units along the rows of the matrix.
    pub(crate) units_outputs: usize,
    /// Units along the rows of `x`.
    pub(crate) units_tokens: usize,
}

impl ManyBlueprint {
    /// With a full cube or a single unit.
    pub(super) fn new(format: WeightFormat, full: bool) -> Self {
        let (units_outputs, units_tokens) = if full {
            (FULL_OUTPUTS, FULL_TOKENS)
        } else {
            (1, 1)
        };
        Self {
            format,
            units_outputs,
            units_tokens,
        }
    }

    /// Units of a cube.
    pub(crate) const fn units(&self) -> usize {
        self.units_outputs * self.units_tokens
    }

    /// Rows of the matrix per cube.
    pub(crate) const fn tile_outputs(&self) -> usize {
        self.units_outputs * UNIT_OUTPUTS
    }

    /// Rows of `x` per cube.
    pub(crate) const fn tile_tokens(&self) -> usize {
        self.units_tokens * UNIT_TOKENS
    }
}

/// See `super::launch`.
#[cube(launch_unchecked, create_dummy_kernel)]
pub(crate) fn linear_many(
    x: &[f32],
    weights: &[u32],
    bias: ComptimeOption<&[f32]>,
    output: &mut [f32],
    shape: LinearShape,
    #[comptime] blueprint: ManyBlueprint,
) {
    let output_tiles = shape.num_rows.div_ceil(comptime!(blueprint.tile_outputs()));
    let row_start = CUBE_POS % output_tiles * comptime!(blueprint.tile_outputs());
    let token_start = CUBE_POS / output_tiles * comptime!(blueprint.tile_tokens());
    let groups = shape.d_input.div_ceil(GROUP_LEN);
    let u = UNIT_POS as usize % comptime!(blueprint.units_outputs);
    let v = UNIT_POS as usize / comptime!(blueprint.units_outputs);

    let mut x_tile = Shared::<[Quad]>::new_slice(comptime!(blueprint.tile_tokens() * QUADS));
    let mut w_tile = Shared::<[Quad]>::new_slice(comptime!(blueprint.tile_outputs() * QUADS));
    let mut sums = Array::<f32>::new(comptime!(UNIT_TOKENS * UNIT_OUTPUTS));
    #[unroll]
    for i in 0..comptime!(UNIT_TOKENS * UNIT_OUTPUTS) {
        sums[i] = 0.0f32;
    }
    for group in 0..groups {
        stage_x(x, &shape, &mut x_tile, token_start, group, blueprint);
        stage_weights(weights, &shape, &mut w_tile, row_start, group, blueprint);
        sync_cube();
        for quad in 0..QUADS {
            let mut w = Array::<Quad>::new(UNIT_OUTPUTS);
            #[unroll]
            for j in 0..UNIT_OUTPUTS {
                w[j] = w_tile[place(u + comptime!(j * blueprint.units_outputs), quad)];
            }
            #[unroll]
            for i in 0..UNIT_TOKENS {
                let values = x_tile[place(v + comptime!(i * blueprint.units_tokens), quad)];
                #[unroll]
                for j in 0..UNIT_OUTPUTS {
                    let at = comptime!(i * UNIT_OUTPUTS + j);
                    sums[at] = add_product(sums[at], values, w[j]);
                }
            }
        }
        sync_cube();
    }
    #[unroll]
    for i in 0..UNIT_TOKENS {
        #[unroll]
        for j in 0..UNIT_OUTPUTS {
            let token = token_start + v + comptime!(i * blueprint.units_tokens);
            let row = row_start + u + comptime!(j * blueprint.units_outputs);
            let sum = sums[comptime!(i * UNIT_OUTPUTS + j)];
            write_output(output, &bias, &shape, token, row, sum);
        }
    }
}

/// Where a quad of a row lies in a tile.
#[cube]
fn place(row: usize, quad: usize) -> usize {
    row * QUADS + (quad ^ (row % QUADS))
}

#[cube]
fn stage_x(
    x: &[f32],
    shape: &LinearShape,
    tile: &mut Shared<[Quad]>,
    token_start: usize,
    group: usize,
    #[comptime] blueprint: ManyBlueprint,
) {
    let units = comptime!(blueprint.units());
    // Unrolled, the units' places differ by constants, and all reads are under way at once.
    #[unroll(units > 1)]
    for k in 0..comptime!(blueprint.tile_tokens() * QUADS / units) {
        let i = UNIT_POS as usize + k * units;
        let row = i / QUADS;
        let quad = i % QUADS;
        tile[place(row, quad)] =
            read_quad(x, shape, token_start + row, group * GROUP_LEN + quad * 4);
    }
}

#[cube]
fn stage_weights(
    weights: &[u32],
    shape: &LinearShape,
    tile: &mut Shared<[Quad]>,
    row_start: usize,
    group: usize,
    #[comptime] blueprint: ManyBlueprint,
) {
    let rows = comptime!(blueprint.tile_outputs());
    let groups = shape.d_input.div_ceil(GROUP_LEN);
    let units = comptime!(blueprint.units());
    #[unroll(units > 1)]
    for k in 0..comptime!(rows * RUNS_PER_GROUP / units) {
        let i = UNIT_POS as usize + k * units;
        // Neighbouring units take neighbouring rows, whose words are neighbours.
        let row = i % rows;
        let run = i / rows;
        // Rows past the last one are never written: any weights will do.
        let clamped = (row_start + row).min(shape.num_rows - 1);
        let packed = packed_row(clamped, groups, blueprint.format);
        let scale = group_scale(weights, &packed, group, blueprint.format);
        let values = read_run(weights, &packed, group, run, &scale, blueprint.format);
        let mut first = Quad::empty();
        let mut second = Quad::empty();
        #[unroll]
        for k in 0..4usize {
            first.insert(k, values[k]);
            second.insert(k, values[4 + k]);
        }
        tile[place(row, 2 * run)] = first;
        tile[place(row, 2 * run + 1)] = second;
    }
}
