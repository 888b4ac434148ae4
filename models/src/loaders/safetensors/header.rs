//! One safetensors file: an 8-byte length, a JSON header of that length, then the data.
//!
//! The header is parsed here rather than by the `safetensors` crate, because a file that is cut
//! short must be refused with the tensor and the bytes that are missing, and because a file may
//! hold a dtype we do not know in a tensor that nobody asks for. Tests write files with the crate.
//!
//! Neighbours: [`super`] (joins shards), [`super::super::mapped`] (the bytes).

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use forerun_kernels::packed::format::WeightFormat;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::super::error::LoadError;
use super::super::mapped::MappedFile;

/// Bytes of the header's length.
const LENGTH_BYTES: usize = 8;
/// Key of the header that is no tensor.
const METADATA_KEY: &str = "__metadata__";

/// Name, bytes per value and format of the dtypes in the format's definition whose values fill
/// whole bytes.
const DTYPES: [(&str, usize, Option<WeightFormat>); 16] = [
    ("F32", 4, Some(WeightFormat::F32)),
    ("F16", 2, Some(WeightFormat::F16)),
    ("BF16", 2, Some(WeightFormat::Bf16)),
    ("BOOL", 1, None),
    ("U8", 1, None),
    ("I8", 1, None),
    ("F8_E4M3", 1, None),
    ("F8_E5M2", 1, None),
    ("F8_E8M0", 1, None),
    ("U16", 2, None),
    ("I16", 2, None),
    ("U32", 4, None),
    ("I32", 4, None),
    ("U64", 8, None),
    ("I64", 8, None),
    ("F64", 8, None),
];

/// A mapped file and its table.
#[derive(Debug)]
pub(super) struct SafetensorsFile {
    map: MappedFile,
    pub(super) tensors: Vec<HeaderEntry>,
}

/// A tensor of the table.
#[derive(Debug)]
pub(super) struct HeaderEntry {
    pub(super) name: String,
    /// As the file spells it.
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// In the whole file.
    range: Range<usize>,
    pub(super) was_read: AtomicBool,
}

impl HeaderEntry {
    /// The format, if it is one that the engine can use.
    pub(super) fn format(&self) -> Option<WeightFormat> {
        DTYPES
            .iter()
            .find(|(name, ..)| *name == self.dtype)
            .and_then(|(_, _, format)| *format)
    }
}

/// A tensor as the JSON has it.
#[derive(serde::Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The tensors in the order of the JSON. A map would hide a name that comes twice.
struct RawHeader(Vec<(String, RawEntry)>);

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;

        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = RawHeader;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map from tensor names to dtype, shape and data_offsets")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA_KEY {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(RawHeader(entries))
            }
        }

        deserializer.deserialize_map(HeaderVisitor)
    }
}

impl SafetensorsFile {
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        let map = MappedFile::open(path)?;
        let header = header_range(&map)?;
        let data_start = header.end;
        let parsed: RawHeader = serde_json::from_slice(&map.bytes()[header]).map_err(|error| {
            let expected = "JSON with dtype, shape and data_offsets of each tensor";
            LoadError::malformed(path, "safetensors header", expected, error.to_string())
        })?;
        let mut tensors = Vec::new();
        for (name, raw) in parsed.0 {
            tensors.push(check_entry(&map, data_start, name, raw)?);
        }
        check_names(path, &mut tensors)?;
        check_apart(path, &tensors)?;
        Ok(Self { map, tensors })
    }

    pub(super) fn path(&self) -> &Path {
        self.map.path()
    }

    pub(super) fn bytes(&self, entry: &HeaderEntry) -> &[u8] {
        &self.map.bytes()[entry.range.clone()]
    }
}

fn header_range(map: &MappedFile) -> Result<Range<usize>, LoadError> {
    let truncated = |what: &str, offset: usize, needed_bytes: u64| LoadError::Truncated {
        file: map.path().to_path_buf(),
        what: what.to_owned(),
        offset: offset as u64,
        needed_bytes,
        available_bytes: (map.bytes().len() - offset) as u64,
    };
    let Some((length, rest)) = map.bytes().split_first_chunk::<LENGTH_BYTES>() else {
        return Err(truncated(
            "the length of the header",
            0,
            LENGTH_BYTES as u64,
        ));
    };
    let length = u64::from_le_bytes(*length);
    match usize::try_from(length) {
        Ok(length) if length <= rest.len() => Ok(LENGTH_BYTES..LENGTH_BYTES + length),
        _ => Err(truncated("the header", LENGTH_BYTES, length)),
    }
}

fn check_entry(
    map: &MappedFile,
    data_start: usize,
    name: String,
    raw: RawEntry,
) -> Result<HeaderEntry, LoadError> {
    let RawEntry {
        dtype,
        shape,
        data_offsets: (begin, end),
    } = raw;
    let Some(num_bytes) = end.checked_sub(begin) else {
        let found = format!("{begin} to {end}");
        return Err(LoadError::tensor(
            map.path(),
            &name,
            "offsets in order",
            found,
        ));
    };
    if let Some((_, bytes, _)) = DTYPES.iter().find(|(known, ..)| *known == dtype) {
        let needed = shape
            .iter()
            .try_fold(*bytes as u64, |bytes, dim| bytes.checked_mul(*dim));
        if needed != Some(num_bytes) {
            let expected = match needed {
                Some(needed) => format!("{needed} bytes for {dtype} {shape:?}"),
                None => format!("a size that can be counted, not {dtype} {shape:?}"),
            };
            let found = format!("data_offsets {begin} to {end}, {num_bytes} bytes");
            return Err(LoadError::tensor(map.path(), &name, expected, found));
        }
    }
    let file_bytes = map.bytes().len() as u64;
    let (start, end) = (
        begin.saturating_add(data_start as u64),
        end.saturating_add(data_start as u64),
    );
    if end > file_bytes {
        let file = map.path().to_path_buf();
        return Err(LoadError::TensorPastEnd {
            file,
            tensor: name,
            end,
            file_bytes,
        });
    }
    Ok(HeaderEntry {
        name,
        dtype,
        // A dimension may be beyond `usize` only beside a zero or under a dtype we do not read.
        shape: shape
            .into_iter()
            .map(|dim| usize::try_from(dim).unwrap_or(usize::MAX))
            .collect(),
        // Both are at most the file's length.
        range: start as usize..end as usize,
        was_read: AtomicBool::new(false),
    })
}

fn check_names(path: &Path, tensors: &mut [HeaderEntry]) -> Result<(), LoadError> {
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    match tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
        None => Ok(()),
        Some(pair) => Err(LoadError::tensor(
            path,
            &pair[0].name,
            "each name once",
            "it twice",
        )),
    }
}

fn check_apart(path: &Path, tensors: &[HeaderEntry]) -> Result<(), LoadError> {
    let mut in_order = tensors
        .iter()
        .filter(|entry| !entry.range.is_empty())
        .collect::<Vec<_>>();
    in_order.sort_by_key(|entry| entry.range.start);
    match in_order
        .windows(2)
        .find(|pair| pair[1].range.start < pair[0].range.end)
    {
        None => Ok(()),
        Some(pair) => Err(LoadError::TensorOverlap {
            file: path.to_path_buf(),
            first: pair[0].name.clone(),
            second: pair[1].name.clone(),
            offset: pair[1].range.start as u64,
        }),
    }
}
