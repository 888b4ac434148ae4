//! The JSON files beside a `tokenizer.json`.
//!
//! Neighbours: [`super`] (who asks).

use std::path::{Path, PathBuf};

use forerun_engine::TokenId;
use serde_json::{Map, Value};

use super::super::error::TextError;

/// The folder of a tokenizer.
pub(super) struct Folder(PathBuf);

/// What `tokenizer_config.json` and `special_tokens_map.json` say.
#[derive(Debug, Default)]
pub(super) struct TokenizerConfig {
    pub(super) add_bos_token: Option<bool>,
    /// Names (`bos_token`) and texts.
    pub(super) special_tokens: Vec<(String, String)>,
    chat_template: Value,
}

impl TokenizerConfig {
    pub(super) fn special_token(&self, name: &str) -> Option<&str> {
        let named = self.special_tokens.iter().find(|(other, _)| other == name);
        named.map(|(_, text)| text.as_str())
    }

    /// Takes the special tokens of a file that are not known yet.
    fn take_special_tokens(&mut self, object: &Map<String, Value>) {
        for (name, value) in object.iter().filter(|(name, _)| name.ends_with("_token")) {
            // A token is a text, or an object with one.
            let text = value.as_str().or_else(|| value["content"].as_str());
            if let Some(text) = text
                && self.special_token(name).is_none()
            {
                self.special_tokens.push((name.clone(), text.to_owned()));
            }
        }
    }
}

impl Folder {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_path_buf())
    }

    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, TextError> {
        let file = self.0.join(name);
        std::fs::read(&file).map_err(|source| TextError::Io { file, source })
    }

    pub(super) fn malformed(&self, name: &str, detail: &dyn std::fmt::Display) -> TextError {
        TextError::Malformed {
            file: self.0.join(name),
            detail: detail.to_string(),
        }
    }

    fn read_optional(&self, name: &str) -> Result<Option<Vec<u8>>, TextError> {
        if self.0.join(name).exists() {
            self.read(name).map(Some)
        } else {
            Ok(None)
        }
    }

    /// The object in a JSON file; empty if there is no such file.
    fn object(&self, name: &str) -> Result<Map<String, Value>, TextError> {
        let Some(bytes) = self.read_optional(name)? else {
            return Ok(Map::new());
        };
        serde_json::from_slice(&bytes).map_err(|error| self.malformed(name, &error))
    }

    pub(super) fn tokenizer_config(&self) -> Result<TokenizerConfig, TextError> {
        let name = "tokenizer_config.json";
        let mut object = self.object(name)?;
        let add_bos_token = match object.get("add_bos_token") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(value)) => Some(*value),
            Some(other) => {
                let detail = format!("`add_bos_token`: expected true or false, found {other}");
                return Err(self.malformed(name, &detail));
            }
        };
        let chat_template = object.remove("chat_template").unwrap_or_default();
        let mut config = TokenizerConfig {
            add_bos_token,
            chat_template,
            ..Default::default()
        };
        config.take_special_tokens(&object);
        config.take_special_tokens(&self.object("special_tokens_map.json")?);
        Ok(config)
    }

    /// The chat template: a file of its own, else what the configuration holds (one template, or
    /// several with names, of which `default` counts).
    pub(super) fn chat_template(
        &self,
        config: &TokenizerConfig,
    ) -> Result<Option<String>, TextError> {
        let name = "chat_template.jinja";
        if let Some(bytes) = self.read_optional(name)? {
            let text = String::from_utf8(bytes).map_err(|error| self.malformed(name, &error))?;
            return Ok(Some(text));
        }
        Ok(match &config.chat_template {
            Value::String(source) => Some(source.clone()),
            Value::Array(named) => {
                let default = named.iter().find(|template| template["name"] == "default");
                default
                    .and_then(|template| template["template"].as_str())
                    .map(str::to_owned)
            }
            _ => None,
        })
    }

    /// `eos_token_id` of a configuration file: none, one or several.
    pub(super) fn eos_token_ids(&self, name: &str) -> Result<Vec<TokenId>, TextError> {
        let object = self.object(name)?;
        let ids = match object.get("eos_token_id") {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(ids)) => ids.as_slice(),
            Some(id) => std::slice::from_ref(id),
        };
        let read = |id: &Value| {
            let number = id
                .as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .map(TokenId);
            number.ok_or_else(|| {
                self.malformed(
                    name,
                    &format_args!("`eos_token_id`: expected token ids, found {id}"),
                )
            })
        };
        ids.iter().map(read).collect()
    }
}
