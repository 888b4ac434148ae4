//! What a step tells the caller: tokens, their text, and how requests end.
//!
//! Neighbours: written by `sequence/mod.rs` and `engine.rs`; returned by `Engine::step`.

use thiserror::Error;

use crate::{RequestId, TokenId};

/// Something that happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A token was added to the request's output.
    Token {
        /// The request.
        request: RequestId,
        /// The token.
        token: TokenId,
        /// Bytes of text that became certain with it: may be empty, may end inside a character,
        /// never shows part of a stop string.
        text: &'a [u8],
    },
    /// The request has ended; nothing more comes of it. Comes once for every accepted request.
    Finished {
        /// The request.
        request: RequestId,
        /// Why.
        reason: &'a FinishReason,
        /// What it took.
        usage: Usage,
        /// The last bytes of text: those held back for a stop string that did not come.
        text: &'a [u8],
    },
}

/// Why a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model, or the request's own stop conditions, ended the text.
    Stop(StopCause),
    /// `max_tokens` or the longest length was reached.
    Length,
    /// The caller aborted it.
    Aborted,
    /// It could not go on.
    Error(FailureCause),
}

/// What ended the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// One of the model's end tokens.
    Eos(TokenId),
    /// One of the request's stop tokens.
    Token(TokenId),
    /// The request's stop string of this index.
    String(usize),
}

/// Why a request could not go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FailureCause {
    /// The model gave no usable number for the next token.
    #[error(
        "the model's logits at position {position} are not finite: the weights or the number \
         format overflow, try --dtype f32"
    )]
    NotFinite {
        /// Position of the last token that went into them.
        position: usize,
    },
    /// The executor chose a token that does not exist.
    #[error("the executor chose token {token}, the vocabulary has {vocab_size}")]
    TokenOutOfVocabulary {
        /// The token.
        token: TokenId,
        /// Tokens in the vocabulary.
        vocab_size: usize,
    },
    /// The executor failed.
    #[error("the step failed: {0}")]
    Executor(String),
}

/// What a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated, the end token included.
    pub completion_tokens: usize,
    /// Prompt tokens taken from the prefix cache: none until there is one (issue 3).
    pub cached_tokens: usize,
}

/// The events of one step, in order. The buffer is reused from step to step.
#[derive(Clone, Debug, Default)]
pub struct Events {
    records: Vec<Record>,
    /// The text of all events, one after another.
    text: Vec<u8>,
    /// The caller has seen them: the next event begins a new list.
    is_delivered: bool,
}

#[derive(Clone, Debug)]
struct Record {
    request: RequestId,
    kind: RecordKind,
    /// The record's text ends here in the buffer and begins where the last one's ends.
    text_end: usize,
}

#[derive(Clone, Debug)]
enum RecordKind {
    Token(TokenId),
    Finished(FinishReason, Usage),
}

impl Events {
    /// Events in the order in which they happened.
    pub fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        let mut text_start = 0;
        self.records.iter().map(move |record| {
            let text = &self.text[text_start..record.text_end];
            text_start = record.text_end;
            let request = record.request;
            match &record.kind {
                &RecordKind::Token(token) => Event::Token {
                    request,
                    token,
                    text,
                },
                RecordKind::Finished(reason, usage) => Event::Finished {
                    request,
                    reason,
                    usage: *usage,
                    text,
                },
            }
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether there are events that no step has returned yet.
    pub(crate) fn are_pending(&self) -> bool {
        !self.is_delivered && !self.is_empty()
    }

    /// Forgets the events that were delivered. Those of an abort since then stay.
    pub(crate) fn begin(&mut self) {
        if self.is_delivered {
            self.records.clear();
            self.text.clear();
            self.is_delivered = false;
        }
    }

    /// The caller gets them now.
    pub(crate) fn deliver(&mut self) -> &Self {
        self.is_delivered = true;
        self
    }

    /// Where the text of the next event goes.
    pub(crate) fn text_mut(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Adds a token with the text appended since the last event.
    pub(crate) fn push_token(&mut self, request: RequestId, token: TokenId) {
        self.push(request, RecordKind::Token(token));
    }

    /// Adds an end with the text appended since the last event.
    pub(crate) fn push_finished(&mut self, request: RequestId, reason: FinishReason, usage: Usage) {
        self.push(request, RecordKind::Finished(reason, usage));
    }

    fn push(&mut self, request: RequestId, kind: RecordKind) {
        self.records.push(Record {
            request,
            kind,
            text_end: self.text.len(),
        });
    }
}
