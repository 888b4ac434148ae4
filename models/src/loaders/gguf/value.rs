//! Types and values of GGUF metadata, and how their bytes are decoded.
//!
//! Source: the GGUF specification (`docs/gguf.md` of the ggml repository).
//! Neighbours: [`super::metadata`] (values by key).

use std::fmt;

use super::super::error::LoadError;
use super::reader::Reader;

/// Type of a metadata value, as numbered in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaType {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// IEEE 754 binary32.
    F32,
    /// One byte, 0 or 1.
    Bool,
    /// UTF-8 text.
    String,
    /// Values of one type.
    Array,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// IEEE 754 binary64.
    F64,
}

impl MetaType {
    /// In the order of their numbers.
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Bytes of a value, or `None` where the value tells its own length.
    pub(super) const fn fixed_bytes(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    pub(super) fn read(
        reader: &mut Reader<'_>,
        what: &dyn fmt::Display,
    ) -> Result<Self, LoadError> {
        let number = reader.u32(what)?;
        Self::ALL.get(number as usize).copied().ok_or_else(|| {
            LoadError::malformed(
                reader.file(),
                what.to_string(),
                "0 to 12",
                number.to_string(),
            )
        })
    }
}

/// A decoded value; texts and arrays borrow from the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetaValue<'a> {
    /// Any unsigned width.
    Unsigned(u64),
    /// Any signed width.
    Signed(i64),
    /// Either float width.
    Float(f64),
    /// A flag.
    Bool(bool),
    /// A text.
    String(&'a str),
    /// An array.
    Array(MetaArray<'a>),
}

/// An array in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetaArray<'a> {
    pub(super) element: MetaType,
    pub(super) len: usize,
    pub(super) bytes: &'a [u8],
}

impl MetaArray<'_> {
    /// Type of the elements.
    pub fn element_type(&self) -> MetaType {
        self.element
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Decodes a value of fixed length; `None` if the bytes are no value of that type.
pub(super) fn scalar(kind: MetaType, bytes: &[u8]) -> Option<MetaValue<'static>> {
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(word);
    Some(match kind {
        MetaType::U8 | MetaType::U16 | MetaType::U32 | MetaType::U64 => {
            MetaValue::Unsigned(unsigned)
        }
        MetaType::I8 => MetaValue::Signed(i64::from(unsigned as i8)),
        MetaType::I16 => MetaValue::Signed(i64::from(unsigned as i16)),
        MetaType::I32 => MetaValue::Signed(i64::from(unsigned as i32)),
        MetaType::I64 => MetaValue::Signed(unsigned as i64),
        MetaType::F32 => MetaValue::Float(f64::from(f32::from_bits(unsigned as u32))),
        MetaType::F64 => MetaValue::Float(f64::from_bits(unsigned)),
        MetaType::Bool if unsigned <= 1 => MetaValue::Bool(unsigned == 1),
        MetaType::Bool | MetaType::String | MetaType::Array => return None,
    })
}

/// A value in words, for an error; long texts are cut.
pub(super) fn describe(value: &MetaValue<'_>) -> String {
    match value {
        MetaValue::Unsigned(number) => format!("the integer {number}"),
        MetaValue::Signed(number) => format!("the integer {number}"),
        MetaValue::Float(number) => format!("the float {number}"),
        MetaValue::Bool(flag) => format!("the flag {flag}"),
        MetaValue::String(text) => {
            format!("the text {:?}", text.chars().take(40).collect::<String>())
        }
        MetaValue::Array(array) => format!("an array of {} {:?}", array.len, array.element),
    }
}
