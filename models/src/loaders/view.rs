//! One tensor of a checkpoint: its bytes in the file and what they are.
//!
//! Neighbours: [`super`] (who gives it out), `forerun_kernels::packed` (who reads the bytes).

use std::path::Path;

use forerun_kernels::packed::format::WeightFormat;
use half::{bf16, f16};

use super::error::LoadError;
use super::format_names;

/// A tensor as it lies in the file. The bytes have no alignment.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Name in the file.
    pub name: &'a str,
    /// The file, for messages.
    pub file: &'a Path,
    /// How the values are stored.
    pub format: WeightFormat,
    /// Row-major: `[d_output, d_input]` of a matrix, `[len]` of a vector.
    pub shape: &'a [usize],
    /// Whole rows of whole blocks, `shape` in all.
    pub bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// The tensor, if it has the shape that the configuration implies.
    ///
    /// # Errors
    /// [`LoadError::WrongShape`].
    pub fn expect_shape(self, expected: &[usize]) -> Result<Self, LoadError> {
        if self.shape == expected {
            return Ok(self);
        }
        Err(LoadError::WrongShape {
            file: self.file.to_path_buf(),
            tensor: self.name.to_owned(),
            expected: expected.to_vec(),
            found: self.shape.to_vec(),
        })
    }

    /// Number of values.
    pub fn num_values(&self) -> usize {
        // The loaders have multiplied the same numbers with a check.
        self.shape.iter().product()
    }

    /// The values of a norm, a bias or another small tensor.
    ///
    /// # Errors
    /// [`LoadError::UnsupportedFormat`] for formats with blocks, in which no vector is stored.
    pub fn to_f32_vec(&self) -> Result<Vec<f32>, LoadError> {
        const PLAIN: [WeightFormat; 3] = [WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16];
        // Values are put together from bytes, since they may lie at any address.
        let (pairs, _) = self.bytes.as_chunks::<2>();
        let (words, _) = self.bytes.as_chunks::<4>();
        match self.format {
            WeightFormat::F32 => Ok(words.iter().map(|word| f32::from_le_bytes(*word)).collect()),
            WeightFormat::F16 => Ok(pairs
                .iter()
                .map(|pair| f16::from_le_bytes(*pair).to_f32())
                .collect()),
            WeightFormat::Bf16 => Ok(pairs
                .iter()
                .map(|pair| bf16::from_le_bytes(*pair).to_f32())
                .collect()),
            _ => Err(LoadError::UnsupportedFormat {
                file: self.file.to_path_buf(),
                tensor: self.name.to_owned(),
                expected: format_names(&PLAIN),
                found: self.format.name().to_owned(),
            }),
        }
    }

    /// The rows of a matrix as bytes: `range` of the first dimension.
    ///
    /// Returns `None` if the tensor has no such rows.
    pub fn rows(&self, range: std::ops::Range<usize>) -> Option<&'a [u8]> {
        let row_bytes = self.bytes.len().checked_div(*self.shape.first()?)?;
        let start = range.start.checked_mul(row_bytes)?;
        let end = range.end.checked_mul(row_bytes)?;
        self.bytes.get(start..end)
    }
}
