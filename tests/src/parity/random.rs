//! Reproducible inputs.

use forerun_kernels::WeightFormat;
use half::{bf16, f16};

/// SplitMix64 (Steele et al., 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream that depends on `seed` alone.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// A number in `[-1, 1)`.
    pub fn float(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// `len` numbers in `[-scale, scale)`.
    pub fn floats(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| self.float() * scale).collect()
    }

    /// The numbers below `len` in random order.
    pub fn permutation(&mut self, len: usize) -> Vec<usize> {
        let mut items: Vec<usize> = (0..len).collect();
        for i in (1..len).rev() {
            items.swap(i, self.below(i + 1));
        }
        items
    }

    /// `num_rows` rows of `d_input` values as a file stores them: random codes, and scales such
    /// that values are of the order of 1.
    pub fn rows(&mut self, format: WeightFormat, num_rows: usize, d_input: usize) -> Vec<u8> {
        let row_bytes = format.row_bytes(d_input).expect("rows are whole blocks");
        match format {
            WeightFormat::F32 => self
                .floats(num_rows * d_input, 1.0)
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect(),
            WeightFormat::F16 => {
                let values = self.floats(num_rows * d_input, 1.0);
                values
                    .iter()
                    .flat_map(|&v| f16::from_f32(v).to_le_bytes())
                    .collect()
            }
            WeightFormat::Bf16 => {
                let values = self.floats(num_rows * d_input, 1.0);
                values
                    .iter()
                    .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
                    .collect()
            }
            _ => {
                let mut bytes: Vec<u8> = (0..num_rows * row_bytes)
                    .map(|_| self.word() as u8)
                    .collect();
                for block in bytes.chunks_exact_mut(format.block_bytes()) {
                    self.put_scales(format, block);
                }
                bytes
            }
        }
    }

    /// Replaces the f16 scales of a block, which random bytes make infinite or worse.
    fn put_scales(&mut self, format: WeightFormat, block: &mut [u8]) {
        let (places, scale): (&[usize], f32) = match format {
            WeightFormat::Q4K => (&[0, 2], 0.002),
            WeightFormat::Q6K => (&[208], 0.0005),
            WeightFormat::Q8_0 => (&[0], 0.01),
            WeightFormat::Q4_0 | WeightFormat::Q5_0 => (&[0], 0.1),
            _ => (&[0, 2], 0.1),
        };
        for &at in places {
            let value = f16::from_f32(self.float() * scale);
            block[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
    }
}
