//! JSON as Python's `json.dumps` writes it, to the byte: models were trained on that text.
//!
//! Neighbours: [`super::functions`] (the `tojson` filter).

use std::fmt::Write as _;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Nesting beyond which a value is refused.
const DEPTH_MAX: usize = 100;

/// Options of `json.dumps`, with the defaults of `transformers`.
pub(super) struct Style {
    pub(super) ensure_ascii: bool,
    pub(super) sort_keys: bool,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    indent: Option<usize>,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            ensure_ascii: false,
            sort_keys: false,
            item_separator: ", ".to_owned(),
            key_separator: ": ".to_owned(),
            indent: None,
        }
    }
}

impl Style {
    /// With an indent, items go on lines of their own and the separator loses its space.
    pub(super) fn set_indent(&mut self, indent: Option<usize>) {
        self.indent = indent;
        let separator = if indent.is_some() { "," } else { ", " };
        separator.clone_into(&mut self.item_separator);
    }
}

/// `json.dumps(value)`.
pub(super) fn dumps(value: &Value, style: &Style) -> Result<String, Error> {
    let mut out = String::new();
    write_value(value, style, 0, &mut out)?;
    Ok(out)
}

fn write_value(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        let message = format!("tojson: the value is nested more than {DEPTH_MAX} deep");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => write_float(f64::try_from(value.clone())?, out),
        ValueKind::String => write_text(value.as_str().unwrap_or_default(), style, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            write_items(&items, ('[', ']'), style, depth, out, |item, out| {
                write_value(item, style, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            write_items(&keys, ('{', '}'), style, depth, out, |key, out| {
                write_key(key, style, out)?;
                out.push_str(&style.key_separator);
                write_value(&value.get_item(key)?, style, depth + 1, out)
            })?;
        }
        other => {
            let message = format!("tojson: a value of type {other} cannot be written as JSON");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(())
}

fn write_items(
    items: &[Value],
    (open, close): (char, char),
    style: &Style,
    depth: usize,
    out: &mut String,
    mut write: impl FnMut(&Value, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item_separator);
        }
        new_line(style, depth + 1, out);
        write(item, out)?;
    }
    if !items.is_empty() {
        new_line(style, depth, out);
    }
    out.push(close);
    Ok(())
}

fn new_line(style: &Style, depth: usize, out: &mut String) {
    if let Some(indent) = style.indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(
            ' ',
            indent.saturating_mul(depth).min(1 << 12),
        ));
    }
}

/// Keys that are not texts become texts, as in Python.
fn write_key(key: &Value, style: &Style, out: &mut String) -> Result<(), Error> {
    if let Some(text) = key.as_str() {
        write_text(text, style, out);
        return Ok(());
    }
    out.push('"');
    write_value(key, style, DEPTH_MAX, out)?;
    out.push('"');
    Ok(())
}

fn write_text(text: &str, style: &Style, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..' ' => write_escape(char as u16, out),
            '\u{7f}'.. if style.ensure_ascii && char != '\u{7f}' => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    write_escape(*unit, out);
                }
            }
            _ => out.push(char),
        }
    }
    out.push('"');
}

fn write_escape(unit: u16, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\u{unit:04x}");
}

/// Python's `repr`: the shortest digits that read back as the same number, with an exponent below
/// 1e-4 and from 1e16.
fn write_float(number: f64, out: &mut String) {
    let written = if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 {
            "Infinity".to_owned()
        } else {
            "-Infinity".to_owned()
        }
    } else if number != 0.0 && !(1e-4..1e16).contains(&number.abs()) {
        let scientific = format!("{number:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        format!("{digits}e{sign}{exponent:0>2}")
    } else {
        let plain = format!("{number}");
        if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        }
    };
    out.push_str(&written);
}
