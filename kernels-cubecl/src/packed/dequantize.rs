//! The definition of every weight format: what the bytes of a row mean.
//!
//! A quantised format is read in runs of 32 values, whatever the size of its blocks in a file. Each
//! run is 32 unsigned codes, one or two scales and a minimum ([`Run`]); this is also the form from
//! which [`super::native`] and [`super::device`] lay weights out anew. Everything that computes
//! with packed weights is tested against [`dequantize_row`].
//!
//! Source: the block layouts of GGUF (`ggml-common.h` and `ggml-quants.c` of llama.cpp).

use half::{bf16, f16};

use super::format::WeightFormat;

/// The minimum of formats that have none: adding it changes no value, not even the sign of a zero.
pub const NO_MIN: f32 = -0.0;

/// Values in a run.
pub const RUN_LEN: usize = 32;

/// 32 neighbouring values of a row of a quantised format.
///
/// Value `i` is `(codes[i] - offset) * scales[i / 16] + min`. The product is exact in f32 (a scale
/// has at most 18 significant bits, a code 8), so it does not matter whether it is fused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Codes, unsigned.
    pub codes: [u8; RUN_LEN],
    /// What is taken from a code to make it signed.
    pub offset: u8,
    /// Scale of the first and of the last 16 values.
    pub scales: [f32; 2],
    /// Added to each value.
    pub min: f32,
}

impl Run {
    /// Run `index` of a row stored as `row`, in file layout.
    ///
    /// # Panics
    ///
    /// If the format is not quantised or the row is too short: the caller decides by format.
    pub fn read(format: WeightFormat, row: &[u8], index: usize) -> Self {
        let runs_per_block = format.block_len() / RUN_LEN;
        assert!(runs_per_block > 0, "{format} has no codes");
        let start = index / runs_per_block * format.block_bytes();
        let block = &row[start..start + format.block_bytes()];
        match format {
            WeightFormat::Q4_0 => legacy(nibbles(&block[2..]), 8, block, NO_MIN),
            WeightFormat::Q4_1 => legacy(nibbles(&block[4..]), 0, block, f16_at(block, 2)),
            WeightFormat::Q5_0 => legacy(five_bits(&block[2..]), 16, block, NO_MIN),
            WeightFormat::Q5_1 => legacy(five_bits(&block[4..]), 0, block, f16_at(block, 2)),
            WeightFormat::Q8_0 => legacy(
                std::array::from_fn(|i| block[2 + i] ^ 0x80),
                128,
                block,
                NO_MIN,
            ),
            WeightFormat::Q4K => q4_k(block, index % runs_per_block),
            WeightFormat::Q6K => q6_k(block, index % runs_per_block),
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => {
                unreachable!("{format} has no codes")
            }
        }
    }

    /// The values.
    pub fn values(&self) -> [f32; RUN_LEN] {
        std::array::from_fn(|i| {
            let code = f32::from(i16::from(self.codes[i]) - i16::from(self.offset));
            code * self.scales[i / 16] + self.min
        })
    }
}

/// Decodes one row from file layout; its length is `out`'s.
///
/// # Panics
///
/// If `row` does not have the bytes that `out.len()` values take.
pub fn dequantize_row(format: WeightFormat, row: &[u8], out: &mut [f32]) {
    assert_eq!(
        Some(row.len()),
        format.row_bytes(out.len()),
        "bytes of a {format} row"
    );
    match format {
        WeightFormat::F32 => {
            for (value, bytes) in out.iter_mut().zip(row.as_chunks().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        WeightFormat::F16 => {
            for (value, bytes) in out.iter_mut().zip(row.as_chunks().0) {
                *value = f16::from_le_bytes(*bytes).to_f32();
            }
        }
        WeightFormat::Bf16 => {
            for (value, bytes) in out.iter_mut().zip(row.as_chunks().0) {
                *value = bf16::from_le_bytes(*bytes).to_f32();
            }
        }
        _ => {
            for (index, values) in out.chunks_exact_mut(RUN_LEN).enumerate() {
                values.copy_from_slice(&Run::read(format, row, index).values());
            }
        }
    }
}

/// The 6-bit scale and minimum of group `group` of a Q4_K block, from its 12 packed bytes.
///
/// ```text
/// byte       0..4                 4..8                 8..12
/// low bits   scale of 0..4 (6)    min of 0..4 (6)      scale of 4..8 (low 4)
/// high bits  scale of 4..8 (2)    min of 4..8 (2)      min of 4..8 (low 4)
/// ```
pub fn q4_k_scale_min(block: &[u8], group: usize) -> (u8, u8) {
    let packed = &block[4..16];
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        let scale = (low & 15) | (packed[group - 4] >> 6) << 4;
        let min = (low >> 4) | (packed[group] >> 6) << 4;
        (scale, min)
    }
}

/// Where a Q6_K block keeps its 16 signed scales.
pub const Q6_K_SCALES: usize = 192;
/// Where a Q6_K block keeps its scale of scales.
pub const Q6_K_SUPER_SCALE: usize = 208;

fn f16_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// The formats whose block is one run and starts with its scale.
fn legacy(codes: [u8; RUN_LEN], offset: u8, block: &[u8], min: f32) -> Run {
    Run {
        codes,
        offset,
        scales: [f16_at(block, 0); 2],
        min,
    }
}

/// 16 bytes: the low halves are values `0..16`, the high halves `16..32`.
fn nibbles(bytes: &[u8]) -> [u8; RUN_LEN] {
    std::array::from_fn(|i| {
        if i < 16 {
            bytes[i] & 15
        } else {
            bytes[i - 16] >> 4
        }
    })
}

/// A word whose bit `i` is the fifth bit of value `i`, then 16 bytes of [`nibbles`].
fn five_bits(bytes: &[u8]) -> [u8; RUN_LEN] {
    let low = nibbles(&bytes[4..]);
    std::array::from_fn(|i| low[i] | (bytes[i / 8] >> (i % 8) & 1) << 4)
}

fn q4_k(block: &[u8], group: usize) -> Run {
    let codes = &block[16 + group / 2 * 32..];
    let shift = group % 2 * 4;
    let (scale, min) = q4_k_scale_min(block, group);
    Run {
        codes: std::array::from_fn(|i| codes[i] >> shift & 15),
        offset: 0,
        scales: [f16_at(block, 0) * f32::from(scale); 2],
        min: -(f16_at(block, 2) * f32::from(min)),
    }
}

/// Each half of a Q6_K block holds 4 runs: 64 bytes of low bits (runs 0 and 1 in the low halves of
/// the bytes, 2 and 3 in the high ones) and 32 bytes with two bits for each run.
fn q6_k(block: &[u8], group: usize) -> Run {
    let (half, quarter) = (group / 4, group % 4);
    let low = &block[half * 64 + quarter % 2 * 32..];
    let high = &block[128 + half * 32..];
    let super_scale = f16_at(block, Q6_K_SUPER_SCALE);
    let scale = |i| super_scale * f32::from(block[Q6_K_SCALES + group * 2 + i] as i8);
    Run {
        codes: std::array::from_fn(|i| {
            (low[i] >> (quarter / 2 * 4) & 15) | (high[i] >> (quarter * 2) & 3) << 4
        }),
        offset: 32,
        scales: [scale(0), scale(1)],
        min: NO_MIN,
    }
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    /// `tests/fixtures/algo/gguf_blocks.safetensors`: random blocks and the values that llama.cpp's
    /// own code gives them.
    #[test]
    fn every_format_decodes_to_the_reference_values() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/fixtures/algo/gguf_blocks.safetensors"
        );
        let file = std::fs::read(path).unwrap();
        let tensors = SafeTensors::deserialize(&file).unwrap();
        for format in WeightFormat::ALL {
            let Ok(bytes) = tensors.tensor(&format!("{format}.bytes")) else {
                assert!(
                    matches!(format, WeightFormat::F32 | WeightFormat::F16),
                    "{format}"
                );
                continue;
            };
            let expected = tensors.tensor(&format!("{format}.values")).unwrap();
            let expected: Vec<f32> = expected
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect();
            let mut values = vec![0.0; expected.len()];
            dequantize_row(format, bytes.data(), &mut values);
            for (i, (value, expected)) in values.iter().zip(&expected).enumerate() {
                assert_eq!(value.to_bits(), expected.to_bits(), "{format} value {i}");
            }
        }
    }

    #[test]
    fn half_precision_rows_decode_exactly() {
        let row: Vec<u8> = [1.5f32, -0.25, 65504.0]
            .iter()
            .flat_map(|&v| f16::from_f32(v).to_le_bytes())
            .collect();
        let mut values = [0.0; 3];
        dequantize_row(WeightFormat::F16, &row, &mut values);
        assert_eq!(
            values.map(f32::to_bits),
            [1.5, -0.25, 65504.0f32].map(f32::to_bits)
        );
    }
}
