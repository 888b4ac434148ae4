//! The tokenizer: text to ids, ids to text, conversations to ids, whatever files it came from.
//!
//! Neighbours: [`super::gguf_tokenizer`] and [`super::hf_tokenizer`] (who make it),
//! [`super::added_tokens`] (tokens matched whole), [`super::detokenizer`] (the way back),
//! [`super::chat_template`] (conversations).

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use forerun_engine::{TokenId, Vocabulary};

use super::added_tokens::{AddedToken, AddedTokens};
use super::chat_template::marks::Marks;
use super::chat_template::{ChatTemplate, GenerationPrompt, Message, TemplateError};
use super::detokenizer::{ControlTokens, Detokenizer, TextStart};
use super::error::TextError;
use super::gguf_tokenizer::GgufVocabulary;
use super::gguf_tokenizer::byte_level::ByteLevel;
use super::gguf_tokenizer::sentence_piece::{SPACE_MARK, SentencePiece};
use super::hf_tokenizer::{self, HfPipeline};
use super::pieces::{Pieces, TokenKind};
use crate::loaders::GgufFile;

/// What becomes of text that spells a control token, such as `<|im_end|>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// It becomes that token: for prompts written by whoever runs the model.
    Recognise,
    /// It stays text: for what users write. User-defined tokens of the vocabulary, which are text,
    /// are still matched whole.
    AsText,
}

/// Whether BOS goes in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddBos {
    /// If the tokenizer's files say so. Text that begins with BOS already gets another.
    Auto,
    /// No.
    Never,
}

/// A tokenizer. Immutable and shared freely between threads.
pub struct Tokenizer {
    pieces: Arc<Pieces>,
    /// Matched in the text as it is, before everything else.
    added: AddedTokens,
    model: Model,
    bos: Bos,
    eos_token_ids: Vec<TokenId>,
    chat_template: Option<ChatTemplate>,
}

/// How text between added tokens is tokenized.
pub(super) enum Model {
    ByteLevel(Box<ByteLevel>),
    SentencePiece(Box<SentencePiece>),
    HuggingFace(Box<HfPipeline>),
}

/// The BOS token and whether it is added to raw text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bos {
    None,
    NotAdded(TokenId),
    Added(TokenId),
}

impl Bos {
    pub(super) fn id(self) -> Option<TokenId> {
        match self {
            Self::None => None,
            Self::NotAdded(id) | Self::Added(id) => Some(id),
        }
    }
}

impl Tokenizer {
    pub(super) fn new(
        pieces: Arc<Pieces>,
        added: AddedTokens,
        model: Model,
        bos: Bos,
        eos_token_ids: Vec<TokenId>,
    ) -> Self {
        let mut tokenizer = Self {
            pieces,
            added,
            model,
            bos,
            eos_token_ids: Vec::new(),
            chat_template: None,
        };
        tokenizer.add_eos_token_ids(eos_token_ids);
        tokenizer
    }

    /// From the metadata of a GGUF file.
    ///
    /// # Errors
    /// A tokenizer of another kind, or metadata that contradicts itself.
    pub fn from_gguf(file: &GgufFile) -> Result<Self, TextError> {
        GgufVocabulary::read(file)?.build()
    }

    /// From a folder with `tokenizer.json` and, beside it and each optional,
    /// `tokenizer_config.json`, `special_tokens_map.json`, `chat_template.jinja`,
    /// `generation_config.json` and `config.json` (of the last two, the end tokens).
    ///
    /// # Errors
    /// A file that is missing or wrong, or a decoder whose bytes are not known.
    pub fn from_hf_folder(folder: &Path) -> Result<Self, TextError> {
        hf_tokenizer::load(folder)
    }

    pub(super) fn with_template(mut self, template: Option<ChatTemplate>) -> Self {
        self.chat_template = template;
        self
    }

    /// Replaces the chat template, or gives one to a tokenizer without.
    ///
    /// # Errors
    /// The template is not valid Jinja.
    pub fn set_chat_template(&mut self, source: &str) -> Result<(), TextError> {
        let text = |id: TokenId| String::from_utf8_lossy(self.pieces.bytes(id)).into_owned();
        let specials = match &self.chat_template {
            Some(template) => template.special_tokens().to_vec(),
            None => [
                ("bos_token", self.bos.id()),
                ("eos_token", self.eos_token_ids.first().copied()),
            ]
            .into_iter()
            .filter_map(|(name, id)| Some((name.to_owned(), text(id?))))
            .collect(),
        };
        self.chat_template = Some(ChatTemplate::new(source, specials)?);
        Ok(())
    }

    /// Adds end tokens that other files name (`config.json`, a command line).
    pub fn add_eos_token_ids(&mut self, ids: impl IntoIterator<Item = TokenId>) {
        for id in ids {
            if !self.eos_token_ids.contains(&id) {
                self.eos_token_ids.push(id);
            }
        }
    }

    /// Token ids of a text.
    ///
    /// # Errors
    /// [`TextError::Encode`] if the tokenizer library refuses the text.
    pub fn encode(
        &self,
        text: &str,
        specials: SpecialTokens,
        add_bos: AddBos,
    ) -> Result<Vec<TokenId>, TextError> {
        let mut ids = match (self.bos, add_bos) {
            (Bos::Added(id), AddBos::Auto) => vec![id],
            _ => Vec::new(),
        };
        let recognition = Recognition {
            specials,
            tainted: &[],
        };
        self.encode_to(&self.normalize(text)?, &recognition, &mut ids)?;
        Ok(ids)
    }

    /// Token ids of a conversation. Control tokens are recognised where the template wrote them and
    /// stay text in what the messages say; nothing is added to what the template wrote, so BOS is
    /// there if the template wrote it.
    ///
    /// # Errors
    /// [`TemplateError`] if there is no template or it refuses the conversation.
    pub fn encode_chat(
        &self,
        messages: &[Message],
        prompt: GenerationPrompt,
    ) -> Result<Vec<TokenId>, TextError> {
        let template = self.chat_template()?;
        let mut tokens = vec![&self.added];
        if let Model::HuggingFace(model) = &self.model {
            tokens.push(model.normalized_names());
        }
        let marks = Marks::new(&tokens, messages, template.source());
        let rendered = template.render(&marks.mark_messages(messages), prompt)?;
        let (text, tainted) = marks.take_out(&self.normalize(&rendered)?);
        let specials = SpecialTokens::Recognise;
        let mut ids = Vec::new();
        self.encode_to(
            &text,
            &Recognition {
                specials,
                tainted: &tainted,
            },
            &mut ids,
        )?;
        Ok(ids)
    }

    /// The chat template.
    ///
    /// # Errors
    /// [`TemplateError::Absent`].
    pub fn chat_template(&self) -> Result<&ChatTemplate, TemplateError> {
        self.chat_template.as_ref().ok_or(TemplateError::Absent)
    }

    /// Text of all ids.
    pub fn decode(&self, ids: &[TokenId], controls: ControlTokens, start: TextStart) -> String {
        let mut detokenizer = self.detokenizer(controls, start);
        let mut text = String::new();
        for &id in ids {
            text.push_str(detokenizer.push(id));
        }
        text.push_str(detokenizer.finish());
        text
    }

    /// Text of ids that arrive one by one.
    pub fn detokenizer(&self, controls: ControlTokens, start: TextStart) -> Detokenizer {
        let has_space = match &self.model {
            Model::ByteLevel(_) => false,
            Model::SentencePiece(model) => model.adds_space(),
            Model::HuggingFace(model) => model.adds_space(),
        };
        let removes_space = has_space && start == TextStart::Beginning;
        Detokenizer::new(Arc::clone(&self.pieces), controls, removes_space)
    }

    /// Number of tokens. A model may have more rows of logits, for padding.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// What a token is; `None` past the vocabulary.
    pub fn token_kind(&self, id: TokenId) -> Option<TokenKind> {
        self.pieces.kind(id)
    }

    /// Bytes that a token adds to the text: none for control tokens and ids past the vocabulary.
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.pieces.text_bytes(id)
    }

    /// Bytes of a token, of a control token those of its name.
    pub fn token_name(&self, id: TokenId) -> &[u8] {
        self.pieces.bytes(id)
    }

    /// Tokens that end the text, from all sources, each once.
    pub fn eos_token_ids(&self) -> &[TokenId] {
        &self.eos_token_ids
    }

    /// The token that begins a text, if the files name one, added or not.
    pub fn bos_token_id(&self) -> Option<TokenId> {
        self.bos.id()
    }

    /// The text as added tokens are looked for in it.
    fn normalize<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, TextError> {
        Ok(match &self.model {
            Model::ByteLevel(model) => match model.words().normalize(text)? {
                Some(normalized) => Cow::Owned(normalized),
                None => Cow::Borrowed(text),
            },
            Model::SentencePiece(_) if text.contains(SPACE_MARK) => {
                Cow::Owned(text.replace(SPACE_MARK, " "))
            }
            Model::SentencePiece(_) | Model::HuggingFace(_) => Cow::Borrowed(text),
        })
    }

    fn encode_to(
        &self,
        text: &str,
        recognition: &Recognition<'_>,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), TextError> {
        let spans = self
            .added
            .split(text, |token, range| recognition.allows(token, range));
        if let Model::HuggingFace(model) = &self.model {
            return model.encode(text, &spans, recognition, ids);
        }
        for span in spans {
            match (span.token, &self.model) {
                (Some(id), _) => ids.push(id),
                (None, Model::ByteLevel(model)) => model.encode(&text[span.range], ids)?,
                (None, Model::SentencePiece(model)) => model.encode(&text[span.range], ids),
                (None, Model::HuggingFace(_)) => {}
            }
        }
        Ok(())
    }
}

impl Vocabulary for Tokenizer {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.pieces.text_bytes(id)
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match &self.model {
            Model::ByteLevel(_) => "byte-level BPE",
            Model::SentencePiece(_) => "SentencePiece BPE",
            Model::HuggingFace(_) => "tokenizer.json",
        };
        f.debug_struct("Tokenizer")
            .field("kind", &kind)
            .field("vocab_size", &self.vocab_size())
            .field("bos", &self.bos)
            .field("eos_token_ids", &self.eos_token_ids)
            .finish_non_exhaustive()
    }
}

/// Which control tokens count where.
pub(super) struct Recognition<'a> {
    pub(super) specials: SpecialTokens,
    /// Byte offsets, ascending, at which users wrote (part of) the name of a control token.
    pub(super) tainted: &'a [usize],
}

impl Recognition<'_> {
    /// Whether `token` counts at `range` of the text.
    pub(super) fn allows(&self, token: &AddedToken, range: Range<usize>) -> bool {
        if !token.is_control {
            return true;
        }
        let next = self.tainted.partition_point(|&offset| offset < range.start);
        let is_tainted = self
            .tainted
            .get(next)
            .is_some_and(|&offset| offset < range.end);
        self.specials == SpecialTokens::Recognise && !is_tainted
    }
}
