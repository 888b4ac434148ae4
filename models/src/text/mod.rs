//! Text in, token ids out, and back: tokenizers, chat templates, streaming detokenisation.
//!
//! ```text
//! gguf_tokenizer/   a tokenizer from the metadata of a GGUF file        ┐
//! hf_tokenizer/     a tokenizer from a folder with tokenizer.json       ┴> tokenizer.rs
//! added_tokens.rs   control and user-defined tokens, matched whole in text
//! pieces.rs         bytes and kind of every token
//! detokenizer.rs    token ids to text, whole or as a stream
//! chat_template/    conversations to text, as Jinja in Python would
//! ```
//!
//! Three rules hold everywhere:
//! - **User text never becomes a control token** in a conversation: [`Tokenizer::encode_chat`]
//!   recognises control tokens only where the template wrote them (`chat_template/marks.rs`).
//! - **BOS is added where the tokenizer says so**, to raw text, and never to a conversation (the
//!   template writes it) nor to token ids. Whether text begins with BOS already is not guessed.
//! - **Text is a byte stream**: each token adds its bytes, and the chunks of a stream join to
//!   exactly the full decode.
//!
//! Neighbours: [`crate::loaders::gguf`] (metadata), `forerun_engine` (token ids; stop strings).

mod added_tokens;
pub mod chat_template;
mod detokenizer;
mod error;
mod gguf_tokenizer;
mod hf_tokenizer;
mod pieces;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use self::chat_template::{ChatTemplate, Clock, GenerationPrompt, Message, TemplateError};
pub use self::detokenizer::{ControlTokens, Detokenizer, TextStart, Utf8Stream};
pub use self::error::TextError;
pub use self::pieces::TokenKind;
pub use self::tokenizer::{AddBos, SpecialTokens, Tokenizer};
