//! A range of tiles times all rows of activations: the loops around the micro-kernels.

#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "every line is an operation on vectors or pointers"
)]

use std::marker::PhantomData;
use std::ops::Range;

use super::lanes::{Job, Lanes};
use super::micro::{Product, Tile};
use crate::packed::native::{TILE_ROWS, TileLayout};

/// Bytes of activations that stay in a core's cache while tiles pass by.
const INPUT_BYTES: usize = 256 * 1024;

/// Some tiles of one part of a matrix.
#[derive(Clone)]
pub(super) struct Tiles<'a> {
    /// The part.
    pub(super) weights: &'a [u8],
    /// Its layout.
    pub(super) layout: TileLayout,
    /// Rows in the part.
    pub(super) part_rows: usize,
    /// Which tiles of the part.
    pub(super) range: Range<usize>,
    /// `[num_rows, num_runs]` inputs of the product.
    pub(super) input: *const u8,
    /// Rows of activations.
    pub(super) num_rows: usize,
    /// For each row of the part.
    pub(super) bias: Option<&'a [f32]>,
    /// Where row 0 of the part goes in the first row of the output.
    pub(super) out: *mut f32,
    /// Values from one row of the output to the next.
    pub(super) out_stride: usize,
}

/// Multiplies [`Tiles`] as `P` says.
pub(super) struct Multiply<'a, P>(pub(super) &'a Tiles<'a>, pub(super) PhantomData<P>);

impl<P: Product> Job for Multiply<'_, P> {
    /// # Safety
    ///
    /// `input` must hold `num_rows * num_runs` inputs of `P`, whose format is the layout's, and
    /// nobody else may touch the columns of `out` that belong to the tiles.
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let work = self.0;
        let row_bytes = work.layout.num_runs * size_of::<P::Input>();
        let rows_per_pass = (INPUT_BYTES / row_bytes.max(1)).max(TILE_ROWS);
        let mut start = 0;
        while start < work.num_rows {
            let end = (start + rows_per_pass).min(work.num_rows);
            for tile in work.range.clone() {
                let rows_left = work.part_rows - tile * TILE_ROWS;
                for lane in (0..TILE_ROWS.min(rows_left)).step_by(L::LANES) {
                    let column = Column::<L>::new(work, tile, lane);
                    multiply_rows::<L, P>(work, &column, start..end);
                }
            }
            start = end;
        }
    }
}

/// The rows of a tile that one vector holds; to the output they are neighbouring columns.
struct Column<L: Lanes> {
    tile: Tile,
    lane: usize,
    bias: L::F,
    out: *mut f32,
    /// Rows that exist.
    width: usize,
}

impl<L: Lanes> Column<L> {
    #[inline(always)]
    unsafe fn new(work: &Tiles<'_>, tile: usize, lane: usize) -> Self {
        let first = tile * TILE_ROWS + lane;
        let width = (work.part_rows - first).min(L::LANES);
        let mut bias = [0.0; TILE_ROWS];
        if let Some(values) = work.bias {
            bias[..width].copy_from_slice(&values[first..first + width]);
        }
        let codes = work.weights[tile * work.layout.tile_bytes..].as_ptr();
        Self {
            tile: Tile::new(codes, work.layout),
            lane,
            bias: L::load_f32(bias.as_ptr().cast()),
            out: work.out.add(first),
            width,
        }
    }

    /// Writes the sums of one row.
    #[inline(always)]
    unsafe fn store(&self, sum: L::F, out: *mut f32) {
        let sum = L::add(sum, self.bias);
        if self.width == L::LANES {
            L::store(sum, out);
        } else {
            let mut values = [0.0; TILE_ROWS];
            L::store(sum, values.as_mut_ptr());
            out.copy_from_nonoverlapping(values.as_ptr(), self.width);
        }
    }
}

#[inline(always)]
unsafe fn multiply_rows<L: Lanes, P: Product>(
    work: &Tiles<'_>,
    column: &Column<L>,
    rows: Range<usize>,
) {
    let mut row = rows.start;
    while row < rows.end {
        let left = (rows.end - row).min(L::ROWS_MAX);
        let input = work
            .input
            .cast::<P::Input>()
            .add(row * work.layout.num_runs);
        let out = column.out.add(row * work.out_stride);
        match left {
            8 => group::<L, P, 8>(work, column, input, out),
            7 => group::<L, P, 7>(work, column, input, out),
            6 => group::<L, P, 6>(work, column, input, out),
            5 => group::<L, P, 5>(work, column, input, out),
            4 => group::<L, P, 4>(work, column, input, out),
            3 => group::<L, P, 3>(work, column, input, out),
            2 => group::<L, P, 2>(work, column, input, out),
            _ => group::<L, P, 1>(work, column, input, out),
        }
        row += left;
    }
}

#[inline(always)]
unsafe fn group<L: Lanes, P: Product, const M: usize>(
    work: &Tiles<'_>,
    column: &Column<L>,
    input: *const P::Input,
    out: *mut f32,
) {
    if M <= L::ROWS_MAX {
        let sums = P::rows::<L, M>(column.tile, column.lane, input);
        for (row, &sum) in sums.iter().enumerate() {
            column.store(sum, out.add(row * work.out_stride));
        }
    }
}
