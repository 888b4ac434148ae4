//! A request of a test, with what the engine gets only later: its grammar, the rest of its prompt.
//!
//! Neighbours: made by `workload.rs` and the scenarios; `world.rs` sends it, `oracle.rs` answers it.

use std::collections::VecDeque;

use forerun_engine::{CacheKeys, Event, FinishReason, Request, RowLogprobs, TokenId, Usage};

use crate::fake_grammar::FakeGrammar;
use crate::fake_model::{Scores, mix};

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// With the whole prompt, also where it comes in pieces.
    pub(crate) request: Request,
    pub(crate) grammar: Option<FakeGrammar>,
    /// The rest of the prompt after the first tokens, for a request that waits for input.
    pub(crate) pieces: VecDeque<Vec<TokenId>>,
}

impl Job {
    pub(crate) fn new(request: Request) -> Self {
        Self {
            request,
            grammar: None,
            pieces: VecDeque::new(),
        }
    }

    /// What the engine gets first.
    pub(crate) fn first_request(&self) -> Request {
        let num_later: usize = self.pieces.iter().map(Vec::len).sum();
        let mut request = self.request.clone();
        request.prompt.truncate(request.prompt.len() - num_later);
        request
    }

    /// Whose keys it has, as a number.
    pub(crate) fn tenant(&self) -> u64 {
        let CacheKeys {
            tenant,
            adapter,
            extra,
        } = &self.request.cache_keys;
        let text = format!("{tenant:?}{adapter:?}{extra:?}");
        text.bytes().fold(1, |hash, b| mix(hash, u64::from(b)))
    }
}

/// One sample, as far as it came.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SampleOutput {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) text: Vec<u8>,
    /// Per token, where asked for.
    pub(crate) scores: Vec<Option<Scores>>,
    pub(crate) reason: Option<FinishReason>,
}

/// What came of a request so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) samples: Vec<SampleOutput>,
    pub(crate) prompt_scores: Vec<(TokenId, Option<Scores>)>,
    pub(crate) usage: Option<Usage>,
}

fn owned(logprobs: Option<RowLogprobs<'_>>) -> Option<Scores> {
    logprobs.map(|row| Scores {
        chosen: row.chosen,
        rank: row.rank,
        top: row.top.to_vec(),
    })
}

impl Progress {
    pub(crate) fn new(num_samples: u32) -> Self {
        Self {
            samples: vec![SampleOutput::default(); num_samples as usize],
            ..Self::default()
        }
    }

    /// Takes an event: everything comes once and in order.
    pub(crate) fn take(&mut self, event: &Event<'_>) {
        assert!(self.usage.is_none(), "{event:?} comes after the end");
        match *event {
            Event::Draft { .. } => {}
            Event::PromptToken {
                token, logprobs, ..
            } => {
                let is_first = self.samples.iter().all(|s| s.tokens.is_empty());
                assert!(is_first, "the prompt is told before anything else");
                self.prompt_scores.push((token, owned(logprobs)));
            }
            Event::Token {
                sample,
                token,
                text,
                logprobs,
                ..
            } => {
                let sample = &mut self.samples[sample as usize];
                assert!(sample.reason.is_none(), "a token after the end");
                sample.tokens.push(token);
                sample.text.extend_from_slice(text);
                sample.scores.push(owned(logprobs));
            }
            Event::SampleFinished {
                sample,
                reason,
                text,
                ..
            } => {
                let sample = &mut self.samples[sample as usize];
                sample.text.extend_from_slice(text);
                let before = sample.reason.replace(reason.clone());
                assert!(before.is_none(), "a sample ends twice: {event:?}");
            }
            Event::Finished { usage, .. } => {
                let num_tokens: usize = self.samples.iter().map(|s| s.tokens.len()).sum();
                assert_eq!(usage.completion_tokens, num_tokens);
                assert!(usage.cached_tokens < usage.prompt_tokens.max(1));
                self.usage = Some(usage);
            }
        }
    }
}
