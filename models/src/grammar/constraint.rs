//! The state of one sequence within its grammar.
//!
//! Neighbours: [`super::compiler`] (who makes it), `forerun_engine::Grammar` (how it is asked).

use std::sync::Arc;

use forerun_engine::{Grammar, GrammarError, TokenId};
use llguidance::Matcher;

use super::vocabulary::TokenVocabulary;

/// Most characters of a message of llguidance, which may quote the grammar.
const MESSAGE_CHARS_MAX: usize = 1000;

/// Where a sequence stands in its grammar.
#[derive(Clone)]
pub(super) struct TokenConstraint {
    matcher: Matcher,
    vocabulary: Arc<TokenVocabulary>,
    is_finished: bool,
}

impl TokenConstraint {
    pub(super) fn new(matcher: Matcher, vocabulary: Arc<TokenVocabulary>) -> Self {
        Self {
            matcher,
            vocabulary,
            is_finished: false,
        }
    }

    /// The same state with a lexer of its own, so that what one request makes of it costs others
    /// nothing. A plain clone shares the states that the lexer has found so far, and finds.
    pub(super) fn separate(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            vocabulary: Arc::clone(&self.vocabulary),
            is_finished: self.is_finished,
        }
    }
}

impl Grammar for TokenConstraint {
    fn fill_mask(&mut self, mask: &mut [u32]) -> Result<(), GrammarError> {
        if self.is_finished {
            self.vocabulary.select(self.vocabulary.ends(), mask);
            return Ok(());
        }
        let allowed = self.matcher.compute_mask().map_err(|error| GrammarError {
            message: match plain_message(&error).as_str() {
                "NoExtensionBias" => NO_TOKEN.to_owned(),
                message => format!("the grammar cannot go on: {message}"),
            },
        })?;
        self.vocabulary.select(allowed.as_slice(), mask);
        if mask.iter().all(|&word| word == 0) {
            return Err(GrammarError {
                message: NO_TOKEN.to_owned(),
            });
        }
        Ok(())
    }

    fn accept(&mut self, token: TokenId) -> Result<(), GrammarError> {
        if self.is_finished {
            return Err(GrammarError {
                message: format!("token {token} came after the end of the grammar"),
            });
        }
        self.matcher
            .consume_token(token.0)
            .map_err(|error| GrammarError {
                message: format!(
                    "the grammar does not allow token {token} here: {}",
                    plain_message(&error)
                ),
            })?;
        self.is_finished = self.matcher.is_stopped() || self.vocabulary.is_end(token);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Bytes that must come, cut into the longest tokens: that is how a tokenizer cuts them more often
    /// than not, while masks leave a choice among their beginnings.
    fn forced(&self, num_tokens_max: usize, _mask_words: usize) -> Vec<TokenId> {
        if self.is_finished || num_tokens_max == 0 {
            return Vec::new();
        }
        // A clone shares what the lexer found; the text is not advanced.
        let bytes = self.matcher.clone().compute_ff_bytes();
        self.vocabulary.longest_tokens(&bytes, num_tokens_max)
    }

    fn fork(&self) -> Box<dyn Grammar> {
        Box::new(self.clone())
    }
}

impl std::fmt::Debug for TokenConstraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenConstraint")
            .field("stop_reason", &self.matcher.stop_reason())
            .field("is_finished", &self.is_finished)
            .finish_non_exhaustive()
    }
}

const NO_TOKEN: &str = "no token of the vocabulary continues the text within its grammar";

/// llguidance's message without the backtraces and states that may follow it.
pub(super) fn plain_message(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let end = ["<non-verbose/>", "<state>", "<backtrace>"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min()
        .unwrap_or(text.len());
    let text = text[..end].trim();
    match text.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((cut, _)) => format!("{}..", &text[..cut]),
        None => text.to_owned(),
    }
}
