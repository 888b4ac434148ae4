//! What a step tells the caller: tokens, their text, and how requests end.
//!
//! Neighbours: written by `sequence/mod.rs` and `commit.rs`; returned by `Engine::step`.

use thiserror::Error;

use crate::executor::RowLogprobs;
use crate::{DraftTree, RequestId, SpeculationReport, TokenId, TokenLogprob};

/// Something that happened to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// A token of the prompt was scored: for requests that ask for prompt log-probabilities, once
    /// per token in order, before anything is generated.
    PromptToken {
        /// The request.
        request: RequestId,
        /// The token.
        token: TokenId,
        /// Of the token after those before it; none for the first.
        logprobs: Option<RowLogprobs<'a>>,
    },
    /// A draft was verified. The tokens that come of it follow: those that it accepted, in order,
    /// then one that the target chose, unless the sample ended before.
    Draft {
        /// The request.
        request: RequestId,
        /// Which sample.
        sample: u32,
        /// What was guessed.
        draft: &'a DraftTree,
        /// Tokens accepted, those after the end of the sample not counted.
        num_accepted: usize,
    },
    /// A token was added to a sample of the request's output.
    Token {
        /// The request.
        request: RequestId,
        /// Which sample, below the number asked for.
        sample: u32,
        /// The token.
        token: TokenId,
        /// Bytes of text that became certain with it: may be empty, may end inside a character,
        /// never shows part of a stop string.
        text: &'a [u8],
        /// If the request asked for them.
        logprobs: Option<RowLogprobs<'a>>,
    },
    /// A sample has ended. Comes once for each sample asked for, except that a beam search tells
    /// fewer if there are not so many texts (a tiny vocabulary, a strict grammar).
    SampleFinished {
        /// The request.
        request: RequestId,
        /// Which sample.
        sample: u32,
        /// Why.
        reason: &'a FinishReason,
        /// The last bytes of its text: those held back for a stop string that did not come.
        text: &'a [u8],
    },
    /// The request has ended; nothing more comes of it. Comes once for every accepted request.
    Finished {
        /// The request.
        request: RequestId,
        /// What it took.
        usage: Usage,
        /// What speculation did for it.
        speculation: &'a SpeculationReport,
    },
}

/// Why a sample ended.
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
    /// The request's grammar allows nothing more.
    Grammar,
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
    /// The grammar could not be compiled, or refused a token that it had allowed.
    #[error("the grammar failed: {0}")]
    Grammar(String),
    /// Something that the request was waiting for failed.
    #[error("{0}")]
    Outside(String),
}

/// What a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated in the samples that are returned, end tokens included.
    pub completion_tokens: usize,
    /// Prompt tokens taken from the prefix cache when the request was first admitted.
    pub cached_tokens: usize,
}

/// The events of one step, in order. The buffers are reused from step to step.
#[derive(Clone, Debug, Default)]
pub struct Events {
    records: Vec<Record>,
    /// The text of all events, one after another.
    text: Vec<u8>,
    /// The likeliest tokens of all events, one after another.
    top: Vec<TokenLogprob>,
    /// The caller has seen them: the next event begins a new list.
    is_delivered: bool,
}

#[derive(Clone, Debug)]
struct Record {
    request: RequestId,
    kind: RecordKind,
    logprobs: Option<(TokenLogprob, u32)>,
    /// The record's text ends here in the buffer and begins where the last one's ends.
    text_end: usize,
    /// Likewise its likeliest tokens.
    top_end: usize,
}

#[derive(Clone, Debug)]
enum RecordKind {
    PromptToken(TokenId),
    Token(u32, TokenId),
    SampleFinished(u32, FinishReason),
    Finished(Box<(Usage, SpeculationReport)>),
    Draft(u32, DraftTree, usize),
}

impl Events {
    /// Events in the order in which they happened.
    pub fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        let (mut text_start, mut top_start) = (0, 0);
        self.records.iter().map(move |record| {
            let text = &self.text[text_start..record.text_end];
            let top = &self.top[top_start..record.top_end];
            (text_start, top_start) = (record.text_end, record.top_end);
            let request = record.request;
            let logprobs = record
                .logprobs
                .map(|(chosen, rank)| RowLogprobs { chosen, rank, top });
            match &record.kind {
                &RecordKind::PromptToken(token) => Event::PromptToken {
                    request,
                    token,
                    logprobs,
                },
                &RecordKind::Token(sample, token) => Event::Token {
                    request,
                    sample,
                    token,
                    text,
                    logprobs,
                },
                RecordKind::SampleFinished(sample, reason) => Event::SampleFinished {
                    request,
                    sample: *sample,
                    reason,
                    text,
                },
                RecordKind::Finished(end) => Event::Finished {
                    request,
                    usage: end.0,
                    speculation: &end.1,
                },
                RecordKind::Draft(sample, draft, num_accepted) => Event::Draft {
                    request,
                    sample: *sample,
                    draft,
                    num_accepted: *num_accepted,
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
            self.top.clear();
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

    /// Adds a scored token of the prompt.
    pub(crate) fn push_prompt_token(
        &mut self,
        request: RequestId,
        token: TokenId,
        logprobs: Option<RowLogprobs<'_>>,
    ) {
        self.push(request, RecordKind::PromptToken(token), logprobs);
    }

    /// Adds a token with the text appended since the last event.
    pub(crate) fn push_token(
        &mut self,
        (request, sample): (RequestId, u32),
        token: TokenId,
        logprobs: Option<RowLogprobs<'_>>,
    ) {
        self.push(request, RecordKind::Token(sample, token), logprobs);
    }

    /// Adds the end of a sample with the text appended since the last event.
    pub(crate) fn push_sample_finished(
        &mut self,
        (request, sample): (RequestId, u32),
        reason: FinishReason,
    ) {
        self.push(request, RecordKind::SampleFinished(sample, reason), None);
    }

    /// Adds the end of a request.
    pub(crate) fn push_finished(
        &mut self,
        request: RequestId,
        usage: Usage,
        speculation: SpeculationReport,
    ) {
        let end = Box::new((usage, speculation));
        self.push(request, RecordKind::Finished(end), None);
    }

    /// Adds a draft that was verified.
    pub(crate) fn push_draft(
        &mut self,
        (request, sample): (RequestId, u32),
        draft: DraftTree,
        num_accepted: usize,
    ) {
        self.push(
            request,
            RecordKind::Draft(sample, draft, num_accepted),
            None,
        );
    }

    fn push(&mut self, request: RequestId, kind: RecordKind, logprobs: Option<RowLogprobs<'_>>) {
        if let Some(logprobs) = logprobs {
            self.top.extend_from_slice(logprobs.top);
        }
        self.records.push(Record {
            request,
            kind,
            logprobs: logprobs.map(|logprobs| (logprobs.chosen, logprobs.rank)),
            text_end: self.text.len(),
            top_end: self.top.len(),
        });
    }
}
