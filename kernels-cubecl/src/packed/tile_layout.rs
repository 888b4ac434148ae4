//! Where codes and scales are in the tiles of a natively packed matrix: see the picture in
//! [`super::native`].

use bytemuck::{Pod, Zeroable};

use super::dequantize::RUN_LEN;
use super::format::WeightFormat;

/// Rows of output in a tile.
pub const TILE_ROWS: usize = 16;
/// Bytes of a vector: 4 for each row of a tile.
pub const VECTOR_BYTES: usize = 4 * TILE_ROWS;
/// Runs in a block of 256 values.
pub(super) const RUNS_PER_SUPER_BLOCK: usize = 8;

/// 64 bytes, aligned to 64: what packed weights are allocated in.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Line(pub [u8; 64]);

/// Where things are in the tiles of one matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileLayout {
    /// Format of the rows.
    pub format: WeightFormat,
    /// Runs in a row.
    pub num_runs: usize,
    /// Bytes of codes of one run.
    pub run_bytes: usize,
    /// Where the scales start within a tile.
    pub scales_start: usize,
    /// Bytes of scales per run (a 256-block's own scales spread over its runs).
    pub scale_bytes: usize,
    /// Bytes of a tile.
    pub tile_bytes: usize,
}

impl TileLayout {
    /// The layout for rows of `d_input` values.
    pub fn new(format: WeightFormat, d_input: usize) -> Self {
        let num_runs = d_input.div_ceil(RUN_LEN);
        let run_bytes = code_bytes(format);
        let scales_start = num_runs * run_bytes;
        let scale_bytes = match format {
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => 0,
            WeightFormat::Q4_0 | WeightFormat::Q5_0 | WeightFormat::Q8_0 => 2 * TILE_ROWS,
            WeightFormat::Q4_1 | WeightFormat::Q5_1 => 4 * TILE_ROWS,
            WeightFormat::Q4K => Q4_K_SCALE_BYTES / RUNS_PER_SUPER_BLOCK,
            WeightFormat::Q6K => Q6_K_SCALE_BYTES / RUNS_PER_SUPER_BLOCK,
        };
        let tile_bytes =
            scales_start + (num_runs * scale_bytes).next_multiple_of(size_of::<Line>());
        Self {
            format,
            num_runs,
            run_bytes,
            scales_start,
            scale_bytes,
            tile_bytes,
        }
    }

    /// Bytes of a matrix of `num_rows` rows.
    pub fn matrix_bytes(&self, num_rows: usize) -> usize {
        num_rows.div_ceil(TILE_ROWS) * self.tile_bytes
    }
}

/// Bytes of codes of one run of a tile.
pub const fn code_bytes(format: WeightFormat) -> usize {
    match format {
        WeightFormat::F32 => RUN_LEN * TILE_ROWS * 4,
        WeightFormat::F16 | WeightFormat::Bf16 => RUN_LEN * TILE_ROWS * 2,
        WeightFormat::Q4_0 | WeightFormat::Q4_1 | WeightFormat::Q4K => 4 * VECTOR_BYTES,
        WeightFormat::Q5_0 | WeightFormat::Q5_1 => 5 * VECTOR_BYTES,
        WeightFormat::Q6K => 6 * VECTOR_BYTES,
        WeightFormat::Q8_0 => 8 * VECTOR_BYTES,
    }
}

/// Bytes of scales of 8 runs of Q4_K.
pub const Q4_K_SCALE_BYTES: usize = 2 * 2 * TILE_ROWS + RUNS_PER_SUPER_BLOCK * 2 * TILE_ROWS;
/// Bytes of scales of 8 runs of Q6_K.
pub const Q6_K_SCALE_BYTES: usize = 2 * TILE_ROWS + RUNS_PER_SUPER_BLOCK * 2 * TILE_ROWS;
