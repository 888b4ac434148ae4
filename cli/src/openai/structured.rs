//! What the text has to fit: OpenAI's `response_format`, and the keys of vLLM.
//!
//! Neighbours: part of `request.rs`; compiled by `forerun_models::grammar`.

use forerun_models::grammar::GrammarSource;
use serde_json::Value;

use super::error::ApiError;
use super::fields::{Fields, expected};

/// The grammar that is asked for: at most one, under whatever key.
pub(super) fn grammar(fields: &mut Fields) -> Result<Option<GrammarSource>, ApiError> {
    let mut found: Vec<(String, GrammarSource)> = Vec::new();
    if let Some(source) = response_format(fields)? {
        found.push(("response_format".to_owned(), source));
    }
    found.extend(sources(fields, "guided_")?);
    if let Some(mut inner) = fields.take_object("structured_outputs")? {
        found.extend(sources(&mut inner, "")?);
        if inner.take("json_object")? == Some(true) {
            let name = "structured_outputs.json_object".to_owned();
            found.push((name, GrammarSource::JsonObject));
        }
        if let Some(unknown) = inner.into_unknown().next() {
            // To ignore it would give text of any form where some form was asked for.
            return Err(ApiError::field(unknown, "is not supported"));
        }
    }
    if let [(first, _), (second, _), ..] = found.as_slice() {
        let what = format!("only one form can be asked for, {first} is given too");
        return Err(ApiError::field(second.clone(), what));
    }
    Ok(found.pop().map(|(_, source)| source))
}

/// The keys of vLLM, which have a prefix at top level.
fn sources(fields: &mut Fields, prefix: &str) -> Result<Vec<(String, GrammarSource)>, ApiError> {
    let mut found = Vec::new();
    let key = |name: &str| format!("{prefix}{name}");
    if let Some(value) = fields.take_value(&key("json")) {
        let schema = schema(fields, &key("json"), value)?;
        found.push((key("json"), GrammarSource::JsonSchema(schema)));
    }
    if let Some(regex) = fields.take(&key("regex"))? {
        found.push((key("regex"), GrammarSource::Regex(regex)));
    }
    if let Some(grammar) = fields.take(&key("grammar"))? {
        found.push((key("grammar"), GrammarSource::Lark(grammar)));
    }
    if let Some(choices) = fields.take::<Vec<String>>(&key("choice"))? {
        found.push((key("choice"), GrammarSource::Choice(choices)));
    }
    Ok(found)
}

/// A schema, also as the text of one.
fn schema(fields: &Fields, name: &str, value: Value) -> Result<Value, ApiError> {
    match value {
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|error| fields.error(name, format!("the text is not JSON: {error}"))),
        Value::Object(_) | Value::Bool(_) => Ok(value),
        other => Err(fields.error(name, expected("a JSON schema", &other))),
    }
}

fn response_format(fields: &mut Fields) -> Result<Option<GrammarSource>, ApiError> {
    let Some(mut format) = fields.take_object("response_format")? else {
        return Ok(None);
    };
    let kind: Option<String> = format.take("type")?;
    match kind.as_deref() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(GrammarSource::JsonObject)),
        Some("json_schema") => {
            let missing = |fields: &Fields, name| fields.error(name, "missing");
            let Some(mut inner) = format.take_object("json_schema")? else {
                return Err(missing(&format, "json_schema"));
            };
            match inner.take_value("schema") {
                Some(value) => schema(&inner, "schema", value)
                    .map(|schema| Some(GrammarSource::JsonSchema(schema))),
                None => Err(missing(&inner, "schema")),
            }
        }
        other => {
            let other = Value::from(other);
            let what = "\"text\", \"json_object\" or \"json_schema\"";
            Err(format.error("type", expected(what, &other)))
        }
    }
}
