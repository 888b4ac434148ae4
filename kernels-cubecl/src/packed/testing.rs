//! Random weights for tests.

use half::{bf16, f16};

use super::format::WeightFormat;

/// A small generator of random numbers (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// 32 random bits.
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Evenly from `-1.0..1.0`.
    pub(crate) fn float(&mut self) -> f32 {
        self.bits() as f32 / (1u64 << 31) as f32 - 1.0
    }

    /// `len` of [`Self::float`].
    pub(crate) fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.float()).collect()
    }

    /// A matrix in file layout: random codes, and scales of either sign that keep values small.
    pub(crate) fn matrix(
        &mut self,
        format: WeightFormat,
        d_input: usize,
        num_rows: usize,
    ) -> Vec<u8> {
        let num_blocks = num_rows * d_input / format.block_len();
        (0..num_blocks).flat_map(|_| self.block(format)).collect()
    }

    fn block(&mut self, format: WeightFormat) -> Vec<u8> {
        let value = self.float();
        match format {
            WeightFormat::F32 => return value.to_le_bytes().to_vec(),
            WeightFormat::F16 => return f16::from_f32(value).to_le_bytes().to_vec(),
            WeightFormat::Bf16 => return bf16::from_f32(value).to_le_bytes().to_vec(),
            _ => {}
        }
        let mut block: Vec<u8> = (0..format.block_bytes())
            .map(|_| self.bits() as u8)
            .collect();
        let scales_at: &[usize] = match format {
            WeightFormat::Q4_1 | WeightFormat::Q5_1 | WeightFormat::Q4K => &[0, 2],
            WeightFormat::Q6K => &[208],
            _ => &[0],
        };
        for &at in scales_at {
            let scale = f16::from_f32(self.float() / 32.0).to_le_bytes();
            block[at..at + 2].copy_from_slice(&scale);
        }
        block
    }
}
