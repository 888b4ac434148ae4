//! The tensor table of a GGUF file: name, shape, type and place of each tensor, checked against
//! the file before anything is read from it.
//!
//! Source: the GGUF specification (`docs/gguf.md` of the ggml repository); block sizes from
//! `ggml-common.h` of the same.
//! Neighbours: [`super`] (who keeps the tables), [`super::reader`] (bounds).

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use forerun_kernels::packed::format::WeightFormat;

use super::super::error::LoadError;
use super::reader::Reader;

/// As in ggml.
const DIMS_MAX: u32 = 4;

/// A way of storing values that GGUF files use.
struct StoredType {
    number: u32,
    name: &'static str,
    block_len: usize,
    block_bytes: usize,
}

const fn stored(
    number: u32,
    name: &'static str,
    block_len: usize,
    block_bytes: usize,
) -> StoredType {
    StoredType {
        number,
        name,
        block_len,
        block_bytes,
    }
}

/// Types that [`WeightFormat`] knows.
const USABLE_TYPES: [(u32, WeightFormat); 10] = [
    (0, WeightFormat::F32),
    (1, WeightFormat::F16),
    (2, WeightFormat::Q4_0),
    (3, WeightFormat::Q4_1),
    (6, WeightFormat::Q5_0),
    (7, WeightFormat::Q5_1),
    (8, WeightFormat::Q8_0),
    (12, WeightFormat::Q4K),
    (14, WeightFormat::Q6K),
    (30, WeightFormat::Bf16),
];

/// Types that are only recognised: their extent is checked, their values cannot be used.
const OTHER_TYPES: [StoredType; 22] = [
    stored(10, "Q2_K", 256, 84),
    stored(11, "Q3_K", 256, 110),
    stored(13, "Q5_K", 256, 176),
    stored(15, "Q8_K", 256, 292),
    stored(16, "IQ2_XXS", 256, 66),
    stored(17, "IQ2_XS", 256, 74),
    stored(18, "IQ3_XXS", 256, 98),
    stored(19, "IQ1_S", 256, 50),
    stored(20, "IQ4_NL", 32, 18),
    stored(21, "IQ3_S", 256, 110),
    stored(22, "IQ2_S", 256, 82),
    stored(23, "IQ4_XS", 256, 136),
    stored(24, "I8", 1, 1),
    stored(25, "I16", 1, 2),
    stored(26, "I32", 1, 4),
    stored(27, "I64", 1, 8),
    stored(28, "F64", 1, 8),
    stored(29, "IQ1_M", 256, 56),
    stored(34, "TQ1_0", 256, 54),
    stored(35, "TQ2_0", 256, 66),
    stored(39, "MXFP4", 32, 17),
    stored(40, "NVFP4", 64, 36),
];

/// How a tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TensorType {
    /// The engine can use it.
    Usable(WeightFormat),
    /// A known type that the engine cannot use.
    Other(&'static str),
    /// A number that is in no table; its extent is unknown.
    Unknown(u32),
}

impl TensorType {
    fn of(number: u32) -> Self {
        if let Some((_, format)) = USABLE_TYPES.iter().find(|(known, _)| *known == number) {
            return Self::Usable(*format);
        }
        match OTHER_TYPES.iter().find(|known| known.number == number) {
            Some(known) => Self::Other(known.name),
            None => Self::Unknown(number),
        }
    }

    /// Values and bytes of a block, or `None` for an unknown type.
    fn block(self) -> Option<(usize, usize)> {
        match self {
            Self::Usable(format) => Some((format.block_len(), format.block_bytes())),
            Self::Other(name) => OTHER_TYPES
                .iter()
                .find(|known| known.name == name)
                .map(|known| (known.block_len, known.block_bytes)),
            Self::Unknown(_) => None,
        }
    }

    pub(super) fn describe(self) -> String {
        match self {
            Self::Usable(format) => format.name().to_owned(),
            Self::Other(name) => name.to_owned(),
            Self::Unknown(number) => format!("GGUF type number {number}, which is unknown"),
        }
    }
}

/// One line of the table.
#[derive(Debug)]
pub(super) struct TensorEntry {
    pub(super) name: String,
    pub(super) stored_type: TensorType,
    /// Row-major, the reverse of the file's order.
    pub(super) shape: Vec<usize>,
    /// Where the bytes are, in the whole file. For an unknown type only the start is known and the
    /// range is empty.
    pub(super) range: Range<usize>,
    /// Whether somebody asked for the tensor.
    pub(super) was_read: AtomicBool,
}

/// A line as the file has it, before the start of the data is known.
struct RawEntry<'a> {
    name: &'a str,
    stored_type: TensorType,
    shape: Vec<usize>,
    num_bytes: usize,
    offset: u64,
}

/// Reads the table, and checks that every tensor lies within the file, on the alignment and apart
/// from the others.
pub(super) fn read_table(
    reader: &mut Reader<'_>,
    num_tensors: u64,
    alignment: usize,
    file_bytes: usize,
) -> Result<Vec<TensorEntry>, LoadError> {
    let mut raw = Vec::new();
    for index in 0..num_tensors {
        raw.push(read_entry(reader, index, num_tensors)?);
    }
    let data_start = (reader.position() as u64).next_multiple_of(alignment as u64);
    let mut entries = Vec::with_capacity(raw.len());
    for entry in raw {
        entries.push(place(reader, entry, data_start, alignment, file_bytes)?);
    }
    check_apart(reader, &entries)?;
    Ok(entries)
}

fn read_entry<'a>(
    reader: &mut Reader<'a>,
    index: u64,
    num_tensors: u64,
) -> Result<RawEntry<'a>, LoadError> {
    let name = reader.name(&format_args!("name of tensor {index} of {num_tensors}"))?;
    let num_dims = reader.u32(&format_args!("number of dimensions of tensor `{name}`"))?;
    if !(1..=DIMS_MAX).contains(&num_dims) {
        let expected = format!("1 to {DIMS_MAX} dimensions");
        return Err(LoadError::tensor(
            reader.file(),
            name,
            expected,
            num_dims.to_string(),
        ));
    }
    let mut shape = Vec::new();
    for _ in 0..num_dims {
        let dim = reader.u64(&format_args!("dimensions of tensor `{name}`"))?;
        shape.push(usize::try_from(dim).unwrap_or(usize::MAX));
    }
    let stored_type = TensorType::of(reader.u32(&format_args!("type of tensor `{name}`"))?);
    let offset = reader.u64(&format_args!("offset of tensor `{name}`"))?;
    let num_bytes = num_bytes(reader, name, &shape, stored_type)?;
    shape.reverse();
    Ok(RawEntry {
        name,
        stored_type,
        shape,
        num_bytes,
        offset,
    })
}

/// Bytes of a tensor whose dimensions are in the file's order, the row length first.
fn num_bytes(
    reader: &Reader<'_>,
    name: &str,
    dims: &[usize],
    stored_type: TensorType,
) -> Result<usize, LoadError> {
    if dims.contains(&0) {
        let found = format!("{dims:?}");
        return Err(LoadError::tensor(
            reader.file(),
            name,
            "dimensions above zero",
            found,
        ));
    }
    let Some((block_len, block_bytes)) = stored_type.block() else {
        return Ok(0);
    };
    if !dims[0].is_multiple_of(block_len) {
        let expected = format!("rows of whole blocks of {block_len} values");
        let found = format!("rows of {} values as {}", dims[0], stored_type.describe());
        return Err(LoadError::tensor(reader.file(), name, expected, found));
    }
    let row_bytes = (dims[0] / block_len).checked_mul(block_bytes);
    dims[1..]
        .iter()
        .try_fold(row_bytes, |bytes, dim| Some(bytes?.checked_mul(*dim)))
        .flatten()
        .ok_or_else(|| {
            LoadError::tensor(
                reader.file(),
                name,
                "a size that can be counted",
                format!("{dims:?}"),
            )
        })
}

fn place(
    reader: &Reader<'_>,
    entry: RawEntry<'_>,
    data_start: u64,
    alignment: usize,
    file_bytes: usize,
) -> Result<TensorEntry, LoadError> {
    let RawEntry {
        name,
        stored_type,
        shape,
        num_bytes,
        offset,
    } = entry;
    if !offset.is_multiple_of(alignment as u64) {
        let expected = format!("an offset that is a multiple of {alignment}");
        return Err(LoadError::tensor(
            reader.file(),
            name,
            expected,
            offset.to_string(),
        ));
    }
    let start = data_start.saturating_add(offset);
    let end = start.saturating_add(num_bytes as u64);
    if end > file_bytes as u64 {
        return Err(LoadError::TensorPastEnd {
            file: reader.file().to_path_buf(),
            tensor: name.to_owned(),
            end,
            file_bytes: file_bytes as u64,
        });
    }
    Ok(TensorEntry {
        name: name.to_owned(),
        stored_type,
        shape,
        // Both ends are at most `file_bytes`, which is a `usize`.
        range: start as usize..end as usize,
        was_read: AtomicBool::new(false),
    })
}

fn check_apart(reader: &Reader<'_>, entries: &[TensorEntry]) -> Result<(), LoadError> {
    let mut in_order = entries
        .iter()
        .filter(|entry| !entry.range.is_empty())
        .collect::<Vec<_>>();
    in_order.sort_by_key(|entry| entry.range.start);
    for pair in in_order.windows(2) {
        if pair[1].range.start < pair[0].range.end {
            return Err(LoadError::TensorOverlap {
                file: reader.file().to_path_buf(),
                first: pair[0].name.clone(),
                second: pair[1].name.clone(),
                offset: pair[1].range.start as u64,
            });
        }
    }
    Ok(())
}
