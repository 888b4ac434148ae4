//! Reads one JSON object, key by key: what is wrong is named, what is left was not known.
//!
//! Written by hand instead of derived, because a derived reader says "invalid type" without the
//! field, and refuses or drops unknown keys in silence.
//!
//! Neighbours: `request.rs` and its parts take their fields from here.

use serde_json::{Map, Value};

use super::error::ApiError;

/// Characters of a wrong value that a message shows.
const SHOWN_CHARS_MAX: usize = 60;

/// The keys of an object that have not been taken.
#[derive(Debug)]
pub(crate) struct Fields {
    /// Name of the object and a dot; empty for the outermost.
    prefix: String,
    map: Map<String, Value>,
}

impl Fields {
    /// The fields of `value`, which must be an object. `name` is how messages call it; the names of
    /// the outermost object's fields stand alone.
    pub(crate) fn of(name: &str, is_outermost: bool, value: Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self {
                prefix: if is_outermost {
                    String::new()
                } else {
                    format!("{name}.")
                },
                map,
            }),
            other => Err(ApiError::field(name, expected("an object", &other))),
        }
    }

    /// The field `name`, if it is there and not null.
    pub(crate) fn take<T: Field>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take_value(name) else {
            return Ok(None);
        };
        match T::read(&value) {
            Some(read) => Ok(Some(read)),
            None => Err(self.error(name, expected(T::EXPECTED, &value))),
        }
    }

    /// The field `name` as it is, if it is there and not null.
    pub(crate) fn take_value(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// The object in field `name`, if it is there and not null.
    pub(crate) fn take_object(&mut self, name: &str) -> Result<Option<Self>, ApiError> {
        let path = self.path(name);
        self.take_value(name)
            .map(|value| Self::of(&path, false, value))
            .transpose()
    }

    /// Takes fields that mean nothing here and need no warning.
    pub(crate) fn skip(&mut self, names: &[&str]) {
        for &name in names {
            self.map.remove(name);
        }
    }

    /// That `name` is wrong.
    pub(crate) fn error(&self, name: &str, what: impl std::fmt::Display) -> ApiError {
        ApiError::field(self.path(name), what)
    }

    /// Names of the fields that nobody took.
    pub(crate) fn into_unknown(self) -> impl Iterator<Item = String> {
        let prefix = self.prefix;
        self.map
            .into_iter()
            .map(move |(name, _)| format!("{prefix}{name}"))
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// "expected a number, found the text "abc"".
pub(super) fn expected(what: &str, found: &Value) -> String {
    let mut shown: String = found.to_string();
    if let Some((end, _)) = shown.char_indices().nth(SHOWN_CHARS_MAX) {
        shown.truncate(end);
        shown.push('…');
    }
    format!("expected {what}, found {shown}")
}

/// A type that a field can have.
pub(crate) trait Field: Sized {
    /// What a message says was expected.
    const EXPECTED: &'static str;
    /// The value, if it is one.
    fn read(value: &Value) -> Option<Self>;
}

impl Field for bool {
    const EXPECTED: &'static str = "true or false";
    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl Field for String {
    const EXPECTED: &'static str = "a text";
    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl Field for u32 {
    const EXPECTED: &'static str = "a whole number from 0 to 4294967295";
    fn read(value: &Value) -> Option<Self> {
        value.as_u64().and_then(|number| number.try_into().ok())
    }
}

impl Field for i32 {
    const EXPECTED: &'static str = "a whole number from -2147483648 to 2147483647";
    fn read(value: &Value) -> Option<Self> {
        value.as_i64().and_then(|number| number.try_into().ok())
    }
}

impl Field for f32 {
    const EXPECTED: &'static str = "a number that fits 32 bits";
    fn read(value: &Value) -> Option<Self> {
        let number = value.as_f64()? as Self;
        number.is_finite().then_some(number)
    }
}

impl Field for Vec<u32> {
    const EXPECTED: &'static str = "a list of token ids (whole numbers from 0 up)";
    fn read(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(u32::read).collect()
    }
}

impl Field for Vec<String> {
    const EXPECTED: &'static str = "a list of texts";
    fn read(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(String::read).collect()
    }
}
