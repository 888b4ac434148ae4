//! Packed weights as they lie in the memory of a CubeCL device, and how they get there.
//!
//! Files store a row as a run of blocks of odd byte sizes. A device wants aligned 32-bit words, and
//! units that compute neighbouring rows to read neighbouring words. So a row becomes a run of
//! words in up to four *planes*, and the rows of a tile of [`ROW_TILE`] are interleaved:
//!
//! ```text
//! row:   | codes, a per group | high bits, h per group | scales, 16 or 32 bits per group | super, 1 per 8 groups |
//! word i of row r:  words[((r / 32) * row_words + i) * 32 + r % 32]
//! ```
//!
//! A group is [`GROUP_LEN`] values. Nothing is unpacked: the size is the file's but for rounding,
//! and 16 more bits per 256 values of Q4_K and Q6_K.
//!
//! | format | codes | high bits | scales | super |
//! |---|---|---|---|---|
//! | F32 | 32: one value each | | | |
//! | F16, BF16 | 16: two values each, the first in the low half | | | |
//! | Q4_0 | 4: eight 4-bit codes each, the first lowest | | 16 bits: f16 scale | |
//! | Q4_1 | 4 | | 32 bits: f16 scale, f16 minimum | |
//! | Q5_0 | 4 | 1: bit `i` is the fifth bit of value `i` | 16 bits: f16 scale | |
//! | Q5_1 | 4 | 1 | 32 bits: f16 scale, f16 minimum | |
//! | Q8_0 | 8: four signed bytes each | | 16 bits: f16 scale | |
//! | Q4_K | 4 | | 16 bits: scale, then minimum, a byte each | f16 scale of scales, f16 scale of minima |
//! | Q6_K | 4 | 2: sixteen 2-bit parts each | 16 bits: two signed scales of 16 values | f16 scale of scales |
//!
//! 16-bit scales of two groups share a word, the first in the low half. Rows are padded to whole
//! groups and tiles with zeros, which mean the value 0 in dense formats and are never summed in the
//! others (their rows are whole groups).
//!
//! Neighbours: `read` is the other direction, inside kernels; [`super::dequantize`] defines what
//! the blocks of a file mean.

pub(crate) mod read;

use super::format::WeightFormat;

/// Rows that are interleaved.
pub const ROW_TILE: usize = 32;
/// Values in a group.
pub const GROUP_LEN: usize = 32;
/// Groups that share a word of the super plane.
pub const SUPER_GROUPS: usize = 8;

/// Words of codes per group.
pub const fn code_words(format: WeightFormat) -> usize {
    match format {
        WeightFormat::F32 => 32,
        WeightFormat::F16 | WeightFormat::Bf16 => 16,
        WeightFormat::Q8_0 => 8,
        WeightFormat::Q4_0
        | WeightFormat::Q4_1
        | WeightFormat::Q5_0
        | WeightFormat::Q5_1
        | WeightFormat::Q4K
        | WeightFormat::Q6K => 4,
    }
}

/// Words of high bits per group.
pub const fn high_words(format: WeightFormat) -> usize {
    match format {
        WeightFormat::Q5_0 | WeightFormat::Q5_1 => 1,
        WeightFormat::Q6K => 2,
        _ => 0,
    }
}

/// Bits of scales per group.
pub const fn scale_bits(format: WeightFormat) -> usize {
    match format {
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => 0,
        WeightFormat::Q4_1 | WeightFormat::Q5_1 => 32,
        WeightFormat::Q4_0
        | WeightFormat::Q5_0
        | WeightFormat::Q8_0
        | WeightFormat::Q4K
        | WeightFormat::Q6K => 16,
    }
}

/// Whether eight groups share a scale of scales.
pub const fn has_super(format: WeightFormat) -> bool {
    matches!(format, WeightFormat::Q4K | WeightFormat::Q6K)
}

/// Where the planes of a row begin, in words of that row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planes {
    high: usize,
    scales: usize,
    supers: usize,
    end: usize,
}

impl Planes {
    const fn of(format: WeightFormat, d_input: usize) -> Self {
        let groups = d_input.div_ceil(GROUP_LEN);
        let high = groups * code_words(format);
        let scales = high + groups * high_words(format);
        let supers = scales + (groups * scale_bits(format)).div_ceil(32);
        let super_words = if has_super(format) {
            groups.div_ceil(SUPER_GROUPS)
        } else {
            0
        };
        Self {
            high,
            scales,
            supers,
            end: supers + super_words,
        }
    }
}

/// Words of one row of `d_input` values.
pub const fn words_per_row(format: WeightFormat, d_input: usize) -> usize {
    Planes::of(format, d_input).end
}

/// Words of `num_rows` rows of `d_input` values, padding included.
pub const fn num_words(format: WeightFormat, d_input: usize, num_rows: usize) -> usize {
    num_rows.div_ceil(ROW_TILE) * ROW_TILE * words_per_row(format, d_input)
}

/// Brings the rows of a file into the layout of the device.
///
/// `file_bytes` holds `num_rows` rows of `d_input` values as the file stores them.
///
/// # Panics
/// If the number of bytes is another, or rows are not whole blocks: loaders check both.
pub fn pack(format: WeightFormat, d_input: usize, num_rows: usize, file_bytes: &[u8]) -> Vec<u32> {
    let row_bytes = format.row_bytes(d_input);
    let row_bytes = row_bytes.expect("loaders refuse rows that are not whole blocks");
    assert_eq!(
        file_bytes.len(),
        num_rows * row_bytes,
        "{format}: {num_rows} rows of {d_input}"
    );
    let planes = Planes::of(format, d_input);
    let mut words = vec![0; num_words(format, d_input, num_rows)];
    let mut row_words = vec![0; planes.end];
    if row_bytes == 0 {
        return words;
    }
    for (row, bytes) in file_bytes.chunks_exact(row_bytes).enumerate() {
        row_words.fill(0);
        pack_row(format, bytes, &planes, &mut row_words);
        let start = row / ROW_TILE * ROW_TILE * planes.end + row % ROW_TILE;
        for (i, &word) in row_words.iter().enumerate() {
            words[start + i * ROW_TILE] = word;
        }
    }
    words
}

fn pack_row(format: WeightFormat, bytes: &[u8], planes: &Planes, words: &mut [u32]) {
    match format {
        WeightFormat::F32 => {
            for (word, value) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *word = u32::from_le_bytes(*value);
            }
        }
        WeightFormat::F16 | WeightFormat::Bf16 => {
            for (i, &value) in bytes.as_chunks::<2>().0.iter().enumerate() {
                put_half(words, 0, i, u16::from_le_bytes(value));
            }
        }
        _ => {
            for (block, bytes) in bytes.chunks_exact(format.block_bytes()).enumerate() {
                pack_block(format, block, bytes, planes, words);
            }
        }
    }
}

fn pack_block(
    format: WeightFormat,
    block: usize,
    bytes: &[u8],
    planes: &Planes,
    words: &mut [u32],
) {
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let scales = planes.scales;
    match format {
        WeightFormat::Q4_0 => {
            put_half(words, scales, block, half(0));
            put_nibbles(words, block, |i| nibble_of_halves(&bytes[2..18], i));
        }
        WeightFormat::Q4_1 => {
            put_half(words, scales, 2 * block, half(0));
            put_half(words, scales, 2 * block + 1, half(2));
            put_nibbles(words, block, |i| nibble_of_halves(&bytes[4..20], i));
        }
        WeightFormat::Q5_0 => {
            put_half(words, scales, block, half(0));
            put_nibbles(words, block, |i| nibble_of_halves(&bytes[6..22], i));
            let high = u32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
            words[planes.high + block] = high;
        }
        WeightFormat::Q5_1 => {
            put_half(words, scales, 2 * block, half(0));
            put_half(words, scales, 2 * block + 1, half(2));
            put_nibbles(words, block, |i| nibble_of_halves(&bytes[8..24], i));
            let high = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            words[planes.high + block] = high;
        }
        WeightFormat::Q8_0 => {
            put_half(words, scales, block, half(0));
            for (i, &code) in bytes[2..34].as_chunks::<4>().0.iter().enumerate() {
                words[8 * block + i] = u32::from_le_bytes(code);
            }
        }
        WeightFormat::Q4K => pack_q4_k(block, bytes, planes, words),
        WeightFormat::Q6K => pack_q6_k(block, bytes, planes, words),
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => {
            unreachable!("dense rows have no blocks")
        }
    }
}

fn pack_q4_k(block: usize, bytes: &[u8], planes: &Planes, words: &mut [u32]) {
    let (scales, codes) = (&bytes[4..16], &bytes[16..144]);
    words[planes.supers + block] = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    for group in 0..SUPER_GROUPS {
        let (scale, min) = if group < 4 {
            (scales[group] & 63, scales[group + 4] & 63)
        } else {
            let low = scales[group + 4];
            let scale = (low & 15) | (scales[group - 4] >> 6 << 4);
            (scale, (low >> 4) | (scales[group] >> 6 << 4))
        };
        let index = SUPER_GROUPS * block + group;
        put_half(
            words,
            planes.scales,
            index,
            u16::from_le_bytes([scale, min]),
        );
        // Two groups share 32 bytes: the first has the low nibbles.
        let pair = &codes[group / 2 * 32..][..32];
        put_nibbles(words, index, |i| pair[i] >> (4 * (group % 2)) & 15);
    }
}

fn pack_q6_k(block: usize, bytes: &[u8], planes: &Planes, words: &mut [u32]) {
    let (low, high, scales) = (&bytes[..128], &bytes[128..192], &bytes[192..208]);
    words[planes.supers + block] = u32::from_le_bytes([bytes[208], bytes[209], 0, 0]);
    for group in 0..SUPER_GROUPS {
        // Half a block is 128 values: four runs of 32 over 64 low and 32 high bytes.
        let (half, run) = (group / 4, group % 4);
        let index = SUPER_GROUPS * block + group;
        let pair = u16::from_le_bytes([scales[2 * group], scales[2 * group + 1]]);
        put_half(words, planes.scales, index, pair);
        let low = &low[64 * half + 32 * (run % 2)..][..32];
        put_nibbles(words, index, |i| low[i] >> (4 * (run / 2)) & 15);
        let high = &high[32 * half..][..32];
        for (i, &bits) in high.iter().enumerate() {
            let bits = u32::from(bits >> (2 * run) & 3);
            words[planes.high + 2 * index + i / 16] |= bits << (2 * (i % 16));
        }
    }
}

/// Code `i` of a block of 32 whose byte `j` holds codes `j` and `j + 16`.
fn nibble_of_halves(codes: &[u8], i: usize) -> u8 {
    codes[i % 16] >> (4 * (i / 16)) & 15
}

fn put_nibbles(words: &mut [u32], group: usize, code: impl Fn(usize) -> u8) {
    for (w, word) in words[4 * group..4 * group + 4].iter_mut().enumerate() {
        *word = (0..8).map(|i| u32::from(code(8 * w + i)) << (4 * i)).sum();
    }
}

fn put_half(words: &mut [u32], plane: usize, index: usize, half: u16) {
    words[plane + index / 2] |= u32::from(half) << (16 * (index % 2));
}

#[cfg(test)]
mod tests;
