//! What `transformers` adds to Jinja for chat templates.
//!
//! - `raise_exception(message)`: refuses the conversation.
//! - `strftime_now(format)`: the time, in UTC ([`super::strftime`]).
//! - `tojson`: as Python's `json.dumps` writes it ([`super::python_json`]).
//! - `{% generation %}` blocks, which mark the assistant's words for training: their content is
//!   written, the marking is ignored.
//!
//! Neighbours: [`super`] (who registers them).

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};

use super::python_json::{self, Style};
use super::strftime::{Clock, strftime};

/// A message of `raise_exception`, as the source of an error.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

pub(super) fn register(environment: &mut Environment<'static>) {
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("tojson", to_json);
}

pub(super) fn set_clock(environment: &mut Environment<'static>, clock: Clock) {
    environment.add_function("strftime_now", move |format: &str| {
        strftime(format, clock.seconds())
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, error))
    });
}

fn raise_exception(message: String) -> Result<Value, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, message.clone());
    Err(error.with_source(Raised(message)))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja hands arguments over by value"
)]
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let mut style = Style::default();
    if let Some(ensure_ascii) = options.get::<Option<bool>>("ensure_ascii")? {
        style.ensure_ascii = ensure_ascii;
    }
    style.sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    style.set_indent(options.get::<Option<usize>>("indent")?);
    if let Some(separators) = options.get::<Option<Vec<String>>>("separators")? {
        let [item, key] = <[String; 2]>::try_from(separators).map_err(|found| {
            let message = format!("tojson: expected two separators, found {}", found.len());
            Error::new(ErrorKind::InvalidOperation, message)
        })?;
        (style.item_separator, style.key_separator) = (item, key);
    }
    options.assert_all_used()?;
    Ok(Value::from_safe_string(python_json::dumps(value, &style)?))
}

/// Turns `{% generation %}` and `{% endgeneration %}` into blocks that always run, with the same
/// signs for white space.
pub(super) fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let inside = start + 2;
        let Some(len) = rest[inside..].find("%}") else {
            break;
        };
        let tag = &rest[inside..inside + len];
        let word = tag
            .trim_start_matches(['-', '+'])
            .trim_end_matches(['-', '+'])
            .trim();
        let replacement = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => word,
        };
        out.push_str(&rest[..inside]);
        out.push_str(&tag.replacen(word, replacement, 1));
        rest = &rest[inside + len..];
    }
    out.push_str(rest);
    out
}
