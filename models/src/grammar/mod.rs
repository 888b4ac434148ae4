//! Structured output: text that fits a JSON schema, a regex, a Lark grammar or a list of choices.
//!
//! ```text
//! source.rs      what is asked for, within limits; becomes text for llguidance
//! vocabulary.rs  the bytes of all tokens as llguidance's trie, built once per model
//! compiler.rs    source + vocabulary -> constraint
//! queue.rs       compiles on a thread of its own, and remembers what it compiled
//! constraint.rs  the state of one sequence: implements `forerun_engine::Grammar`
//! ```
//!
//! Rules that hold everywhere:
//! - **Any tokenization of a fitting text is allowed**: the mask is about bytes, the model chooses
//!   how to cut them.
//! - **A grammar never produces control tokens**, the end tokens aside, and those only where the
//!   text may end. What is masked in never depends on what a user's grammar names.
//! - **Sources are outside input**: how long compiling and one mask may take, and how much memory
//!   they use, is bounded, and what is beyond gets an error.
//!
//! The masks count bytes that a token adds in the middle of a text: a caller that cuts the leading
//! space of a SentencePiece token shows a text without it.
//!
//! Neighbours: [`crate::text`] (bytes of tokens), `forerun_engine` (asks for masks).

mod compiler;
mod constraint;
mod error;
mod queue;
mod source;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use self::compiler::GrammarCompiler;
pub use self::error::{GrammarCompileError, GrammarVocabularyError};
pub use self::queue::{CompileQueue, CompiledGrammar};
pub use self::source::{GrammarKind, GrammarSource};
