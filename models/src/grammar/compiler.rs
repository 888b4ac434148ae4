//! From a source to the constraint of a sequence.
//!
//! Compiling takes from below a millisecond to about a second, so it is for [`super::queue`]'s
//! thread and not for the engine's.
//!
//! Neighbours: [`super::source`] (what comes in), [`super::vocabulary`] (tokens),
//! [`super::constraint`] (what comes out).

use std::sync::Arc;
use std::thread;

use forerun_engine::{Grammar, TokenId, Vocabulary};
use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{Matcher, ParserFactory};

use super::constraint::{TokenConstraint, plain_message};
use super::error::{GrammarCompileError, GrammarVocabularyError};
use super::source::{GrammarSource, Prepared};
use super::vocabulary::TokenVocabulary;

/// Stack for compiling: llguidance follows references between rules by recursion, and a source as
/// long as the limit allows can chain thousands. Memory that is not used is not committed.
const STACK_BYTES: usize = 256 * 1024 * 1024;

/// What one grammar may cost: about 100 ms and 50 MB to compile, 15 ms for a mask, and states of
/// its lexer worth 50 MB over the whole life of a sequence and its forks.
fn parser_limits() -> ParserLimits {
    ParserLimits {
        max_lexer_states: 50_000,
        max_grammar_size: 250_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Compiles grammars for one model. Shared freely between threads.
pub struct GrammarCompiler {
    factory: ParserFactory,
    vocabulary: Arc<TokenVocabulary>,
}

impl GrammarCompiler {
    /// Reads the bytes of all tokens once: about a second for 250,000.
    ///
    /// `vocab_size` is the model's number of logits, which may be larger than the tokenizer's
    /// number of tokens; masks have as many bits. `end_token_ids` are the tokens that end a text.
    ///
    /// # Errors
    /// There is no end token, or one is outside the vocabulary, or the vocabulary is larger than
    /// llguidance's trie.
    pub fn new(
        vocabulary: &impl Vocabulary,
        vocab_size: usize,
        end_token_ids: &[TokenId],
    ) -> Result<Self, GrammarVocabularyError> {
        let vocabulary = Arc::new(TokenVocabulary::new(vocabulary, vocab_size, end_token_ids)?);
        let environment: TokEnv = Arc::clone(&vocabulary) as TokEnv;
        let mut factory = ParserFactory::new(
            &environment,
            InferenceCapabilities::default(),
            &SlicedBiasComputer::general_slices(),
        )
        .map_err(|error| GrammarVocabularyError::Refused {
            detail: plain_message(&error),
        })?;
        factory.quiet();
        *factory.limits_mut() = parser_limits();
        Ok(Self {
            factory,
            vocabulary,
        })
    }

    /// Compiles one grammar, for one sequence and its forks.
    ///
    /// # Errors
    /// The source is wrong, asks for what is not supported, or is too large.
    pub fn compile(&self, source: &GrammarSource) -> Result<Box<dyn Grammar>, GrammarCompileError> {
        Ok(Box::new(self.compile_prepared(&source.prepare()?)?))
    }

    pub(super) fn compile_prepared(
        &self,
        source: &Prepared,
    ) -> Result<TokenConstraint, GrammarCompileError> {
        let kind = source.kind();
        thread::scope(|scope| {
            let compiling = thread::Builder::new()
                .name("grammar-compile".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || self.compile_here(source))
                .map_err(|error| GrammarCompileError::NoThread {
                    kind,
                    detail: error.to_string(),
                })?;
            compiling.join().unwrap_or_else(|_panic| {
                Err(GrammarCompileError::Refused {
                    kind,
                    detail: "llguidance panicked over it: simplify it".to_owned(),
                })
            })
        })
    }

    fn compile_here(&self, source: &Prepared) -> Result<TokenConstraint, GrammarCompileError> {
        let kind = source.kind();
        let parser = self
            .factory
            .create_parser(source.to_llguidance()?)
            .map_err(|error| {
                let detail = plain_message(&error);
                if detail.contains("special token") {
                    // What follows lists the names that exist, none of which may be used either.
                    let detail = detail.split(';').next().unwrap_or_default().to_owned();
                    GrammarCompileError::NamesTokens { kind, detail }
                } else {
                    GrammarCompileError::Refused { kind, detail }
                }
            })?;
        if parser
            .parser
            .grammar()
            .lexer_spec()
            .special_token_rx
            .is_some()
        {
            return Err(GrammarCompileError::NamesTokens {
                kind,
                detail: "found after compiling".to_owned(),
            });
        }
        Ok(TokenConstraint::new(
            Matcher::new(Ok(parser)),
            Arc::clone(&self.vocabulary),
        ))
    }
}

impl std::fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarCompiler")
            .field("mask_len", &self.vocabulary.mask_len())
            .finish_non_exhaustive()
    }
}
