//! Chat templates: a conversation as the text that a model was trained on.
//!
//! Templates are Jinja as `transformers` runs it in Python: blocks trimmed, white space before
//! blocks stripped, one newline at the end of the template dropped, loop controls, Python's
//! methods on texts, lists and maps, and the functions in [`functions`]. A template that refuses a
//! conversation (`raise_exception`) is an error with its message, never a silent other template.
//!
//! Neighbours: [`marks`] (who wrote what), [`super::tokenizer`] (which tokenizes the result).

mod functions;
pub(super) mod marks;
mod python_json;
mod strftime;

use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};
use serde::{Deserialize, Serialize};

pub use self::strftime::Clock;

/// The name under which the template is kept.
const NAME: &str = "chat_template";

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A turn.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }
}

/// Whether the text ends with the beginning of the model's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationPrompt {
    /// It does: the model is to answer.
    Add,
    /// It does not: the conversation is complete.
    Omit,
}

/// A chat template could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The model's files hold no template.
    #[error(
        "the model has no chat template: it is a base model, or its template was left out; give a \
         plain prompt instead of a conversation, or supply a template"
    )]
    Absent,
    /// The template is not valid.
    #[error("the chat template is not valid Jinja: {0}")]
    Syntax(String),
    /// The template refused the conversation.
    #[error("the chat template refuses this conversation: {0}")]
    Refused(String),
    /// The template failed.
    #[error("the chat template failed on this conversation: {0}")]
    Failed(String),
}

/// A compiled chat template with the special tokens of its tokenizer.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    special_tokens: Vec<(String, String)>,
}

impl ChatTemplate {
    /// Compiles `source`; `special_tokens` are names and texts (`bos_token`, `<s>`) for it to use.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`].
    pub fn new(source: &str, special_tokens: Vec<(String, String)>) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = environment
            .syntax()
            .to_builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(|error| TemplateError::Syntax(describe(&error)))?);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        functions::register(&mut environment);
        functions::set_clock(&mut environment, Clock::System);
        environment
            .add_template_owned(NAME, functions::without_generation_blocks(source))
            .map_err(|error| TemplateError::Syntax(describe(&error)))?;
        Ok(Self {
            environment,
            source: source.to_owned(),
            special_tokens,
        })
    }

    /// Replaces the clock that `strftime_now` reads.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        functions::set_clock(&mut self.environment, clock);
        self
    }

    /// The template as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn special_tokens(&self) -> &[(String, String)] {
        &self.special_tokens
    }

    /// The text of a conversation.
    ///
    /// # Errors
    /// [`TemplateError::Refused`] with the template's own words, [`TemplateError::Failed`].
    pub fn render(
        &self,
        messages: &[Message],
        prompt: GenerationPrompt,
    ) -> Result<String, TemplateError> {
        let specials = Value::from_pairs(self.special_tokens.iter().cloned());
        let conversation = context! {
            messages => Serde(messages),
            add_generation_prompt => prompt == GenerationPrompt::Add,
            ..specials
        };
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| failure(&error))?;
        template
            .render(conversation)
            .map_err(|error| failure(&error))
    }
}

fn failure(error: &minijinja::Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(functions::Raised(message)) = error.downcast_ref() {
            return TemplateError::Refused(message.clone());
        }
        cause = error.source();
    }
    TemplateError::Failed(describe(error))
}

fn describe(error: &minijinja::Error) -> String {
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{detail} (line {line})"),
        None => detail,
    }
}
