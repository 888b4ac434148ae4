//! Weights as the native kernels read them: 16 rows of output side by side in the 16 lanes of a
//! register.
//!
//! ```text
//! matrix  | tile (rows 0..16) | tile (rows 16..32) | ..          rows past the last are zero
//! tile    | codes of runs 0, 1, .. | scales of runs 0, 1, .. |   each padded to 64 bytes
//! vector  64 bytes: lane = row 0..16, byte of the lane = value k..k+4
//!
//! codes of a run of 32 values (k = 4 z + byte of the lane):
//!   Q8_0               8 vectors, z = 0..8
//!   Q4_0, Q4_1, Q4_K   4 vectors; low halves of the bytes z = 0..4, high halves z = 4..8
//!   Q5_0, Q5_1         4 vectors as above, then one: bit z of a byte is the fifth bit
//!   Q6_K               4 vectors as above, then two: bits 2 z of the first are the high bits of
//!                      z = 0..4, those of the second of z = 4..8
//!   F32, F16, BF16     32 times 16 values; a tail shorter than 32 is padded with zeros
//! scales (f16[16] and the like: one per row of the tile):
//!   Q4_0, Q5_0, Q8_0   per run: f16[16] scale
//!   Q4_1, Q5_1         per run: f16[16] scale, f16[16] min
//!   Q4_K               per 8 runs: f16[16] scale of scales, f16[16] scale of minima,
//!                      then per run u8[16] scale, u8[16] min
//!   Q6_K               per 8 runs: f16[16] scale of scales, then per 16 values i8[16] scale
//! ```
//!
//! Codes are unsigned ([`Run::offset`] is still to be taken off). A matrix takes the bytes it has
//! in the file, plus padding. Neighbours: made at load from file bytes with [`pack`]; read by
//! [`crate::linear::flex`] and, a row at a time, by [`crate::embed::flex`].

use bytemuck::Zeroable;
use half::{bf16, f16};
use thiserror::Error;

use super::dequantize::{NO_MIN, Q6_K_SCALES, Q6_K_SUPER_SCALE, RUN_LEN, Run, q4_k_scale_min};
use super::format::WeightFormat;
use super::tile_layout::RUNS_PER_SUPER_BLOCK;
pub use super::tile_layout::{
    Line, Q4_K_SCALE_BYTES, Q6_K_SCALE_BYTES, TILE_ROWS, TileLayout, VECTOR_BYTES, code_bytes,
};
use crate::threads::Threads;

/// A matrix that cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PackError {
    /// A row ends inside a block.
    #[error("rows of {d_input} values do not divide into {format} blocks of {block_len}")]
    RowLength {
        /// Format of the rows.
        format: WeightFormat,
        /// Values in a row.
        d_input: usize,
        /// Values in a block.
        block_len: usize,
    },
    /// The file's bytes are not what the shape takes.
    #[error("a {format} matrix [{num_rows}, {d_input}] takes {expected} bytes, found {found}")]
    Length {
        /// Format of the rows.
        format: WeightFormat,
        /// Rows.
        num_rows: usize,
        /// Values in a row.
        d_input: usize,
        /// Bytes the shape takes.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
}

/// Lays a matrix `[num_rows, d_input]` in file layout out for the native kernels.
pub fn pack(
    format: WeightFormat,
    d_input: usize,
    num_rows: usize,
    file_bytes: &[u8],
    threads: &Threads,
) -> Result<Vec<Line>, PackError> {
    let row_bytes = format.row_bytes(d_input).ok_or(PackError::RowLength {
        format,
        d_input,
        block_len: format.block_len(),
    })?;
    let (expected, found) = (num_rows * row_bytes, file_bytes.len());
    if expected != found {
        return Err(PackError::Length {
            format,
            num_rows,
            d_input,
            expected,
            found,
        });
    }
    let layout = TileLayout::new(format, d_input);
    let lines_per_tile = layout.tile_bytes / size_of::<Line>();
    let mut lines = vec![Line::zeroed(); layout.matrix_bytes(num_rows) / size_of::<Line>()];
    if row_bytes == 0 {
        return Ok(lines);
    }
    threads.for_each_chunk(&mut lines, lines_per_tile, |tile, lines| {
        let tile_bytes: &mut [u8] = bytemuck::cast_slice_mut(lines);
        let rows = file_bytes
            .chunks_exact(row_bytes)
            .skip(tile * TILE_ROWS)
            .take(TILE_ROWS);
        for (lane, row) in rows.enumerate() {
            pack_row(&layout, row, lane, tile_bytes);
        }
    });
    Ok(lines)
}

/// Writes one row into lane `lane` of a tile.
fn pack_row(layout: &TileLayout, row: &[u8], lane: usize, tile: &mut [u8]) {
    if !layout.format.is_quantized() {
        let width = layout.format.block_bytes();
        for (k, value) in row.chunks_exact(width).enumerate() {
            let at = (k * TILE_ROWS + lane) * width;
            tile[at..at + width].copy_from_slice(value);
        }
        return;
    }
    let (codes, scales) = tile.split_at_mut(layout.scales_start);
    for (index, codes) in codes.chunks_exact_mut(layout.run_bytes).enumerate() {
        let run = Run::read(layout.format, row, index);
        pack_codes(layout.format, &run.codes, lane, codes);
        pack_scales(layout.format, row, index, lane, scales);
    }
}

/// The byte of vector `z % vectors` that holds value `k` of row `lane`.
const fn byte_of(z: usize, lane: usize, k: usize) -> usize {
    z * VECTOR_BYTES + lane * 4 + k % 4
}

fn pack_codes(format: WeightFormat, codes: &[u8; RUN_LEN], lane: usize, out: &mut [u8]) {
    for (k, &code) in codes.iter().enumerate() {
        let z = k / 4;
        if format == WeightFormat::Q8_0 {
            out[byte_of(z, lane, k)] = code;
            continue;
        }
        out[byte_of(z % 4, lane, k)] |= (code & 15) << (z / 4 * 4);
        match format {
            WeightFormat::Q5_0 | WeightFormat::Q5_1 => out[byte_of(4, lane, k)] |= (code >> 4) << z,
            WeightFormat::Q6K => out[byte_of(4 + z / 4, lane, k)] |= (code >> 4) << (z % 4 * 2),
            _ => {}
        }
    }
}

fn unpack_codes(format: WeightFormat, lane: usize, bytes: &[u8]) -> [u8; RUN_LEN] {
    std::array::from_fn(|k| {
        let z = k / 4;
        if format == WeightFormat::Q8_0 {
            return bytes[byte_of(z, lane, k)];
        }
        let low = bytes[byte_of(z % 4, lane, k)] >> (z / 4 * 4) & 15;
        let high = match format {
            WeightFormat::Q5_0 | WeightFormat::Q5_1 => bytes[byte_of(4, lane, k)] >> z & 1,
            WeightFormat::Q6K => bytes[byte_of(4 + z / 4, lane, k)] >> (z % 4 * 2) & 3,
            _ => 0,
        };
        low | high << 4
    })
}

/// Writes the scales of run `index`, and with the first run of a block of 256 those of the block.
fn pack_scales(format: WeightFormat, row: &[u8], index: usize, lane: usize, out: &mut [u8]) {
    let runs_per_block = format.block_len() / RUN_LEN;
    let block = &row[index / runs_per_block * format.block_bytes()..];
    let (super_block, group) = (index / RUNS_PER_SUPER_BLOCK, index % RUNS_PER_SUPER_BLOCK);
    match format {
        WeightFormat::Q4_1 | WeightFormat::Q5_1 => {
            put_f16(out, index * 64, lane, &block[0..2]);
            put_f16(out, index * 64 + 32, lane, &block[2..4]);
        }
        WeightFormat::Q4K => {
            let start = super_block * Q4_K_SCALE_BYTES;
            put_f16(out, start, lane, &block[0..2]);
            put_f16(out, start + 32, lane, &block[2..4]);
            let (scale, min) = q4_k_scale_min(block, group);
            out[start + 64 + group * 32 + lane] = scale;
            out[start + 64 + group * 32 + 16 + lane] = min;
        }
        WeightFormat::Q6K => {
            let start = super_block * Q6_K_SCALE_BYTES;
            put_f16(out, start, lane, &block[Q6_K_SUPER_SCALE..]);
            for half in 0..2 {
                out[start + 32 + group * 32 + half * 16 + lane] =
                    block[Q6_K_SCALES + group * 2 + half];
            }
        }
        _ => put_f16(out, index * 32, lane, &block[0..2]),
    }
}

fn put_f16(out: &mut [u8], start: usize, lane: usize, value: &[u8]) {
    out[start + lane * 2..start + lane * 2 + 2].copy_from_slice(&value[..2]);
}

fn get_f16(bytes: &[u8], start: usize, lane: usize) -> f32 {
    f16::from_le_bytes([bytes[start + lane * 2], bytes[start + lane * 2 + 1]]).to_f32()
}

/// Reads run `index` of row `lane` of a tile back.
fn unpack_run(layout: &TileLayout, tile: &[u8], index: usize, lane: usize) -> Run {
    let (codes, scales) = tile.split_at(layout.scales_start);
    let codes = &codes[index * layout.run_bytes..];
    let (super_block, group) = (index / RUNS_PER_SUPER_BLOCK, index % RUNS_PER_SUPER_BLOCK);
    let offset = code_offset(layout.format);
    let (scale, min) = match layout.format {
        WeightFormat::Q4_1 | WeightFormat::Q5_1 => {
            let scale = get_f16(scales, index * 64, lane);
            ([scale; 2], get_f16(scales, index * 64 + 32, lane))
        }
        WeightFormat::Q4K => {
            let block = &scales[super_block * Q4_K_SCALE_BYTES..];
            let group = &block[64 + group * 32 + lane..];
            let scale = get_f16(block, 0, lane) * f32::from(group[0]);
            (
                [scale; 2],
                -(get_f16(block, 32, lane) * f32::from(group[16])),
            )
        }
        WeightFormat::Q6K => {
            let block = &scales[super_block * Q6_K_SCALE_BYTES..];
            let group = &block[32 + group * 32 + lane..];
            let scale = |half: usize| get_f16(block, 0, lane) * f32::from(group[half * 16] as i8);
            ([scale(0), scale(1)], NO_MIN)
        }
        _ => ([get_f16(scales, index * 32, lane); 2], NO_MIN),
    };
    Run {
        codes: unpack_codes(layout.format, lane, codes),
        offset,
        scales: scale,
        min,
    }
}

/// What is to be taken from a code to make it signed.
pub const fn code_offset(format: WeightFormat) -> u8 {
    match format {
        WeightFormat::Q4_0 => 8,
        WeightFormat::Q5_0 => 16,
        WeightFormat::Q8_0 => 128,
        WeightFormat::Q6K => 32,
        _ => 0,
    }
}

/// Decodes row `row` of packed weights: bit for bit what
/// [`dequantize_row`](super::dequantize::dequantize_row) gives for the same row in file layout.
pub fn unpack_row(layout: &TileLayout, packed: &[u8], row: usize, out: &mut [f32]) {
    let (tile, lane) = (row / TILE_ROWS, row % TILE_ROWS);
    let tile = &packed[tile * layout.tile_bytes..(tile + 1) * layout.tile_bytes];
    let value_at = |k: usize, width| &tile[(k * TILE_ROWS + lane) * width..];
    match layout.format {
        WeightFormat::F32 => {
            for (k, value) in out.iter_mut().enumerate() {
                *value = bytemuck::pod_read_unaligned(&value_at(k, 4)[..4]);
            }
        }
        WeightFormat::F16 => {
            for (k, value) in out.iter_mut().enumerate() {
                *value = bytemuck::pod_read_unaligned::<f16>(&value_at(k, 2)[..2]).to_f32();
            }
        }
        WeightFormat::Bf16 => {
            for (k, value) in out.iter_mut().enumerate() {
                *value = bytemuck::pod_read_unaligned::<bf16>(&value_at(k, 2)[..2]).to_f32();
            }
        }
        _ => {
            for (index, values) in out.chunks_exact_mut(RUN_LEN).enumerate() {
                values.copy_from_slice(&unpack_run(layout, tile, index, lane).values());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::packed::dequantize::dequantize_row;
    use crate::packed::testing::Random;

    #[test]
    fn rows_survive_packing_bit_for_bit() {
        let threads = Threads::new(NonZeroUsize::new(2).unwrap());
        let mut random = Random(7);
        for format in WeightFormat::ALL {
            for (num_rows, blocks) in [(1, 1), (15, 3), (16, 2), (17, 5), (50, 1)] {
                let d_input = blocks * format.block_len();
                let file = random.matrix(format, d_input, num_rows);
                let packed = pack(format, d_input, num_rows, &file, &threads).unwrap();
                let layout = TileLayout::new(format, d_input);
                assert_eq!(
                    size_of_val(packed.as_slice()),
                    layout.matrix_bytes(num_rows)
                );
                for (row, bytes) in file.chunks_exact(file.len() / num_rows).enumerate() {
                    let mut expected = vec![0.0; d_input];
                    let mut found = vec![0.0; d_input];
                    dequantize_row(format, bytes, &mut expected);
                    unpack_row(
                        &layout,
                        bytemuck::cast_slice(packed.as_slice()),
                        row,
                        &mut found,
                    );
                    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect();
                    let (expected, found): (Vec<_>, Vec<_>) = (bits(&expected), bits(&found));
                    assert_eq!(
                        expected, found,
                        "{format} [{num_rows}, {d_input}] row {row}"
                    );
                }
            }
        }
    }

    #[test]
    fn packing_refuses_bytes_that_do_not_fit_the_shape() {
        let threads = Threads::new(NonZeroUsize::MIN);
        let error = pack(WeightFormat::Q8_0, 48, 1, &[0; 51], &threads).unwrap_err();
        assert!(matches!(
            error,
            PackError::RowLength {
                d_input: 48,
                block_len: 32,
                ..
            }
        ));
        let error = pack(WeightFormat::Q8_0, 64, 3, &[0; 203], &threads).unwrap_err();
        assert!(matches!(
            error,
            PackError::Length {
                expected: 204,
                found: 203,
                ..
            }
        ));
    }
}
