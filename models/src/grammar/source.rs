//! What a request asks its text to fit, checked against limits and written for llguidance.
//!
//! Choices and regexes become Lark grammars of one rule. Sizes and depths are checked here, before
//! anything recursive sees the source; what the parts then cost is bounded by the compiler's limits.
//!
//! Neighbours: [`super::compiler`] (who compiles), [`super::queue`] (who keys its cache by
//! [`Prepared::key`]).

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use super::error::GrammarCompileError;

/// Most bytes of a source: a large schema of real use has a tenth of it.
pub(super) const SOURCE_BYTES_MAX: usize = 256 * 1024;

/// Most bytes of a Lark grammar, which are written by hand.
pub(super) const LARK_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a regex.
pub(super) const REGEX_BYTES_MAX: usize = 16 * 1024;

/// Most levels of a schema's JSON: `serde_json` reads as many. llguidance limits those of Lark.
pub(super) const DEPTH_MAX: usize = 128;

/// What generated text must fit, from its first token to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrammarSource {
    /// A JSON text that the schema accepts (draft 2020-12, the subset that llguidance knows; a
    /// keyword it does not know is an error). Properties come in the schema's order, and strings
    /// use `\uXXXX` for control characters only. `$ref` reaches into the schema itself (`#/..`),
    /// never to the network.
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// The whole text matches, in the syntax of Rust's `regex`, without look-around.
    Regex(String),
    /// A grammar in llguidance's dialect of Lark, from its rule `start`.
    Lark(String),
    /// One of the texts.
    Choice(Vec<String>),
}

/// The kinds of [`GrammarSource`], for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrammarKind {
    /// [`GrammarSource::JsonSchema`].
    JsonSchema,
    /// [`GrammarSource::JsonObject`].
    JsonObject,
    /// [`GrammarSource::Regex`].
    Regex,
    /// [`GrammarSource::Lark`].
    Lark,
    /// [`GrammarSource::Choice`].
    Choice,
}

impl std::fmt::Display for GrammarKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::JsonSchema => "JSON schema",
            Self::JsonObject => "JSON object",
            Self::Regex => "regex",
            Self::Lark => "Lark grammar",
            Self::Choice => "list of choices",
        })
    }
}

impl GrammarSource {
    /// Which kind of source this is.
    pub fn kind(&self) -> GrammarKind {
        match self {
            Self::JsonSchema(_) => GrammarKind::JsonSchema,
            Self::JsonObject => GrammarKind::JsonObject,
            Self::Regex(_) => GrammarKind::Regex,
            Self::Lark(_) => GrammarKind::Lark,
            Self::Choice(_) => GrammarKind::Choice,
        }
    }

    /// The source within its limits.
    pub(super) fn prepare(&self) -> Result<Prepared, GrammarCompileError> {
        let kind = self.kind();
        let text = match self {
            Self::JsonSchema(schema) => {
                check_json_depth(schema)?;
                schema.to_string()
            }
            Self::JsonObject => json!({"type": "object"}).to_string(),
            Self::Regex(regex) => {
                check_bytes(kind, regex.len(), REGEX_BYTES_MAX)?;
                lark_of_regex(regex)?
            }
            Self::Lark(grammar) => {
                check_bytes(kind, grammar.len(), LARK_BYTES_MAX)?;
                grammar.clone()
            }
            Self::Choice(choices) => lark_of_choices(choices)?,
        };
        check_bytes(kind, text.len(), SOURCE_BYTES_MAX)?;
        Ok(Prepared { kind, text })
    }
}

/// A source within its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prepared {
    kind: GrammarKind,
    /// JSON of a schema, Lark of everything else. JSON in the order it came in: two schemas that
    /// are equal as values but name their properties in another order are different grammars.
    text: String,
}

impl Prepared {
    pub(super) fn kind(&self) -> GrammarKind {
        self.kind
    }

    /// Equal keys mean the same grammar.
    pub(super) fn key(&self) -> (bool, &str) {
        (self.is_json(), &self.text)
    }

    fn is_json(&self) -> bool {
        matches!(self.kind, GrammarKind::JsonSchema | GrammarKind::JsonObject)
    }

    /// The source as llguidance takes it.
    pub(super) fn to_llguidance(&self) -> Result<TopLevelGrammar, GrammarCompileError> {
        if !self.is_json() {
            return Ok(TopLevelGrammar::from_lark(self.text.clone()));
        }
        let schema =
            serde_json::from_str(&self.text).map_err(|error| GrammarCompileError::Refused {
                kind: self.kind,
                detail: error.to_string(),
            })?;
        Ok(TopLevelGrammar::from_json_schema(schema))
    }
}

fn check_bytes(
    kind: GrammarKind,
    num_bytes: usize,
    num_bytes_max: usize,
) -> Result<(), GrammarCompileError> {
    if num_bytes > num_bytes_max {
        return Err(GrammarCompileError::TooLong {
            kind,
            num_bytes,
            num_bytes_max,
        });
    }
    Ok(())
}

/// Walks without recursion, since the depth is what is not known yet.
fn check_json_depth(schema: &Value) -> Result<(), GrammarCompileError> {
    let mut waiting = vec![(schema, 1, String::new())];
    while let Some((value, depth, place)) = waiting.pop() {
        if depth > DEPTH_MAX {
            return Err(GrammarCompileError::TooDeep {
                kind: GrammarKind::JsonSchema,
                depth_max: DEPTH_MAX,
                place,
            });
        }
        match value {
            Value::Object(members) => {
                waiting.extend(
                    members
                        .iter()
                        .filter(|(_, member)| is_container(member))
                        .map(|(name, member)| (member, depth + 1, format!("{place}/{name}"))),
                );
            }
            Value::Array(items) => {
                waiting.extend(
                    items
                        .iter()
                        .enumerate()
                        .filter(|(_, item)| is_container(item))
                        .map(|(index, item)| (item, depth + 1, format!("{place}/{index}"))),
                );
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_container(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

fn lark_of_regex(regex: &str) -> Result<String, GrammarCompileError> {
    // `//` would begin a comment.
    if regex.is_empty() {
        return Ok("start: \"\"".to_owned());
    }
    // The rewriting below would drop it.
    let num_backslashes = regex
        .bytes()
        .rev()
        .take_while(|&byte| byte == b'\\')
        .count();
    if num_backslashes % 2 == 1 {
        return Err(GrammarCompileError::Refused {
            kind: GrammarKind::Regex,
            detail: "it ends in a backslash that escapes nothing: write `\\\\` for a backslash"
                .to_owned(),
        });
    }
    Ok(format!("start: /{}/", llguidance::regex_to_lark(regex, "")))
}

/// All choices in one terminal, so that the lexer and not the parser tells them apart.
fn lark_of_choices(choices: &[String]) -> Result<String, GrammarCompileError> {
    if choices.is_empty() {
        return Err(GrammarCompileError::NoChoice);
    }
    let terminals: Vec<String> = choices
        .iter()
        .filter(|choice| !choice.is_empty())
        .map(|choice| lark_string(choice))
        .collect();
    let has_empty = terminals.len() < choices.len();
    let mut lark = String::from(match (terminals.is_empty(), has_empty) {
        (true, _) => "start: \"\"",
        (false, true) => "start: CHOICE | \"\"",
        (false, false) => "start: CHOICE",
    });
    if !terminals.is_empty() {
        lark.push_str("\nCHOICE: ");
        lark.push_str(&terminals.join(" | "));
    }
    Ok(lark)
}

/// Lark's strings are JSON's, which leave DEL as it is where Lark does not.
fn lark_string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
