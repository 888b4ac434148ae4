//! A weight matrix as a burn module: packed, in the layout of the device it lies on.
//!
//! Neighbours: [`crate::packed`] is the layouts; `linear` and `embed` compute with it; the loaders
//! of `forerun-models` make it from the bytes of a file.

mod aligned;

use crate::limits::DeviceLimits;
use crate::packed::format::WeightFormat;
use crate::packed::{device as device_layout, native};
use crate::spec::{ActivationMode, MatrixSpec, PartSpec};
use crate::threads;
use burn::backend::DispatchTensor;
use burn::module::{Module, Param, ParamId};
use burn::tensor::{Bytes, DType, Device, Int, Tensor, TensorData};
use thiserror::Error;

/// Neighbouring rows of a matrix as a file stores them.
#[derive(Clone, Copy, Debug)]
pub struct RawRows<'a> {
    /// Format of every row.
    pub format: WeightFormat,
    /// Rows.
    pub num_rows: usize,
    /// `num_rows` rows, one after the other.
    pub bytes: &'a [u8],
}

/// A matrix that cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PackError {
    /// The rows are not what the shape says.
    #[error(transparent)]
    Rows(#[from] native::PackError),
    /// The device cannot bind even a few rows.
    #[error(
        "{num_rows} rows of {d_input} {format} values take {bytes} bytes, the device binds \
         {binding_bytes_max} at most; choose another device"
    )]
    Binding {
        /// Format of the rows.
        format: WeightFormat,
        /// Rows that must share a buffer.
        num_rows: usize,
        /// Values in a row.
        d_input: usize,
        /// Bytes they take.
        bytes: u64,
        /// Bytes of the largest binding.
        binding_bytes_max: u64,
    },
}

/// A matrix `[d_output, d_input]` of packed weights on a device.
#[derive(Module, Debug)]
pub struct PackedMatrix {
    /// One buffer per part of the spec: u32 words on CubeCL devices, bytes on the CPU.
    parts: Vec<Param<Tensor<1, Int>>>,
    /// Shape and parts.
    #[module(skip)]
    spec: MatrixSpec,
    /// Bytes of all buffers.
    #[module(skip)]
    bytes: u64,
}

impl PackedMatrix {
    /// Packs the rows of a file, first to last, for `device`.
    ///
    /// Neighbouring rows of one format become one part, unless a part would be larger than
    /// `binding_bytes_max`: then there are several. `None` asks the device what it can bind.
    ///
    /// # Errors
    /// [`PackError`] if the bytes are not those of the shape, or the device binds too little.
    pub fn pack(
        rows: &[RawRows<'_>],
        d_input: usize,
        device: &Device,
        binding_bytes_max: Option<u64>,
    ) -> Result<Self, PackError> {
        let limits = DeviceLimits::of(device);
        let binding_bytes_max = binding_bytes_max.unwrap_or(limits.binding_bytes_max);
        let runs = merge(rows, d_input)?;
        let mut packer = Packer {
            d_input,
            device,
            parts: Vec::new(),
            specs: Vec::new(),
            bytes: 0,
        };
        for run in &runs {
            if limits.is_native {
                packer.push_native(run)?;
            } else {
                for piece in split(run, d_input, binding_bytes_max)? {
                    packer.push_device(&piece);
                }
            }
        }
        let d_output = rows.iter().map(|rows| rows.num_rows).sum();
        Ok(Self {
            parts: packer.parts,
            spec: MatrixSpec {
                d_input,
                d_output,
                parts: packer.specs,
                activations: ActivationMode::default(),
            },
            bytes: packer.bytes,
        })
    }

    /// The same matrix, with activations treated as `activations` says on the CPU.
    #[must_use]
    pub fn with_activations(mut self, activations: ActivationMode) -> Self {
        self.spec.activations = activations;
        self
    }

    /// Shape and parts.
    pub fn spec(&self) -> &MatrixSpec {
        &self.spec
    }

    /// Length of an input row (K).
    pub fn d_input(&self) -> usize {
        self.spec.d_input
    }

    /// Rows of the matrix, which is the length of an output row.
    pub fn d_output(&self) -> usize {
        self.spec.d_output
    }

    /// Bytes the weights take on the device.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The buffers, for an op.
    pub(crate) fn dispatch_parts(&self) -> Vec<DispatchTensor> {
        self.parts
            .iter()
            .map(|part| part.val().into_dispatch())
            .collect()
    }
}

/// Rows of one format, in one or several pieces of file.
struct Run<'a> {
    format: WeightFormat,
    num_rows: usize,
    pieces: Vec<&'a [u8]>,
}

impl Run<'_> {
    /// The bytes in one piece, copied only if they are not.
    fn bytes(&self) -> std::borrow::Cow<'_, [u8]> {
        match self.pieces.as_slice() {
            [piece] => (*piece).into(),
            pieces => pieces.concat().into(),
        }
    }
}

/// Joins neighbours of one format, and checks that they have the bytes they should.
fn merge<'a>(rows: &[RawRows<'a>], d_input: usize) -> Result<Vec<Run<'a>>, PackError> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    for rows in rows {
        let RawRows {
            format,
            num_rows,
            bytes,
        } = *rows;
        let block_len = format.block_len();
        let row_bytes = format
            .row_bytes(d_input)
            .ok_or(native::PackError::RowLength {
                format,
                d_input,
                block_len,
            })?;
        let (expected, found) = (num_rows * row_bytes, bytes.len());
        if expected != found {
            let error = native::PackError::Length {
                format,
                num_rows,
                d_input,
                expected,
                found,
            };
            return Err(error.into());
        }
        match runs.last_mut() {
            Some(run) if run.format == format => {
                run.num_rows += num_rows;
                run.pieces.push(bytes);
            }
            _ => runs.push(Run {
                format,
                num_rows,
                pieces: vec![bytes],
            }),
        }
    }
    Ok(runs)
}

/// Cuts a run into parts that the device can bind.
fn split<'a>(
    run: &'a Run<'a>,
    d_input: usize,
    binding_bytes_max: u64,
) -> Result<Vec<Run<'a>>, PackError> {
    let format = run.format;
    let part_bytes = |num_rows| 4 * device_layout::num_words(format, d_input, num_rows) as u64;
    let tile = device_layout::ROW_TILE.min(run.num_rows);
    if part_bytes(tile) > binding_bytes_max {
        let bytes = part_bytes(tile);
        let num_rows = tile;
        return Err(PackError::Binding {
            format,
            num_rows,
            d_input,
            bytes,
            binding_bytes_max,
        });
    }
    // A tile of rows takes the same bytes wherever it is.
    let tiles_max = (binding_bytes_max / part_bytes(device_layout::ROW_TILE).max(1)).max(1);
    let rows_max = usize::try_from(tiles_max)
        .unwrap_or(usize::MAX)
        .saturating_mul(device_layout::ROW_TILE);
    if run.num_rows <= rows_max {
        let Run {
            num_rows, pieces, ..
        } = run;
        return Ok(vec![Run {
            format,
            num_rows: *num_rows,
            pieces: pieces.clone(),
        }]);
    }
    // Parts of nearly equal size, in whole tiles.
    let num_parts = run.num_rows.div_ceil(rows_max);
    let rows_per_part = run
        .num_rows
        .div_ceil(num_parts)
        .next_multiple_of(device_layout::ROW_TILE)
        .min(rows_max);
    let row_bytes = run.pieces.iter().map(|piece| piece.len()).sum::<usize>() / run.num_rows;
    let mut parts = Vec::new();
    let mut row = 0;
    while row < run.num_rows {
        let num_rows = rows_per_part.min(run.num_rows - row);
        let pieces = cut(&run.pieces, row * row_bytes, num_rows * row_bytes);
        parts.push(Run {
            format,
            num_rows,
            pieces,
        });
        row += num_rows;
    }
    Ok(parts)
}

/// `len` bytes from `start` on of the concatenation of `pieces`.
fn cut<'a>(pieces: &[&'a [u8]], start: usize, len: usize) -> Vec<&'a [u8]> {
    let mut cut = Vec::new();
    let (mut skip, mut left) = (start, len);
    for piece in pieces {
        let from = skip.min(piece.len());
        let to = (from + left).min(piece.len());
        if from < to {
            cut.push(&piece[from..to]);
        }
        skip -= from;
        left -= to - from;
    }
    cut
}

/// Gathers the parts of a matrix.
struct Packer<'a> {
    d_input: usize,
    device: &'a Device,
    parts: Vec<Param<Tensor<1, Int>>>,
    specs: Vec<PartSpec>,
    bytes: u64,
}

impl Packer<'_> {
    fn push_native(&mut self, run: &Run<'_>) -> Result<(), PackError> {
        let (format, num_rows) = (run.format, run.num_rows);
        let threads = threads::process();
        let lines = native::pack(format, self.d_input, num_rows, &run.bytes(), threads)?;
        self.push(run, aligned::bytes(lines), DType::U8);
        Ok(())
    }

    fn push_device(&mut self, run: &Run<'_>) {
        let words = device_layout::pack(run.format, self.d_input, run.num_rows, &run.bytes());
        self.push(run, Bytes::from_elems(words), DType::U32);
    }

    fn push(&mut self, run: &Run<'_>, bytes: Bytes, dtype: DType) {
        let len = bytes.len() / dtype.size();
        self.bytes += bytes.len() as u64;
        let data = TensorData::from_bytes(bytes, [len], dtype);
        let tensor = Tensor::from_data(data, (self.device, dtype));
        self.parts.push(Param::initialized(ParamId::new(), tensor));
        let row_start = self
            .specs
            .last()
            .map_or(0, |part| part.row_start + part.num_rows);
        self.specs.push(PartSpec {
            format: run.format,
            row_start,
            num_rows: run.num_rows,
        });
    }
}

#[cfg(test)]
mod tests;
