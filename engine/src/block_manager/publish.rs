//! Makes computed blocks findable for later sequences.
//!
//! Neighbours: called by `engine.rs` after a commit and when a sequence ends or is preempted;
//! `lookup.rs` finds what is published here.

use super::BlockManager;
use crate::prefix_cache::BlockContent;
use crate::{BlockTable, HashChain, PrefixGranularity, TokenId};

impl BlockManager {
    /// Publishes the full blocks among the first `num_verified` of `tokens`, those not offered
    /// before. Cheap when no block has filled.
    ///
    /// `num_verified` counts tokens that are final (neither drafts nor placeholders) and whose keys
    /// and values are computed. A block whose contents are published already stays private.
    ///
    /// # Panics
    /// If fewer tokens are known or have slots.
    pub fn publish(
        &mut self,
        tables: &mut [BlockTable],
        chain: &mut HashChain,
        tokens: &[TokenId],
        num_verified: usize,
    ) {
        let num_full = num_verified / self.block_size;
        let is_new = |table: &BlockTable| {
            table.num_published() < num_full && table.num_resets() == self.num_resets
        };
        if !self.config.enabled || !tables.iter().any(is_new) {
            return;
        }
        let tokens = &tokens[..num_verified];
        chain.extend(tokens);
        for (state, table) in self.groups.iter_mut().zip(tables) {
            for index in table.num_published()..num_full {
                let block = table.blocks()[index];
                // Where a window has let go before the block was published, there is nothing.
                if block.is_null() {
                    continue;
                }
                let start = index * self.block_size;
                let content = BlockContent {
                    parent: chain.parent_of(index),
                    index,
                    tokens: &tokens[start..start + self.block_size],
                };
                let hash = chain.hashes()[index];
                state.cache.publish_full(block, hash, content);
            }
            // An earlier count may be larger: a sequence whose verified tokens went back.
            table.set_num_published(table.num_published().max(num_full));
        }
    }

    /// Publishes like [`BlockManager::publish`], also what the partly filled last block holds if
    /// prefixes are reused to the token, and takes every block back, last first.
    pub fn release_published(
        &mut self,
        tables: &mut [BlockTable],
        chain: &mut HashChain,
        tokens: &[TokenId],
        num_verified: usize,
    ) {
        self.publish(tables, chain, tokens, num_verified);
        let index = num_verified / self.block_size;
        let start = index * self.block_size;
        let is_wanted = self.config.enabled
            && self.config.granularity == PrefixGranularity::Token
            && start < num_verified;
        if is_wanted {
            chain.extend(&tokens[..num_verified]);
            let content = BlockContent {
                parent: chain.parent_of(index),
                index,
                tokens: &tokens[start..num_verified],
            };
            for (state, table) in self.groups.iter_mut().zip(&*tables) {
                let block = table.blocks()[index];
                if table.num_resets() == self.num_resets && !block.is_null() {
                    state.cache.publish_partial(block, content);
                }
            }
        }
        self.release(tables);
    }
}
