//! The engine's configuration for a loaded model.
//!
//! Neighbours: sizes come from [`crate::memory_plan`] and [`crate::config`]; callers add their
//! scheduling and prefix cache settings.

use forerun_engine::{
    EngineConfig, KvGroupConfig, PrefixCacheConfig, SchedulingConfig, SpeculationConfig, TokenId,
};

use crate::draft_model::DraftModelInfo;
use crate::model::LoadedModel;

impl LoadedModel {
    /// A configuration that runs the model: its KV groups, lengths and end tokens, with up to
    /// `step_tokens_max` tokens and `step_seqs_max` sequences in a step.
    pub fn engine_config(&self, step_tokens_max: usize, step_seqs_max: usize) -> EngineConfig {
        let config = &self.config;
        let groups = self.plan.groups.iter().map(|group| KvGroupConfig {
            num_blocks: group.num_blocks,
            window: group.window,
        });
        EngineConfig {
            block_size: self.plan.block_size,
            groups: groups.collect(),
            step_tokens_max: step_tokens_max.max(step_seqs_max),
            step_seqs_max,
            max_seq_len: config.max_seq_len,
            vocab_size: config.vocab_size,
            eos_token_ids: config.eos_ids.iter().map(|&id| TokenId(id)).collect(),
            prefix_cache: PrefixCacheConfig::default(),
            scheduling: SchedulingConfig::default(),
            speculation: SpeculationConfig {
                draft_model: (self.draft_model.as_ref()).map(DraftModelInfo::engine_config),
                layer_skip_cost: self.runner.draft_layers_cost(),
                ..SpeculationConfig::default()
            },
        }
    }
}
