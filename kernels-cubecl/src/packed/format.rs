//! The number formats a weight matrix may be stored in, and the size of their blocks.
//!
//! A row of `d_input` values is a run of whole blocks. The byte layout of a block is GGUF's
//! (`ggml-common.h` of llama.cpp); its meaning is [`super::dequantize`].

/// How the values of one weight matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightFormat {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of an IEEE 754 binary32.
    Bf16,
    /// 32 values: f16 scale, 4-bit codes; `(code - 8) * scale`.
    Q4_0,
    /// 32 values: f16 scale, f16 minimum, 4-bit codes; `code * scale + min`.
    Q4_1,
    /// 32 values: f16 scale, 32 fifth bits, 4-bit codes; `(code - 16) * scale`.
    Q5_0,
    /// 32 values: f16 scale, f16 minimum, 32 fifth bits, 4-bit codes; `code * scale + min`.
    Q5_1,
    /// 32 values: f16 scale, 8-bit signed codes; `code * scale`.
    Q8_0,
    /// 256 values in 8 groups of 32: f16 scale of scales and of minima, 6-bit scales and minima,
    /// 4-bit codes.
    Q4K,
    /// 256 values in 16 groups of 16: 6-bit signed codes, 8-bit scales, f16 scale of scales.
    Q6K,
}

impl WeightFormat {
    /// Every format, in order of declaration.
    pub const ALL: [Self; 10] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q6K,
    ];

    /// Values in one block.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// Bytes of one block as stored in a file.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q6K => 210,
        }
    }

    /// Bytes of a row of `d_input` values as stored in a file, or `None` if the row does not
    /// divide into whole blocks.
    pub const fn row_bytes(self, d_input: usize) -> Option<usize> {
        if d_input.is_multiple_of(self.block_len()) {
            Some(d_input / self.block_len() * self.block_bytes())
        } else {
            None
        }
    }

    /// The name GGUF tools print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Whether values are codes with a scale, rather than plain floats.
    pub const fn is_quantized(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }
}

impl std::fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
