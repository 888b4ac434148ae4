//! Why a grammar cannot be compiled, or a vocabulary not be used for grammars.
//!
//! Neighbours: [`super::source`] and [`super::compiler`] (who return the first),
//! [`super::vocabulary`] (who returns the second).

use forerun_engine::TokenId;

use super::source::GrammarKind;

/// A grammar was refused. The request that brought it fails, nothing else does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarCompileError {
    /// It is not well formed, asks for something that is not supported, or is too complex.
    #[error("the {kind} cannot be used: {detail}")]
    Refused {
        /// What was given.
        kind: GrammarKind,
        /// Place and reason, in one or several lines.
        detail: String,
    },
    /// It is longer than what is compiled.
    #[error("the {kind} has {num_bytes} bytes, at most {num_bytes_max} are compiled: shorten it")]
    TooLong {
        /// What was given.
        kind: GrammarKind,
        /// Its bytes; a JSON schema's as compact JSON.
        num_bytes: usize,
        /// Most bytes.
        num_bytes_max: usize,
    },
    /// Its parts are nested deeper than what is compiled.
    #[error("the {kind} is nested deeper than {depth_max} levels at {place}: flatten it")]
    TooDeep {
        /// What was given.
        kind: GrammarKind,
        /// Most levels.
        depth_max: usize,
        /// Where the first level too many begins, as a JSON pointer.
        place: String,
    },
    /// It names tokens by number or name.
    #[error(
        "the {kind} names tokens (`<name>` or `<[number]>`), but grammars describe text only: \
         write the text as a string ({detail})"
    )]
    NamesTokens {
        /// What was given.
        kind: GrammarKind,
        /// The first one, as far as it is known.
        detail: String,
    },
    /// There is nothing to choose from.
    #[error("the list of choices is empty: give at least one")]
    NoChoice,
    /// The system gave no thread to compile on.
    #[error("cannot start a thread to compile the {kind}: {detail}")]
    NoThread {
        /// What was given.
        kind: GrammarKind,
        /// The system's reason.
        detail: String,
    },
}

/// Grammars cannot be used with a vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarVocabularyError {
    /// Without an end token a text could not end where its grammar lets it.
    #[error("structured output needs an end token, and this model names none: name one")]
    NoEndToken,
    /// An end token that the model has no logit for.
    #[error("end token {token} is outside the vocabulary of {vocab_size} tokens")]
    EndTokenOutOfVocabulary {
        /// The token.
        token: TokenId,
        /// Logits of the model.
        vocab_size: usize,
    },
    /// More tokens or longer ones than the trie has room for.
    #[error(
        "the vocabulary has {vocab_size} tokens and {num_nodes} distinct prefixes, structured \
         output works up to {vocab_size_max} and {num_nodes_max}"
    )]
    TooLarge {
        /// Logits of the model.
        vocab_size: usize,
        /// Most logits.
        vocab_size_max: usize,
        /// Nodes of the trie over all tokens.
        num_nodes: usize,
        /// Most nodes.
        num_nodes_max: usize,
    },
    /// llguidance refused it.
    #[error("structured output cannot use this vocabulary: {detail}")]
    Refused {
        /// Its reason.
        detail: String,
    },
}
