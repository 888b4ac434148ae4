//! The product for few rows of `x`: every weight is read once per tile of rows.
//!
//! ```text
//! cube:  LANES rows of the matrix  x  `rows` rows of x
//! unit:  one row of the matrix, every SLICES-th group of K, all rows of x
//! x:     staged in shared memory, a chunk of K at a time; all lanes read the same address
//! ```
//!
//! In the end the slices' sums are added in order through shared memory.

use super::{LinearShape, Quad, add_product, read_quad, write_output};
use crate::packed::device::GROUP_LEN;
use crate::packed::device::read::{RUNS_PER_GROUP, group_scale, packed_row, read_run};
use crate::packed::format::WeightFormat;
use cubecl::prelude::*;

/// Rows of the matrix per cube.
pub(crate) const LANES: usize = 32;
/// Parts into which K is cut.
pub(crate) const SLICES: usize = 4;
/// Units of a full cube.
pub(crate) const UNITS: usize = LANES * SLICES;

/// Groups of `x` staged at once, for one row: 8 KB.
const STAGED_GROUPS: usize = 64;
/// Values that wait in shared memory for the end.
const PLACE_LEN: usize = 8;
/// Quads in a group.
const QUADS: usize = GROUP_LEN / 4;

/// How `linear_few` is specialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FewBlueprint {
    /// Format of the weights.
    pub(crate) format: WeightFormat,
    /// Rows of `x` per cube.
    pub(crate) rows: usize,
    /// Rows of the matrix per cube.
    pub(crate) lanes: usize,
    /// Parts into which K is cut.
    pub(crate) slices: usize,
}

impl FewBlueprint {
    /// For `rows` rows of `x`, with a full cube or a single unit.
    pub(super) fn new(format: WeightFormat, rows: usize, full: bool) -> Self {
        let (lanes, slices) = if full { (LANES, SLICES) } else { (1, 1) };
        Self {
            format,
            rows,
            lanes,
            slices,
        }
    }

    /// Units of a cube.
    pub(crate) const fn units(&self) -> usize {
        self.lanes * self.slices
    }

    const fn chunk_groups(&self) -> usize {
        STAGED_GROUPS / self.rows
    }

    /// Rows whose sums are added at once.
    fn rows_per_pass(&self) -> usize {
        self.rows.min(self.slices).min(4)
    }
}

/// See `super::launch`.
#[cube(launch_unchecked, create_dummy_kernel)]
pub(crate) fn linear_few(
    x: &[f32],
    weights: &[u32],
    bias: ComptimeOption<&[f32]>,
    output: &mut [f32],
    shape: LinearShape,
    #[comptime] blueprint: FewBlueprint,
) {
    let rows = comptime!(blueprint.rows);
    let lane = UNIT_POS as usize % comptime!(blueprint.lanes);
    let token_tiles = shape.num_tokens.div_ceil(rows);
    // Cubes that read the same weights are neighbours, so that the second finds them in a cache.
    let row = CUBE_POS / token_tiles * comptime!(blueprint.lanes) + lane;
    let token_start = CUBE_POS % token_tiles * rows;
    let groups = shape.d_input.div_ceil(GROUP_LEN);

    // What the loop over K does not need waits in shared memory: kept in registers, `ptxas` would
    // spill it.
    let mut place = Shared::<[u32]>::new_slice(PLACE_LEN);
    if UNIT_POS == 0 {
        place[0] = token_start as u32;
        place[1] = (row - lane) as u32;
        place[2] = shape.num_tokens as u32;
        place[3] = shape.num_rows as u32;
        place[4] = shape.row_start as u32;
        place[5] = shape.d_output as u32;
        place[6] = shape.d_input as u32;
        place[7] = 0u32;
    }
    let mut slices = Shared::<[u32]>::new_slice(comptime!(blueprint.units()));
    slices[UNIT_POS as usize] = (UNIT_POS as usize / comptime!(blueprint.lanes)) as u32;
    sync_cube();
    // Units past the last row work on the last: they must reach the barriers.
    let packed = packed_row(row.min(shape.num_rows - 1), groups, blueprint.format);
    let mut sums = Array::<f32>::new(rows);
    #[unroll]
    for r in 0..rows {
        sums[r] = 0.0f32;
    }
    let mut tile = Shared::<[Quad]>::new_slice(comptime!(STAGED_GROUPS * QUADS));
    let chunk_groups = comptime!(blueprint.chunk_groups());
    let mut chunk = 0usize;
    while chunk < groups {
        stage(x, &place, &mut tile, blueprint);
        sync_cube();
        if UNIT_POS == 0 {
            // For the next stage.
            place[7] = (chunk + chunk_groups) as u32;
        }
        // The loop counts quads of the tile, and the group follows from them: one counter less.
        let end = (groups - chunk).min(chunk_groups) * QUADS;
        let mut start = slices[UNIT_POS as usize] as usize * QUADS;
        while start < end {
            let group = chunk + start / QUADS;
            let scale = group_scale(weights, &packed, group, blueprint.format);
            #[unroll]
            for run in 0..RUNS_PER_GROUP {
                let values = read_run(weights, &packed, group, run, &scale, blueprint.format);
                let mut first = Quad::empty();
                let mut second = Quad::empty();
                #[unroll]
                for i in 0..4usize {
                    first.insert(i, values[i]);
                    second.insert(i, values[4 + i]);
                }
                let at = start + comptime!(2 * run);
                #[unroll]
                for r in 0..rows {
                    let at = at + comptime!(r * chunk_groups * QUADS);
                    let sum = add_product(sums[r], tile[at], first);
                    sums[r] = add_product(sum, tile[at + 1], second);
                }
            }
            start += comptime!(blueprint.slices * QUADS);
        }
        sync_cube();
        chunk += chunk_groups;
    }
    finish(output, &bias, &place, sums, blueprint);
}

/// The shape, from shared memory.
#[cube]
fn shape_at(place: &Shared<[u32]>) -> LinearShape {
    LinearShape {
        num_tokens: place[2] as usize,
        d_input: place[6] as usize,
        num_rows: place[3] as usize,
        row_start: place[4] as usize,
        d_output: place[5] as usize,
    }
}

/// Brings a chunk of the tile's rows of `x` into shared memory.
#[cube]
fn stage(
    x: &[f32],
    place: &Shared<[u32]>,
    tile: &mut Shared<[Quad]>,
    #[comptime] blueprint: FewBlueprint,
) {
    let row_quads = comptime!(blueprint.chunk_groups() * QUADS);
    let shape = shape_at(place);
    let token_start = place[0] as usize;
    let chunk = place[7] as usize;
    let mut i = UNIT_POS as usize;
    while i < comptime!(blueprint.rows * row_quads) {
        let column = chunk * GROUP_LEN + i % row_quads * 4;
        tile[i] = read_quad(x, &shape, token_start + i / row_quads, column);
        i += comptime!(blueprint.units());
    }
}

/// Adds the slices' sums and writes the tile.
#[cube]
fn finish(
    output: &mut [f32],
    bias: &ComptimeOption<&[f32]>,
    place: &Shared<[u32]>,
    sums: Array<f32>,
    #[comptime] blueprint: FewBlueprint,
) {
    let rows = comptime!(blueprint.rows);
    let slices = comptime!(blueprint.slices);
    let shape = shape_at(place);
    let token_start = place[0] as usize;
    let row = place[1] as usize + UNIT_POS as usize % comptime!(blueprint.lanes);
    if comptime!(slices == 1) {
        #[unroll]
        for r in 0..rows {
            write_output(output, bias, &shape, token_start + r, row, sums[r]);
        }
    } else {
        let lanes = comptime!(blueprint.lanes);
        let pass_rows = comptime!(blueprint.rows_per_pass());
        let lane = UNIT_POS as usize % lanes;
        let slice = UNIT_POS as usize / lanes;
        let mut partial = Shared::<[f32]>::new_slice(comptime!(slices * pass_rows * lanes));
        #[unroll]
        for pass in 0..comptime!(rows / pass_rows) {
            #[unroll]
            for r in 0..pass_rows {
                partial[(slice * pass_rows + r) * lanes + lane] =
                    sums[comptime!(pass * pass_rows + r)];
            }
            sync_cube();
            if slice < pass_rows {
                let mut sum = partial[slice * lanes + lane];
                #[unroll]
                for s in 1..slices {
                    sum += partial[(s * pass_rows + slice) * lanes + lane];
                }
                let token = token_start + comptime!(pass * pass_rows) + slice;
                write_output(output, bias, &shape, token, row, sum);
            }
            sync_cube();
        }
    }
}
