//! A second, smaller model that drafts for the first: checked, loaded, and given its share of the KV
//! memory.
//!
//! Neighbours: [`crate::model`] loads either; `runner/drafting.rs` runs it; the engine decides when.

use forerun_engine::{DraftModelConfig, KvGroupConfig, TokenId};
use thiserror::Error;

use crate::memory_plan::MemoryPlan;
use crate::model::{LoadOptions, LoadedModel, ModelError, ModelFiles};
use crate::runner::DraftModelParts;
use crate::text::Tokenizer;

/// Why a model cannot draft for another.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DraftModelError {
    /// The models cut text differently, so that one's tokens mean nothing to the other.
    #[error(
        "`{draft}` cannot draft for `{target}`: token {id} is {draft_text} there and {target_text} \
         here. A draft model needs the same tokenizer"
    )]
    OtherTokenizer {
        /// The draft model.
        draft: String,
        /// The model it was to draft for.
        target: String,
        /// The first token that differs.
        id: TokenId,
        /// What it is to the draft model.
        draft_text: String,
        /// What it is to the target.
        target_text: String,
    },
}

/// What the engine has to know of a loaded draft model.
#[derive(Clone, Debug)]
pub struct DraftModelInfo {
    /// Its name.
    pub name: String,
    /// Its memory.
    pub plan: MemoryPlan,
    /// What a pass of it costs, in thousandths of one of the target: weights read.
    pub cost: u32,
}

impl DraftModelInfo {
    /// Its part of an engine's configuration.
    pub fn engine_config(&self) -> DraftModelConfig {
        let groups = self.plan.groups.iter().map(|group| KvGroupConfig {
            num_blocks: group.num_blocks,
            window: group.window,
        });
        DraftModelConfig {
            groups: groups.collect(),
            max_seq_len: self.plan.max_seq_len,
            cost: self.cost,
        }
    }
}

/// How many token ids mean the same to both tokenizers: vocabularies may be padded differently, but
/// what both have must be equal.
///
/// # Errors
/// [`DraftModelError`] names the first token that differs.
pub fn num_shared_tokens(
    (target_name, target): (&str, &Tokenizer),
    (draft_name, draft): (&str, &Tokenizer),
) -> Result<usize, DraftModelError> {
    let num_shared = target.vocab_size().min(draft.vocab_size());
    for id in (0..num_shared as u32).map(TokenId) {
        let is_same = target.token_name(id) == draft.token_name(id)
            && target.token_bytes(id) == draft.token_bytes(id);
        if !is_same {
            let shown = |tokenizer: &Tokenizer| {
                format!("{:?}", String::from_utf8_lossy(tokenizer.token_name(id)))
            };
            return Err(DraftModelError::OtherTokenizer {
                draft: draft_name.to_owned(),
                target: target_name.to_owned(),
                id,
                draft_text: shown(draft),
                target_text: shown(target),
            });
        }
    }
    Ok(num_shared)
}

/// Loads a model and one that drafts for it. KV memory is shared out in proportion to what a token takes
/// in each, so that both hold the same number of tokens.
///
/// # Errors
/// [`ModelError`] of either, or that they do not fit each other.
pub fn load(
    target: &ModelFiles,
    draft: &ModelFiles,
    options: &LoadOptions,
) -> Result<LoadedModel, ModelError> {
    let (target_name, draft_name) = (target.name(), draft.name());
    let num_shared = num_shared_tokens(
        (&target_name, &target.tokenizer()?),
        (&draft_name, &draft.tokenizer()?),
    )?;
    let granted = match options.kv_memory_bytes {
        Some(bytes) => bytes,
        None => target.plan(options)?.kv_bytes(),
    };
    let token_bytes = [
        target.kv_token_bytes(options),
        draft.kv_token_bytes(options),
    ];
    let share = |bytes: u64| {
        let all = u128::from(token_bytes.iter().sum::<u64>().max(1));
        let share = u128::from(granted) * u128::from(bytes) / all;
        LoadOptions {
            kv_memory_bytes: Some(u64::try_from(share).unwrap_or(granted)),
            ..options.clone()
        }
    };
    let mut loaded = target.load(&share(token_bytes[0]))?;
    let options = share(token_bytes[1]);
    let plan = draft.plan(&options)?;
    let decoder = draft.decoder(&options)?;
    let cost = 1000 * decoder.weight_bytes() / loaded.runner.decoder().weight_bytes().max(1);
    let parts = DraftModelParts {
        decoder,
        kv_specs: draft.kv_specs(&options),
        num_blocks: plan.groups.iter().map(|group| group.num_blocks).collect(),
        num_shared_tokens: num_shared
            .min(target.config().vocab_size)
            .min(draft.config().vocab_size),
    };
    loaded.runner.add_draft_model(parts, &options.device);
    loaded.draft_model = Some(DraftModelInfo {
        name: draft_name,
        plan,
        cost: u32::try_from(cost).unwrap_or(u32::MAX),
    });
    Ok(loaded)
}
