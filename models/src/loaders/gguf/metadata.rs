//! Metadata of a GGUF file: typed values by key, read in place from the memory map.
//!
//! Opening a file walks the values once, to find where each begins and ends; texts and arrays (a
//! vocabulary may have 262,144 entries) are decoded only when asked for, and borrow from the map.
//!
//! Source: the GGUF specification (`docs/gguf.md` of the ggml repository).
//! Neighbours: [`super::reader`] (bounds), [`super::value`] (types), [`crate::config`] and the tokenizers (who ask).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::super::error::LoadError;
use super::reader::Reader;
use super::value::{MetaArray, MetaType, MetaValue, describe, scalar};

/// Arrays may hold arrays; files in use nest one level.
const ARRAY_DEPTH_MAX: usize = 4;

/// Where a value lies in the file.
#[derive(Clone, Debug)]
pub(super) struct RawValue {
    kind: MetaType,
    /// Type and number of the elements, of an array.
    element: Option<(MetaType, usize)>,
    range: Range<usize>,
}

/// Metadata of a file, by key.
#[derive(Clone, Copy, Debug)]
pub struct Metadata<'a> {
    pub(super) file: &'a Path,
    pub(super) bytes: &'a [u8],
    pub(super) values: &'a BTreeMap<String, RawValue>,
}

/// Reads `num_values` keys and passes over their values.
pub(super) fn read_values(
    reader: &mut Reader<'_>,
    num_values: u64,
) -> Result<BTreeMap<String, RawValue>, LoadError> {
    let mut values = BTreeMap::new();
    for index in 0..num_values {
        let key = reader.name(&format_args!("metadata key {index} of {num_values}"))?;
        let what = format!("metadata key `{key}`");
        let kind = MetaType::read(reader, &format_args!("type of {what}"))?;
        let value = read_value(reader, kind, &what)?;
        if values.insert(key.to_owned(), value).is_some() {
            return Err(LoadError::malformed(
                reader.file(),
                what,
                "each key once",
                "it twice",
            ));
        }
    }
    Ok(values)
}

fn read_value(reader: &mut Reader<'_>, kind: MetaType, what: &str) -> Result<RawValue, LoadError> {
    if kind == MetaType::Array {
        let (element, len) = read_array_head(reader, what)?;
        let start = reader.position();
        skip_elements(reader, element, len, what, ARRAY_DEPTH_MAX)?;
        // Each element has at least one byte, so the count is below the file's length.
        let element = Some((element, len as usize));
        return Ok(RawValue {
            kind,
            element,
            range: start..reader.position(),
        });
    }
    let range = match kind.fixed_bytes() {
        Some(bytes) => reader.skip(bytes as u64, &what)?,
        None => reader.string(&what)?,
    };
    Ok(RawValue {
        kind,
        element: None,
        range,
    })
}

fn read_array_head(reader: &mut Reader<'_>, what: &str) -> Result<(MetaType, u64), LoadError> {
    let element = MetaType::read(reader, &format_args!("element type of {what}"))?;
    Ok((element, reader.u64(&format_args!("length of {what}"))?))
}

fn skip_elements(
    reader: &mut Reader<'_>,
    element: MetaType,
    len: u64,
    what: &str,
    depth_left: usize,
) -> Result<(), LoadError> {
    if let Some(bytes) = element.fixed_bytes() {
        let bytes = len.saturating_mul(bytes as u64);
        return reader.skip(bytes, &what).map(drop);
    }
    for index in 0..len {
        if element == MetaType::String {
            reader.string(&format_args!("element {index} of {len} of {what}"))?;
        } else if depth_left == 0 {
            let expected = format!("arrays nested at most {ARRAY_DEPTH_MAX} deep");
            return Err(LoadError::malformed(
                reader.file(),
                what,
                expected,
                "deeper nesting",
            ));
        } else {
            let (element, len) = read_array_head(reader, what)?;
            skip_elements(reader, element, len, what, depth_left - 1)?;
        }
    }
    Ok(())
}

impl<'a> Metadata<'a> {
    /// Keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.values.keys().map(String::as_str)
    }

    /// Whether the file has the key.
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Type of the value as stored.
    pub fn stored_type(&self, key: &str) -> Option<MetaType> {
        self.values.get(key).map(|value| value.kind)
    }

    /// The value, or `None` if the file lacks the key.
    ///
    /// # Errors
    /// [`LoadError::WrongValue`] for a text that is not UTF-8 or a flag other than 0 and 1.
    pub fn get(&self, key: &str) -> Result<Option<MetaValue<'a>>, LoadError> {
        self.values
            .get(key)
            .map(|value| self.decode(key, value))
            .transpose()
    }

    fn decode(&self, key: &str, value: &RawValue) -> Result<MetaValue<'a>, LoadError> {
        let bytes = &self.bytes[value.range.clone()];
        if let Some((element, len)) = value.element {
            return Ok(MetaValue::Array(MetaArray {
                element,
                len,
                bytes,
            }));
        }
        if value.kind == MetaType::String {
            return self.text(key, bytes).map(MetaValue::String);
        }
        scalar(value.kind, bytes)
            .ok_or_else(|| self.wrong(key, "a flag of 0 or 1", format!("{bytes:?}")))
    }

    fn text(&self, key: &str, bytes: &'a [u8]) -> Result<&'a str, LoadError> {
        std::str::from_utf8(bytes).map_err(|error| self.wrong(key, "UTF-8 text", error.to_string()))
    }

    /// An error about the value of `key`.
    pub(crate) fn wrong(&self, key: &str, expected: &'static str, found: String) -> LoadError {
        LoadError::WrongValue {
            file: self.file.to_path_buf(),
            key: key.to_owned(),
            expected,
            found,
        }
    }

    /// The error for a key that must be there.
    pub(crate) fn missing(&self, key: &str) -> LoadError {
        LoadError::MissingKey {
            file: self.file.to_path_buf(),
            key: key.to_owned(),
        }
    }

    fn wrong_type(&self, key: &str, expected: &'static str, found: &MetaValue<'_>) -> LoadError {
        self.wrong(key, expected, describe(found))
    }

    /// `general.architecture`, which every file must have.
    pub fn architecture(&self) -> Result<&'a str, LoadError> {
        const KEY: &str = "general.architecture";
        self.string(KEY)?.ok_or_else(|| self.missing(KEY))
    }

    /// A text.
    pub fn string(&self, key: &str) -> Result<Option<&'a str>, LoadError> {
        match self.get(key)? {
            None => Ok(None),
            Some(MetaValue::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(key, "a text", &other)),
        }
    }

    /// A flag.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, LoadError> {
        match self.get(key)? {
            None => Ok(None),
            Some(MetaValue::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong_type(key, "a flag", &other)),
        }
    }

    /// An integer of any width, signed or not, that is not negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, LoadError> {
        const EXPECTED: &str = "an integer from 0";
        match self.get(key)? {
            None => Ok(None),
            Some(MetaValue::Unsigned(number)) => Ok(Some(number)),
            Some(MetaValue::Signed(number)) => u64::try_from(number)
                .map(Some)
                .map_err(|_| self.wrong(key, EXPECTED, number.to_string())),
            Some(other) => Err(self.wrong_type(key, EXPECTED, &other)),
        }
    }

    /// An integer of any width that fits 32 bits.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, LoadError> {
        let Some(number) = self.u64(key)? else {
            return Ok(None);
        };
        u32::try_from(number)
            .map(Some)
            .map_err(|_| self.wrong(key, "an integer of 32 bits", number.to_string()))
    }

    /// A number: a float of either width, or an integer.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, LoadError> {
        match self.get(key)? {
            None => Ok(None),
            Some(MetaValue::Float(number)) => Ok(Some(number as f32)),
            Some(MetaValue::Unsigned(number)) => Ok(Some(number as f32)),
            Some(MetaValue::Signed(number)) => Ok(Some(number as f32)),
            Some(other) => Err(self.wrong_type(key, "a number", &other)),
        }
    }

    /// An array of any type.
    pub fn array(&self, key: &str) -> Result<Option<MetaArray<'a>>, LoadError> {
        match self.get(key)? {
            None => Ok(None),
            Some(MetaValue::Array(array)) => Ok(Some(array)),
            Some(other) => Err(self.wrong_type(key, "an array", &other)),
        }
    }

    /// An array of texts, which borrow from the file.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&'a str>>, LoadError> {
        let Some(array) = self.array(key)? else {
            return Ok(None);
        };
        if array.element != MetaType::String {
            let found = describe(&MetaValue::Array(array));
            return Err(self.wrong(key, "an array of texts", found));
        }
        let mut reader = Reader::new(self.file, array.bytes);
        let mut texts = Vec::with_capacity(array.len);
        for _ in 0..array.len {
            let range = reader.string(&key)?;
            texts.push(self.text(key, &array.bytes[range])?);
        }
        Ok(Some(texts))
    }

    /// An array of integers of any width that fit `i32`.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, LoadError> {
        self.numbers(
            key,
            "an array of integers of 32 bits",
            |value| match value {
                MetaValue::Unsigned(number) => i32::try_from(number).ok(),
                MetaValue::Signed(number) => i32::try_from(number).ok(),
                _ => None,
            },
        )
    }

    /// An array of floats or integers.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, LoadError> {
        self.numbers(key, "an array of numbers", |value| match value {
            MetaValue::Float(number) => Some(number as f32),
            MetaValue::Unsigned(number) => Some(number as f32),
            MetaValue::Signed(number) => Some(number as f32),
            _ => None,
        })
    }

    /// An array of flags.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, LoadError> {
        self.numbers(key, "an array of flags", |value| match value {
            MetaValue::Bool(flag) => Some(flag),
            _ => None,
        })
    }

    fn numbers<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(MetaValue<'_>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, LoadError> {
        let Some(array) = self.array(key)? else {
            return Ok(None);
        };
        let wrong = || self.wrong(key, expected, describe(&MetaValue::Array(array)));
        let bytes = array.element.fixed_bytes().ok_or_else(wrong)?;
        array
            .bytes
            .chunks_exact(bytes)
            .map(|bytes| {
                scalar(array.element, bytes)
                    .and_then(&convert)
                    .ok_or_else(wrong)
            })
            .collect::<Result<Vec<T>, LoadError>>()
            .map(Some)
    }
}
