//! Which blocks of one KV group hold which tokens, so that a later sequence finds them.
//!
//! A block is *published* when its tokens are computed and verified, and stays so, held or free,
//! until it is handed out again. A full block is found by its hash; a full or partly filled one
//! also as a child of what comes before it, by as many tokens as match.
//!
//! Neighbours: `block_manager/` publishes, looks up and evicts; `block_hash.rs` makes the hashes;
//! `index.rs` is the hash index, `evicted.rs` remembers what was lost.

mod config;
mod evicted;
mod index;
mod integrity;
#[cfg(test)]
mod tests;

use self::index::BlockIndex;
use crate::{BlockHash, BlockId, TokenId};

pub use self::config::{PrefixCacheConfig, PrefixGranularity};
pub(crate) use self::evicted::EvictedHashes;
pub use self::integrity::CacheIntegrityError;

/// Most children of one parent that are compared. More than so many sequences that go on with the
/// same token are compared to the newest only, so that a lookup's time is bounded.
const CHILDREN_MAX: usize = 256;

/// Odd, so that distinct tokens give distinct keys.
const TOKEN_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The published blocks of one group. Allocates nothing after it was made.
#[derive(Clone, Debug)]
pub(crate) struct PrefixCache {
    block_size: usize,
    entries: Vec<Entry>,
    /// `block_size` tokens for each block, of which the entry's `num_valid` count.
    tokens: Vec<TokenId>,
    /// Full blocks by hash.
    by_hash: BlockIndex,
    /// All published blocks by parent and first token.
    by_parent: BlockIndex,
    /// Full blocks at the start of a sequence, by their tokens alone, whosever they are.
    by_first_tokens: BlockIndex,
    num_cached: usize,
}

/// What is known about a block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Hash of the block's tokens and all before them. Of a partly filled one: of nothing, unused.
    hash: BlockHash,
    /// Hash of all before the block.
    parent: BlockHash,
    /// Place of the block in its sequence.
    index: u32,
    /// Tokens that the block may be found by; 0: it is not published.
    num_valid: u32,
}

/// A block's place and contents, to be published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockContent<'a> {
    /// Hash of all tokens before the block.
    pub(crate) parent: BlockHash,
    /// Place of the block in its sequence.
    pub(crate) index: usize,
    /// Its tokens, 1 to `block_size`.
    pub(crate) tokens: &'a [TokenId],
}

impl PrefixCache {
    /// An empty cache for a pool of `num_blocks`, the null block included.
    pub(crate) fn new(num_blocks: usize, block_size: usize) -> Self {
        let entry = Entry {
            hash: BlockHash::WITHOUT_KEYS,
            parent: BlockHash::WITHOUT_KEYS,
            index: 0,
            num_valid: 0,
        };
        Self {
            block_size,
            entries: vec![entry; num_blocks],
            tokens: vec![TokenId(0); num_blocks * block_size],
            by_hash: BlockIndex::new(num_blocks),
            by_parent: BlockIndex::new(num_blocks),
            by_first_tokens: BlockIndex::new(num_blocks),
            num_cached: 0,
        }
    }

    /// Published blocks.
    pub(crate) fn num_cached(&self) -> usize {
        self.num_cached
    }

    /// Tokens that `block` may be found by; 0 if it is not published.
    pub(crate) fn num_valid(&self, block: BlockId) -> usize {
        self.entries[block.index()].num_valid as usize
    }

    /// The published full block named `hash` that holds `tokens` after `parent`.
    ///
    /// Tokens and parent are compared as well, so that a collision is a miss.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: &BlockHash,
        parent: &BlockHash,
        tokens: &[TokenId],
    ) -> Option<BlockId> {
        self.by_hash.find(hash.index_key()).find(|&block| {
            let entry = &self.entries[block.index()];
            entry.hash == *hash && entry.parent == *parent && self.valid_tokens(block) == tokens
        })
    }

    /// The published block after `parent` that begins with the most of `tokens`, at least one, and
    /// how many. The newest of equals.
    pub(crate) fn best_child(
        &self,
        parent: &BlockHash,
        tokens: &[TokenId],
    ) -> Option<(BlockId, usize)> {
        let key = child_key(parent, *tokens.first()?);
        let mut best: Option<(BlockId, usize)> = None;
        for block in self.by_parent.find(key).take(CHILDREN_MAX) {
            if self.entries[block.index()].parent != *parent {
                continue;
            }
            let same = self.valid_tokens(block).iter().zip(tokens);
            let num_same = same.take_while(|(cached, wanted)| cached == wanted).count();
            if num_same > best.map_or(0, |(_, most)| most) {
                best = Some((block, num_same));
            }
            if num_same == tokens.len() {
                break;
            }
        }
        best
    }

    /// Whether a sequence of any keys begins with the full block `tokens`.
    pub(crate) fn any_begins_with(&self, tokens: &[TokenId]) -> bool {
        let key = BlockHash::WITHOUT_KEYS.child(tokens).index_key();
        let mut blocks = self.by_first_tokens.find(key);
        blocks.any(|block| self.valid_tokens(block) == tokens)
    }

    /// Publishes the full block `block` under `hash`, unless another has that name: blocks are
    /// never merged, as tables only grow. A partial publication of it is replaced.
    pub(crate) fn publish_full(
        &mut self,
        block: BlockId,
        hash: BlockHash,
        content: BlockContent<'_>,
    ) {
        assert_eq!(content.tokens.len(), self.block_size, "a full block");
        let has_name = |block: BlockId| self.entries[block.index()].hash == hash;
        if self.by_hash.find(hash.index_key()).any(has_name) {
            return;
        }
        self.unpublish(block);
        self.insert(block, hash, content);
        self.by_hash.insert(block, hash.index_key());
        if content.index == 0 {
            let first = BlockHash::WITHOUT_KEYS.child(content.tokens);
            self.by_first_tokens.insert(block, first.index_key());
        }
    }

    /// Publishes the first tokens of `block`, unless another child of the same parent has them all.
    pub(crate) fn publish_partial(&mut self, block: BlockId, content: BlockContent<'_>) {
        let num_tokens = content.tokens.len();
        assert!(num_tokens < self.block_size, "a partly filled block");
        let best = self.best_child(&content.parent, content.tokens);
        let is_served = best.is_some_and(|(_, num_same)| num_same == num_tokens);
        if num_tokens > 0 && !is_served {
            self.unpublish(block);
            self.insert(block, BlockHash::WITHOUT_KEYS, content);
        }
    }

    fn insert(&mut self, block: BlockId, hash: BlockHash, content: BlockContent<'_>) {
        let num_valid = content.tokens.len();
        let start = block.index() * self.block_size;
        self.tokens[start..start + num_valid].copy_from_slice(content.tokens);
        self.entries[block.index()] = Entry {
            hash,
            parent: content.parent,
            index: content.index as u32,
            num_valid: num_valid as u32,
        };
        let key = child_key(&content.parent, content.tokens[0]);
        self.by_parent.insert(block, key);
        self.num_cached += 1;
    }

    /// Makes `block` not be found any more. Returns the hash it had, if it was full.
    pub(crate) fn unpublish(&mut self, block: BlockId) -> Option<BlockHash> {
        let entry = &mut self.entries[block.index()];
        if entry.num_valid == 0 {
            return None;
        }
        let is_full = entry.num_valid as usize == self.block_size;
        let hash = is_full.then_some(entry.hash);
        entry.num_valid = 0;
        self.by_hash.remove(block);
        self.by_parent.remove(block);
        self.by_first_tokens.remove(block);
        self.num_cached -= 1;
        hash
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        for entry in &mut self.entries {
            entry.num_valid = 0;
        }
        self.by_hash.clear();
        self.by_parent.clear();
        self.by_first_tokens.clear();
        self.num_cached = 0;
    }

    fn valid_tokens(&self, block: BlockId) -> &[TokenId] {
        let start = block.index() * self.block_size;
        &self.tokens[start..start + self.num_valid(block)]
    }
}

/// Children are filed by their first token too: one must match, and a popular parent has many.
fn child_key(parent: &BlockHash, first_token: TokenId) -> u64 {
    parent.index_key() ^ u64::from(first_token.0).wrapping_mul(TOKEN_FACTOR)
}
