//! Errors as OpenAI's API tells them.
//!
//! Neighbours: returned by `request.rs` and what it calls; `batch/` writes them as error lines.

use forerun_engine::AdmissionError;
use serde::Serialize;

/// An error object: `{"message", "type", "param", "code"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ApiError {
    /// What was wrong, and what to do.
    pub(crate) message: String,
    #[serde(rename = "type")]
    kind: ErrorKind,
    /// The field of the request that was wrong.
    pub(crate) param: Option<String>,
    /// A name for programs.
    pub(crate) code: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum ErrorKind {
    #[serde(rename = "invalid_request_error")]
    InvalidRequest,
    #[serde(rename = "server_error")]
    Server,
}

impl ApiError {
    /// The request is wrong.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            kind: ErrorKind::InvalidRequest,
            param: None,
            code: None,
        }
    }

    /// A field of the request is wrong. The message begins with its name.
    pub(crate) fn field(param: impl Into<String>, what: impl std::fmt::Display) -> Self {
        let param = param.into();
        Self {
            param: Some(param.clone()),
            ..Self::invalid(format!("{param}: {what}"))
        }
    }

    /// The request was right, but could not be answered.
    pub(crate) fn server(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Server,
            ..Self::invalid(message)
        }
    }

    /// The same with a name for programs.
    pub(crate) fn with_code(self, code: &'static str) -> Self {
        Self {
            code: Some(code),
            ..self
        }
    }

    /// The HTTP status that goes with it.
    pub(crate) fn status_code(&self) -> u16 {
        match self.kind {
            ErrorKind::InvalidRequest => 400,
            ErrorKind::Server => 500,
        }
    }
}

impl From<AdmissionError> for ApiError {
    fn from(error: AdmissionError) -> Self {
        let param = match &error {
            AdmissionError::EmptyPrompt
            | AdmissionError::PromptTooLong { .. }
            | AdmissionError::DoesNotFit { .. } => Some("prompt"),
            AdmissionError::TokenOutOfVocabulary { field, .. }
            | AdmissionError::OutOfRange { field, .. }
            | AdmissionError::TooManyLogprobs { field, .. } => Some(*field),
            AdmissionError::RepeatedBias { .. } => Some("logit_bias"),
            AdmissionError::NoTokensAsked => Some("max_tokens"),
            AdmissionError::MinTokens { .. } => Some("min_tokens"),
            AdmissionError::EmptyStopString { .. } => Some("stop"),
            AdmissionError::NumSamples { .. } | AdmissionError::TooWide { .. } => Some("n"),
            AdmissionError::QueueFull { .. } | AdmissionError::NotParked { .. } => None,
        };
        let code = match &error {
            AdmissionError::PromptTooLong { .. } | AdmissionError::DoesNotFit { .. } => {
                Some("context_length_exceeded")
            }
            _ => None,
        };
        Self {
            param: param.map(str::to_owned),
            code,
            ..Self::invalid(error.to_string())
        }
    }
}
