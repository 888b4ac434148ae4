//! What is to be continued: a text, token ids, or a conversation.
//!
//! Neighbours: part of `request.rs`; `codec.rs` turns it into tokens.

use forerun_engine::TokenId;
use forerun_models::text::{GenerationPrompt, Message};
use serde_json::Value;

use super::error::ApiError;
use super::fields::{Field, Fields, expected};

/// What is to be continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Control tokens are recognised: whoever writes a raw prompt runs the model.
    Text(String),
    /// As they are, without BOS.
    Tokens(Vec<TokenId>),
    /// Goes through the model's chat template; user text stays text.
    Chat(Vec<Message>, GenerationPrompt),
}

impl Prompt {
    /// `prompt`: a text, a list of token ids, or a list with one of either.
    pub(super) fn of_completion(fields: &mut Fields) -> Result<Self, ApiError> {
        const EXPECTED: &str = "a text, a list of token ids, or a list with one of either";
        let Some(mut value) = fields.take_value("prompt") else {
            return Err(fields.error("prompt", format!("missing: give {EXPECTED}")));
        };
        if let Value::Array(items) = &mut value
            && items.first().is_some_and(|item| !item.is_number())
        {
            match items.len() {
                1 => value = items.remove(0),
                count => {
                    let what = format!("one prompt per request, found {count}");
                    return Err(fields.error("prompt", what));
                }
            }
        }
        if let Value::String(text) = value {
            return Ok(Self::Text(text));
        }
        match Vec::<u32>::read(&value) {
            Some(ids) => Ok(Self::Tokens(ids.into_iter().map(TokenId).collect())),
            None => Err(fields.error("prompt", expected(EXPECTED, &value))),
        }
    }

    /// `messages`: roles and contents.
    pub(super) fn of_chat(fields: &mut Fields) -> Result<Self, ApiError> {
        const EXPECTED: &str = "a list of messages with at least one";
        let turns = match fields.take_value("messages") {
            Some(Value::Array(turns)) if !turns.is_empty() => turns,
            Some(other) => return Err(fields.error("messages", expected(EXPECTED, &other))),
            None => return Err(fields.error("messages", format!("missing: give {EXPECTED}"))),
        };
        let messages = turns
            .into_iter()
            .enumerate()
            .map(|(index, turn)| message(&format!("messages[{index}]"), turn))
            .collect::<Result<_, _>>()?;
        let prompt = match fields.take("add_generation_prompt")? {
            None | Some(true) => GenerationPrompt::Add,
            Some(false) => GenerationPrompt::Omit,
        };
        Ok(Self::Chat(messages, prompt))
    }
}

fn message(name: &str, turn: Value) -> Result<Message, ApiError> {
    let mut fields = Fields::of(name, false, turn)?;
    let role: String = fields
        .take("role")?
        .ok_or_else(|| fields.error("role", "missing: who speaks?"))?;
    let content = match fields.take_value("content") {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => text_of_parts(name, parts)?,
        Some(other) => {
            let what = expected("a text or a list of text parts", &other);
            return Err(fields.error("content", what));
        }
        None => return Err(fields.error("content", "missing: what is said?")),
    };
    Ok(Message::new(role, content))
}

/// The texts of content parts, one after another.
fn text_of_parts(name: &str, parts: Vec<Value>) -> Result<String, ApiError> {
    let mut text = String::new();
    for (index, part) in parts.into_iter().enumerate() {
        let mut fields = Fields::of(&format!("{name}.content[{index}]"), false, part)?;
        let kind: Option<String> = fields.take("type")?;
        if kind.as_deref() != Some("text") {
            return Err(fields.error("type", "only parts of type \"text\" are understood"));
        }
        let piece: Option<String> = fields.take("text")?;
        text.push_str(&piece.ok_or_else(|| fields.error("text", "missing"))?);
    }
    Ok(text)
}
