//! Tests of the block manager: pools and windows (`pools.rs`), the prefix cache's cases
//! (`cases.rs`), pins (`pins.rs`), golden data (`golden.rs`), damage (`damage.rs`), and random
//! operations on a simulated KV cache (`random.rs`, `simulated.rs`).

mod cases;
mod damage;
mod golden;
mod pins;
mod pools;
mod random;
mod simulated;

use super::*;
use crate::{KvGroupConfig, PrefixGranularity, TokenId};

/// Groups are (blocks with the null block, window).
fn config(block_size: usize, groups: &[(usize, Option<usize>)]) -> EngineConfig {
    let group = |&(num_blocks, window)| KvGroupConfig { num_blocks, window };
    EngineConfig {
        block_size,
        groups: groups.iter().map(group).collect(),
        step_tokens_max: 64,
        step_seqs_max: 8,
        max_seq_len: 1000,
        vocab_size: 100,
        eos_token_ids: vec![],
        prefix_cache: PrefixCacheConfig {
            pinned_blocks_per_tenant_max: 8,
            ..PrefixCacheConfig::default()
        },
        scheduling: crate::SchedulingConfig::default(),
        speculation: crate::SpeculationConfig::default(),
    }
}

fn by_blocks(mut config: EngineConfig) -> EngineConfig {
    config.prefix_cache.granularity = PrefixGranularity::Block;
    config
}

fn tokens(ids: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    ids.into_iter().map(TokenId).collect()
}

fn tenant(name: &str) -> CacheKeys {
    CacheKeys {
        tenant: Some(name.to_owned()),
        ..CacheKeys::default()
    }
}

/// Looks up, computes and publishes `tokens`, all of which count as computed, and ends. Returns the
/// hit.
fn serve(blocks: &mut BlockManager, keys: &CacheKeys, tokens: &[TokenId]) -> PrefixHit {
    let mut chain = blocks.new_chain(keys);
    let mut tables = blocks.new_tables();
    let hit = blocks.lookup(&mut chain, tokens, tokens.len() - 1);
    blocks
        .check_room(&tables, Some(&hit), tokens.len())
        .unwrap();
    let num_computed = blocks.adopt(&mut tables, &hit).unwrap();
    assert_eq!(num_computed, hit.num_tokens);
    blocks
        .reserve(&mut tables, num_computed, tokens.len())
        .unwrap();
    blocks.release_copy_sources();
    blocks.release_published(&mut tables, &mut chain, tokens, tokens.len());
    blocks.check_integrity(&[]).unwrap();
    hit
}
