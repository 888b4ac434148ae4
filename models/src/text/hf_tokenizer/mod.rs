//! A tokenizer from a Hugging Face folder: `tokenizer.json` and what lies beside it.
//!
//! - BOS is added if `tokenizer_config.json` says so; where it does not say, if the post-processor
//!   of `tokenizer.json` puts special tokens in front. `config.json` is never asked for BOS.
//! - End of text: the union of `eos_token` and the end tokens of `generation_config.json` and
//!   `config.json`.
//! - Special tokens that a post-processor puts *after* a text are for training and are not added.
//!
//! Neighbours: [`pipeline`] (encoding), [`bytes`] (decoding), [`files`] (JSON),
//! [`super::tokenizer`].

mod bytes;
mod files;
mod pipeline;

use std::path::Path;
use std::sync::Arc;

use forerun_engine::TokenId;

use self::files::{Folder, TokenizerConfig};
pub(super) use self::pipeline::HfPipeline;
use super::added_tokens::{AddedToken, AddedTokens, Edges};
use super::chat_template::ChatTemplate;
use super::error::TextError;
use super::tokenizer::{Bos, Model, Tokenizer};

/// Loads the tokenizer of a folder.
pub(super) fn load(folder: &Path) -> Result<Tokenizer, TextError> {
    let folder = Folder::new(folder);
    let tokenizer = read_tokenizer(&folder)?;
    let config = folder.tokenizer_config()?;
    let bos = bos(&tokenizer, &config)?;
    let ends = end_ids(&folder, &tokenizer, &config)?;
    let template = match folder.chat_template(&config)? {
        Some(source) => Some(ChatTemplate::new(&source, config.special_tokens.clone())?),
        None => None,
    };
    let (pieces, adds_space) = bytes::read_pieces(&tokenizer)?;
    let (raw, names) = added_tokens(&tokenizer);
    let normalize = |token: &AddedToken| {
        let text = bytes::normalize(&tokenizer, &token.text)?;
        Ok(AddedToken {
            text,
            ..token.clone()
        })
    };
    let normalized = names
        .iter()
        .map(normalize)
        .collect::<Result<_, TextError>>()?;
    let model = Model::HuggingFace(Box::new(HfPipeline {
        tokenizer,
        normalized_added: AddedTokens::new(normalized),
        normalized_names: AddedTokens::new(names),
        adds_space,
    }));
    let added = AddedTokens::new(raw);
    Ok(Tokenizer::new(Arc::new(pieces), added, model, bos, ends).with_template(template))
}

fn read_tokenizer(folder: &Folder) -> Result<tokenizers::Tokenizer, TextError> {
    let name = "tokenizer.json";
    let bytes = folder.read(name)?;
    tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| folder.malformed(name, &error))
}

fn bos(tokenizer: &tokenizers::Tokenizer, config: &TokenizerConfig) -> Result<Bos, TextError> {
    let id = config
        .special_token("bos_token")
        .and_then(|text| tokenizer.token_to_id(text));
    let id = id.map(TokenId);
    let prefixed = bytes::prefix_token(tokenizer)?;
    Ok(match (config.add_bos_token, id.or(prefixed), prefixed) {
        (Some(true), None, _) => {
            return Err(TextError::BosWithoutId {
                asked_by: "add_bos_token",
            });
        }
        (Some(true), Some(id), _) | (None, _, Some(id)) => Bos::Added(id),
        (_, Some(id), _) => Bos::NotAdded(id),
        (_, None, _) => Bos::None,
    })
}

fn end_ids(
    folder: &Folder,
    tokenizer: &tokenizers::Tokenizer,
    config: &TokenizerConfig,
) -> Result<Vec<TokenId>, TextError> {
    let eos = config
        .special_token("eos_token")
        .and_then(|text| tokenizer.token_to_id(text));
    let mut ids: Vec<_> = eos.into_iter().map(TokenId).collect();
    for name in ["generation_config.json", "config.json"] {
        ids.extend(folder.eos_token_ids(name)?);
    }
    Ok(ids)
}

/// Added tokens to be matched in the text as it is, and those to be matched in normalised text.
fn added_tokens(tokenizer: &tokenizers::Tokenizer) -> (Vec<AddedToken>, Vec<AddedToken>) {
    let (mut raw, mut normalized) = (Vec::new(), Vec::new());
    let mut all: Vec<_> = tokenizer.get_added_tokens_decoder().into_iter().collect();
    all.sort_unstable_by_key(|(id, _)| *id);
    for (id, token) in all {
        let edges = Edges {
            strip_left: token.lstrip,
            strip_right: token.rstrip,
            single_word: token.single_word,
        };
        let list = if token.normalized {
            &mut normalized
        } else {
            &mut raw
        };
        let (text, is_control) = (token.content, token.special);
        list.push(AddedToken {
            id: TokenId(id),
            text,
            is_control,
            edges,
        });
    }
    (raw, normalized)
}
