//! What a line of the input says.
//!
//! Neighbours: `lines.rs` brings lines; the body goes to `openai/request.rs`.

use serde_json::Value;

use super::lines::{LINE_BYTES_MAX, Line};
use crate::openai::{ApiError, ApiRequest, Defaults, Endpoint, Fields};

/// Codes of errors that are about the line and not about its request. Their result lines have no
/// `custom_id`: it is missing, or belongs to another line.
const BAD_LINE: &str = "invalid_line";

/// A line whose `custom_id` could be read.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) custom_id: String,
    pub(super) request: Result<ApiRequest, ApiError>,
}

/// What a line says, or `None` for one that is blank.
///
/// # Errors
/// It has no `custom_id` to answer to.
pub(super) fn parse(line: Line, defaults: Defaults) -> Result<Option<Entry>, ApiError> {
    let number = line.number;
    let bad =
        |what: String| ApiError::invalid(format!("line {number}: {what}")).with_code(BAD_LINE);
    let Some(bytes) = line.bytes else {
        return Err(bad(format!("longer than {LINE_BYTES_MAX} bytes")));
    };
    let bytes = match (number, bytes.as_slice()) {
        // Some editors begin a file with a byte order mark.
        (1, [0xef, 0xbb, 0xbf, rest @ ..]) => rest,
        (_, all) => all,
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| bad(format!("not JSON: {error}")))?;
    let mut fields = Fields::of("line", true, value).map_err(|error| bad(error.message))?;
    let custom_id: String = match fields.take("custom_id") {
        Ok(Some(id)) => id,
        Ok(None) => {
            return Err(bad(
                "custom_id is missing: answers could not be told apart".into()
            ));
        }
        Err(error) => return Err(bad(error.message)),
    };
    Ok(Some(Entry {
        custom_id,
        request: request(&mut fields, defaults),
    }))
}

/// The error of a line whose `custom_id` an earlier line has.
pub(super) fn repeated(number: u64, custom_id: &str) -> ApiError {
    let id = Value::from(custom_id);
    let what = format!("line {number}: an earlier line has the custom_id {id} too");
    ApiError::invalid(what).with_code(BAD_LINE)
}

fn request(fields: &mut Fields, defaults: Defaults) -> Result<ApiRequest, ApiError> {
    let method: Option<String> = fields.take("method")?;
    if method.is_some_and(|method| method != "POST") {
        return Err(fields.error("method", "must be \"POST\""));
    }
    let url: String = fields.take("url")?.unwrap_or_default();
    let Some(endpoint) = Endpoint::of_url(&url) else {
        let what = "must be \"/v1/completions\" or \"/v1/chat/completions\"";
        return Err(fields.error("url", what));
    };
    match fields.take_value("body") {
        Some(body) => ApiRequest::parse(endpoint, body, defaults),
        None => Err(fields.error("body", "missing")),
    }
}
