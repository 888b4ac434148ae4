//! What the prefix cache may do.
//!
//! Neighbours: part of `config.rs`; read by `block_manager/`.

/// To which length a cached prefix is reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefixGranularity {
    /// Whole blocks only.
    Block,
    /// To the token: a block that matches in part is copied, up to where it matches.
    #[default]
    Token,
}

/// The prefix cache's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixCacheConfig {
    /// Whether computed blocks are kept to be found by later sequences.
    pub enabled: bool,
    /// To which length prefixes are reused.
    pub granularity: PrefixGranularity,
    /// Most blocks that one tenant may keep pinned, over all KV groups. 0: nothing can be pinned.
    pub pinned_blocks_per_tenant_max: usize,
    /// What decides keys and values for every sequence of this model, by name: data type of the KV
    /// cache, changed RoPE, and the model itself.
    pub model_keys: Vec<(String, Vec<u8>)>,
}

impl Default for PrefixCacheConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            granularity: PrefixGranularity::default(),
            pinned_blocks_per_tenant_max: 0,
            model_keys: Vec::new(),
        }
    }
}
