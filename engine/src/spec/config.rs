//! How an engine speculates, unless a request asks for something else.
//!
//! Neighbours: part of `config.rs`; read by the speculator.

use super::SpecMethod;
use crate::KvGroupConfig;

/// Who drafts, and within which limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeculationConfig {
    /// Who drafts for requests that do not say.
    pub method: SpecMethod,
    /// Draft tokens per step, fixed; `None`: the controller decides up to `num_tokens_max`.
    pub num_tokens: Option<u32>,
    /// Most draft tokens of a sequence in one step, whoever asks for more.
    pub num_tokens_max: u32,
    /// Most children of a draft token: 1 for chains.
    pub width_max: u32,
    /// Shortest n-gram that is looked up.
    pub ngram_len_min: u32,
    /// Longest n-gram that is looked up.
    pub ngram_len_max: u32,
    /// The draft model, if the executor has one.
    pub draft_model: Option<DraftModelConfig>,
    /// What a guess of the target's first layers costs, in thousandths of a pass of the target, if the
    /// executor can run them alone.
    pub layer_skip_cost: Option<u32>,
}

/// What the engine has to know of a draft model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftModelConfig {
    /// Its KV groups, with pools of their own.
    pub groups: Vec<KvGroupConfig>,
    /// Most tokens of a sequence that it supports.
    pub max_seq_len: usize,
    /// What a guess costs, in thousandths of a pass of the target: how many weights are read.
    pub cost: u32,
}

impl Default for SpeculationConfig {
    /// Off.
    fn default() -> Self {
        Self {
            method: SpecMethod::Off,
            num_tokens: None,
            num_tokens_max: 16,
            width_max: 1,
            ngram_len_min: 2,
            ngram_len_max: 4,
            draft_model: None,
            layer_skip_cost: None,
        }
    }
}
