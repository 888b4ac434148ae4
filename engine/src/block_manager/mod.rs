//! A slot for every token: gives blocks of each KV group to sequences, shares them between
//! sequences with equal beginnings, and takes them back.
//!
//! In reading order: this file holds the pools and takes blocks back; `reserve.rs` gives them and
//! copies shared ones before they are written; `lookup.rs` finds and adopts cached prefixes;
//! `publish.rs` makes blocks findable; `pins.rs` keeps some from eviction.
//!
//! Neighbours: called by `scheduler.rs` (lookup, adopt, reserve, release) and `engine.rs` (publish,
//! release, windows, copies); per group one [`BlockPool`], one [`PrefixCache`], and one
//! [`BlockTable`] per sequence.

mod integrity;
mod lookup;
mod pins;
mod publish;
mod reserve;
#[cfg(test)]
mod tests;

use crate::prefix_cache::{EvictedHashes, PrefixCache};
use crate::{
    BlockHash, BlockId, BlockPool, BlockTable, CacheKeys, EngineConfig, HashChain,
    PrefixCacheConfig,
};

pub use self::lookup::{MissReason, PartialHit, PrefixHit};
use self::pins::PinRecord;
pub use self::pins::{Pin, PinError, PinId};
pub use self::reserve::OutOfBlocks;

/// The pools of all KV groups, and what is cached in them.
#[derive(Clone, Debug)]
pub struct BlockManager {
    block_size: usize,
    config: PrefixCacheConfig,
    groups: Vec<Group>,
    /// The oldest first.
    pins: Vec<PinRecord>,
    num_pins_ever: u64,
    num_resets: u64,
}

/// One KV group.
#[derive(Clone, Debug)]
struct Group {
    pool: BlockPool,
    window: Option<usize>,
    /// Most blocks that one sequence holds at once, where a window bounds them.
    held_max: Option<usize>,
    cache: PrefixCache,
    evicted: EvictedHashes,
    /// How often a published block ceased to be so: a [`PrefixHit`] from before may name it.
    num_lost: u64,
    /// Copies to be made before the next step writes, as (source, destination).
    copies: Vec<(BlockId, BlockId)>,
}

impl BlockManager {
    /// Pools as `config` says, all free, nothing cached.
    pub fn new(config: &EngineConfig) -> Self {
        let groups = config
            .groups
            .iter()
            .map(|group| Group {
                pool: BlockPool::new(group.num_blocks),
                window: group.window,
                held_max: config.held_blocks_max(group),
                cache: PrefixCache::new(group.num_blocks, config.block_size),
                evicted: EvictedHashes::new(),
                num_lost: 0,
                copies: Vec::new(),
            })
            .collect();
        Self {
            block_size: config.block_size,
            config: config.prefix_cache.clone(),
            groups,
            pins: Vec::new(),
            num_pins_ever: 0,
            num_resets: 0,
        }
    }

    /// An empty block table for each group.
    pub fn new_tables(&self) -> Vec<BlockTable> {
        self.groups
            .iter()
            .map(|_| BlockTable::new(self.block_size))
            .collect()
    }

    /// The chain of a sequence with `keys`, no block hashed yet.
    pub fn new_chain(&self, keys: &CacheKeys) -> HashChain {
        let root = BlockHash::root(keys, &self.config.model_keys, self.block_size);
        HashChain::new(root, self.block_size)
    }

    /// Tokens per block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Copies scheduled for the next step, over all groups.
    pub fn num_copies(&self) -> usize {
        self.groups.iter().map(|group| group.copies.len()).sum()
    }

    /// KV groups.
    pub fn num_groups(&self) -> usize {
        self.groups.len()
    }

    /// Blocks of group `group` that nobody holds. Some may still be found in the prefix cache.
    pub fn num_free(&self, group: usize) -> usize {
        self.groups[group].pool.num_free()
    }

    /// Usable blocks of group `group`, free or not.
    pub fn num_usable(&self, group: usize) -> usize {
        self.groups[group].pool.num_usable()
    }

    /// Blocks of group `group` that somebody holds: sequences, pins, or copies to be made.
    pub fn num_referenced(&self, group: usize) -> usize {
        self.num_usable(group) - self.num_free(group)
    }

    /// Blocks of group `group` that the prefix cache knows, held or free.
    pub fn num_cached(&self, group: usize) -> usize {
        self.groups[group].cache.num_cached()
    }

    /// Shares every block with a new sequence, which begins with the same tokens: one more
    /// reference to each. Whoever writes first into a shared block gets a copy of it
    /// ([`BlockManager::reserve`]).
    pub fn fork(&mut self, tables: &[BlockTable]) -> Vec<BlockTable> {
        for (state, table) in self.groups.iter_mut().zip(tables) {
            for &block in table.held_blocks() {
                state.pool.touch(block);
            }
        }
        tables.to_vec()
    }

    /// Takes every block back, last first. What was published can still be found.
    pub fn release(&mut self, tables: &mut [BlockTable]) {
        for (state, table) in self.groups.iter_mut().zip(tables) {
            state.pool.free(table.held_blocks().iter().rev().copied());
            table.clear();
        }
    }

    /// Takes back the blocks that no later query can see: those wholly before the window of the
    /// query at position `num_computed`, the next one. What was published can still be found.
    pub fn release_outside_windows(&mut self, tables: &mut [BlockTable], num_computed: usize) {
        for (state, table) in self.groups.iter_mut().zip(tables) {
            if let Some(window) = state.window {
                // That query sees positions [num_computed + 1 - window, num_computed].
                let first_visible = (num_computed + 1).saturating_sub(window);
                state.pool.free(table.release_before(first_visible).rev());
            }
        }
    }

    /// Forgets all that is cached and pinned. Blocks in use stay in use, but they are not found any
    /// more, and what their sequences compute from now on is not published: it builds on them.
    pub fn reset_cache(&mut self) {
        while self.break_oldest_pin() {}
        for state in &mut self.groups {
            state.cache.clear();
            state.evicted.clear();
            state.num_lost += 1;
        }
        self.num_resets += 1;
    }
}
