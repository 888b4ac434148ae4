//! Compares the entries of the prefix cache with its indexes, both ways.
//!
//! Neighbours: `block_manager/integrity.rs` calls it; `integrity.rs` at the root carries the error.

use thiserror::Error;

use super::{PrefixCache, child_key};
use crate::{BlockHash, BlockId, TokenId};

/// The prefix cache contradicts itself: a bug in the engine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CacheIntegrityError {
    /// An index has wrong links.
    #[error("prefix cache: block {block} is wrongly linked in the index {index}")]
    Links {
        /// Name of the index.
        index: &'static str,
        /// The block.
        block: BlockId,
    },
    /// A block is not where its entry says, or is where it should not be.
    #[error(
        "prefix cache: block {block} with {num_valid} tokens is wrongly filed in the index {index}"
    )]
    Filed {
        /// Name of the index.
        index: &'static str,
        /// The block.
        block: BlockId,
        /// Tokens it is published with; 0: it is not published.
        num_valid: usize,
    },
    /// A block's hash is not that of its tokens.
    #[error("prefix cache: block {block} is named {found}, its tokens make {expected}")]
    Hash {
        /// The block.
        block: BlockId,
        /// Hash of parent and tokens.
        expected: BlockHash,
        /// Its name.
        found: BlockHash,
    },
    /// Two blocks have one name.
    #[error("prefix cache: blocks {block} and {other} have the same name")]
    SameName {
        /// One block.
        block: BlockId,
        /// The other.
        other: BlockId,
    },
    /// The count of published blocks is wrong.
    #[error("prefix cache: {found} blocks are counted as published, {expected} are")]
    NumCached {
        /// Blocks published.
        expected: usize,
        /// The count.
        found: usize,
    },
    /// The null block is published.
    #[error("prefix cache: the null block is published")]
    Null,
}

impl PrefixCache {
    /// Compares entries and indexes.
    ///
    /// # Errors
    /// The first difference found.
    pub(crate) fn check_integrity(&self) -> Result<(), CacheIntegrityError> {
        if self.num_valid(BlockId::NULL) > 0 {
            return Err(CacheIntegrityError::Null);
        }
        let indexes = [
            ("by_hash", &self.by_hash),
            ("by_parent", &self.by_parent),
            ("by_first_tokens", &self.by_first_tokens),
        ];
        for (index, blocks) in indexes {
            if let Some(block) = blocks.find_damage() {
                return Err(CacheIntegrityError::Links { index, block });
            }
        }
        let mut expected = 0;
        for id in 0..self.entries.len() {
            let block = BlockId(id as u32);
            expected += usize::from(self.num_valid(block) > 0);
            self.check_block(block)?;
        }
        let found = self.num_cached;
        if found == expected {
            Ok(())
        } else {
            Err(CacheIntegrityError::NumCached { expected, found })
        }
    }

    fn check_block(&self, block: BlockId) -> Result<(), CacheIntegrityError> {
        let entry = &self.entries[block.index()];
        let tokens = self.valid_tokens(block);
        let num_valid = tokens.len();
        let is_full = num_valid == self.block_size;
        let first_tokens = |tokens: &[TokenId]| BlockHash::WITHOUT_KEYS.child(tokens).index_key();
        let expected_keys = [
            (
                "by_hash",
                &self.by_hash,
                is_full.then(|| entry.hash.index_key()),
            ),
            (
                "by_parent",
                &self.by_parent,
                tokens.first().map(|&token| child_key(&entry.parent, token)),
            ),
            (
                "by_first_tokens",
                &self.by_first_tokens,
                (is_full && entry.index == 0).then(|| first_tokens(tokens)),
            ),
        ];
        for (index, blocks, key) in expected_keys {
            let is_filed = match key {
                Some(key) => blocks.holds(block, key),
                None => blocks.key_of(block).is_none(),
            };
            if !is_filed {
                return Err(CacheIntegrityError::Filed {
                    index,
                    block,
                    num_valid,
                });
            }
        }
        if !is_full {
            return Ok(());
        }
        let (expected, found) = (entry.parent.child(tokens), entry.hash);
        if expected != found {
            return Err(CacheIntegrityError::Hash {
                block,
                expected,
                found,
            });
        }
        let mut same_key = self.by_hash.find(found.index_key());
        match same_key.find(|&other| other != block && self.entries[other.index()].hash == found) {
            Some(other) => Err(CacheIntegrityError::SameName { block, other }),
            None => Ok(()),
        }
    }
}
