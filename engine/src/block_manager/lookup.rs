//! Finds the longest cached prefix of a sequence, and starts the sequence with it.
//!
//! Neighbours: called by `scheduler.rs` on admission; `publish.rs` is the other side;
//! `prefix_cache/` compares.

use super::reserve::OutOfBlocks;
use super::{BlockManager, Group};
use crate::{BlockId, BlockTable, HashChain, MissKind, PrefixGranularity, TokenId};

/// The longest cached prefix that every KV group has.
///
/// Valid until a block is handed out or the cache is reset: look up and adopt in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixHit {
    /// Tokens that need not be computed.
    pub num_tokens: usize,
    /// Whole blocks among them.
    pub num_full_blocks: usize,
    /// The rest of them, in a block that matches in part.
    pub partial: Option<PartialHit>,
    /// Why it is no longer.
    pub miss: MissReason,
    /// Per group, the whole blocks; null where the group's window needs none.
    pub(super) blocks: Vec<Vec<BlockId>>,
    /// `num_lost` of all groups together, when it was found.
    num_lost: u64,
}

/// A block that matches in part: it is copied, so that the sequence can fill the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialHit {
    /// Tokens that match, fewer than a block has.
    pub num_tokens: usize,
    /// Per group, the block to copy.
    pub(super) sources: Vec<BlockId>,
}

/// Why no more of a sequence was found in the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissReason {
    /// All that may be reused was found.
    None,
    /// The prefix cache is off.
    Disabled,
    /// No sequence with these tokens and keys is known.
    FirstSeen,
    /// Known sequences have other tokens from this block on, or end before it.
    Tokens {
        /// The first block that no known sequence has.
        first_differing_block: usize,
    },
    /// The sequence's first block is cached, but under other keys. For the operator's eyes: it
    /// tells of another tenant.
    OtherKeys,
    /// This block was cached, and had to make room.
    Evicted {
        /// The first block that is not there any more, at least in one group.
        block: usize,
    },
}

impl MissReason {
    /// For statistics.
    pub fn kind(self) -> MissKind {
        match self {
            Self::None => MissKind::None,
            Self::Disabled => MissKind::Disabled,
            Self::FirstSeen => MissKind::FirstSeen,
            Self::Tokens { .. } => MissKind::Tokens,
            Self::OtherKeys => MissKind::OtherTenant,
            Self::Evicted { .. } => MissKind::Evicted,
        }
    }
}

impl PrefixHit {
    /// Whether adopting it copies blocks.
    pub fn has_copies(&self) -> bool {
        self.partial.is_some()
    }

    fn nothing(num_groups: usize, miss: MissReason) -> Self {
        Self {
            num_tokens: 0,
            num_full_blocks: 0,
            partial: None,
            miss,
            blocks: vec![Vec::new(); num_groups],
            num_lost: 0,
        }
    }

    /// The whole blocks alone. Copying needs one block more while the step is planned: a sequence
    /// that fills the pool may have room for this only.
    #[must_use]
    pub fn without_partial(mut self) -> Self {
        if let Some(partial) = self.partial.take() {
            self.num_tokens -= partial.num_tokens;
        }
        self
    }
}

impl BlockManager {
    /// The longest prefix of `tokens`, of at most `num_tokens_max`, that every group has at once.
    ///
    /// The caller passes one less than the sequence's length at most, so that a token is left to
    /// compute. A window group needs the blocks that the next query sees, the last
    /// `ceil((window - 1) / block_size)` of the prefix. `chain` is the sequence's own, and grows.
    pub fn lookup(
        &self,
        chain: &mut HashChain,
        tokens: &[TokenId],
        num_tokens_max: usize,
    ) -> PrefixHit {
        if !self.config.enabled {
            return PrefixHit::nothing(self.groups.len(), MissReason::Disabled);
        }
        let tokens = &tokens[..num_tokens_max.min(tokens.len())];
        chain.extend(tokens);
        let (num_full_blocks, blocks) = self.find_full_blocks(chain, tokens);
        let partial = self.find_partial(chain, tokens, num_full_blocks);
        let num_partial = partial.as_ref().map_or(0, |partial| partial.num_tokens);
        let mut hit = PrefixHit {
            num_tokens: num_full_blocks * self.block_size + num_partial,
            num_full_blocks,
            partial,
            miss: MissReason::None,
            blocks,
            num_lost: self.num_lost(),
        };
        hit.miss = self.miss_reason(chain, tokens, &hit);
        hit
    }

    /// Whether positions `[0, num_tokens)` could all have slots now, those of `hit` (for empty
    /// tables) by its blocks. Blocks that will be copied on write are not counted, and of a group
    /// with a window only as many as a sequence holds at once.
    ///
    /// # Errors
    /// [`OutOfBlocks`] of the first group that is too full.
    ///
    /// # Panics
    /// If `hit` is out of date.
    pub fn check_room(
        &self,
        tables: &[BlockTable],
        hit: Option<&PrefixHit>,
        num_tokens: usize,
    ) -> Result<(), OutOfBlocks> {
        for (group, (state, table)) in self.groups.iter().zip(tables).enumerate() {
            let num_missing = table.num_missing(num_tokens);
            let (num_hit, num_held, num_free_taken) = match hit {
                Some(hit) => {
                    self.assert_valid(hit);
                    assert!(table.blocks().is_empty(), "a hit is for empty tables");
                    let held = hit.blocks[group].iter().filter(|block| !block.is_null());
                    let num_free_taken = state.num_free_blocks_of(hit, group);
                    (hit.num_full_blocks, held.count(), num_free_taken)
                }
                None => (0, 0, 0),
            };
            // What the sequence holds at once includes the hit's own blocks.
            let held_max = state.held_max.unwrap_or(usize::MAX);
            let num_needed = num_missing
                .saturating_sub(num_hit)
                .min(held_max.saturating_sub(num_held));
            let num_free = state.pool.num_free() - num_free_taken;
            OutOfBlocks::check(group, num_needed, num_free)?;
        }
        Ok(())
    }

    /// Starts empty tables with the blocks of `hit`, and schedules the copy of the one that matches
    /// in part. Returns the tokens that need not be computed. Or changes nothing.
    ///
    /// # Errors
    /// [`OutOfBlocks`] if a group has no block for that copy.
    ///
    /// # Panics
    /// If `hit` is out of date, or a table is not empty.
    pub fn adopt(
        &mut self,
        tables: &mut [BlockTable],
        hit: &PrefixHit,
    ) -> Result<usize, OutOfBlocks> {
        self.check_room(tables, Some(hit), hit.num_tokens)?;
        for (group, (state, table)) in self.groups.iter_mut().zip(tables).enumerate() {
            table.note_resets(self.num_resets);
            table.adopt(&hit.blocks[group]);
            for &block in table.held_blocks() {
                state.pool.touch(block);
            }
            if let Some(partial) = &hit.partial {
                let source = partial.sources[group];
                // Held while its copy is allocated, which must not be the source itself.
                state.pool.touch(source);
                let own = state.allocate();
                state.schedule_copy(source, own);
                state.pool.free([source]);
                table.push(own);
            }
        }
        Ok(hit.num_tokens)
    }

    /// How many whole blocks of `tokens`, all hashed in `chain`, every group has at once, and which
    /// these are: null where a window needs none.
    pub(super) fn find_full_blocks(
        &self,
        chain: &HashChain,
        tokens: &[TokenId],
    ) -> (usize, Vec<Vec<BlockId>>) {
        let mut num_full = tokens.len() / self.block_size;
        let mut blocks = vec![Vec::new(); self.groups.len()];
        for (state, blocks) in self.groups.iter().zip(&mut blocks) {
            if state.window.is_none() {
                blocks.extend(
                    (0..num_full).map_while(|index| self.find(state, chain, tokens, index)),
                );
                num_full = blocks.len();
            }
        }
        // A cut that one window allows may be none for another: until all agree.
        loop {
            let before = num_full;
            for state in &self.groups {
                num_full = self.window_cut(state, chain, tokens, num_full);
            }
            if num_full == before {
                break;
            }
        }
        for (state, blocks) in self.groups.iter().zip(&mut blocks) {
            blocks.truncate(num_full);
            let num_needed = state.num_window_blocks(self.block_size).min(num_full);
            if state.window.is_some() {
                blocks.resize(num_full - num_needed, BlockId::NULL);
                blocks.extend(
                    (num_full - num_needed..num_full)
                        .map_while(|index| self.find(state, chain, tokens, index)),
                );
            }
            assert_eq!(blocks.len(), num_full, "a block found twice is there twice");
        }
        (num_full, blocks)
    }

    /// The largest cut of at most `num_full` blocks before which a window group has what it needs.
    fn window_cut(
        &self,
        state: &Group,
        chain: &HashChain,
        tokens: &[TokenId],
        num_full: usize,
    ) -> usize {
        if state.window.is_none() {
            return num_full;
        }
        let num_needed = state.num_window_blocks(self.block_size);
        let mut cut = num_full;
        let mut index = cut;
        // From the cut backwards. A missing block is needed by every cut behind it that could
        // still be tried, so the next one to try is right before it.
        while index > cut.saturating_sub(num_needed) {
            index -= 1;
            if self.find(state, chain, tokens, index).is_none() {
                cut = index;
            }
        }
        cut
    }

    pub(super) fn find(
        &self,
        state: &Group,
        chain: &HashChain,
        tokens: &[TokenId],
        index: usize,
    ) -> Option<BlockId> {
        let start = index * self.block_size;
        let block = &tokens[start..start + self.block_size];
        let parent = chain.parent_of(index);
        state.cache.find(&chain.hashes()[index], &parent, block)
    }

    /// What every group can serve of the block after `num_full`.
    pub(super) fn find_partial(
        &self,
        chain: &HashChain,
        tokens: &[TokenId],
        num_full: usize,
    ) -> Option<PartialHit> {
        if self.config.granularity == PrefixGranularity::Block {
            return None;
        }
        let start = num_full * self.block_size;
        // A whole block here is one that some group lacks: part of it may do.
        let end = tokens.len().min(start + self.block_size - 1);
        let wanted = &tokens[start..end.max(start)];
        let parent = chain.parent_of(num_full);
        let mut num_tokens = wanted.len();
        let mut sources = Vec::with_capacity(self.groups.len());
        for state in &self.groups {
            let (source, num_same) = state.cache.best_child(&parent, wanted)?;
            num_tokens = num_tokens.min(num_same);
            sources.push(source);
        }
        Some(PartialHit {
            num_tokens,
            sources,
        })
    }

    fn miss_reason(&self, chain: &HashChain, tokens: &[TokenId], hit: &PrefixHit) -> MissReason {
        let next = hit.num_full_blocks;
        if (next + 1) * self.block_size > tokens.len() {
            // Less than a block is left; block granularity cannot serve it.
            let is_whole = hit.num_tokens == tokens.len();
            let is_block = self.config.granularity == PrefixGranularity::Block;
            return match (is_whole || is_block, hit.num_tokens) {
                (true, _) => MissReason::None,
                (false, 0) => MissReason::FirstSeen,
                (false, _) => MissReason::Tokens {
                    first_differing_block: next,
                },
            };
        }
        // The chain may be longer than the tokens: it is the whole sequence's.
        let hash = &chain.hashes()[next];
        let was_known = self.groups.iter().any(|state| {
            state.evicted.contains(hash) || self.find(state, chain, tokens, next).is_some()
        });
        if was_known {
            MissReason::Evicted { block: next }
        } else if hit.num_tokens > 0 {
            MissReason::Tokens {
                first_differing_block: next,
            }
        } else if self.groups[0]
            .cache
            .any_begins_with(&tokens[..self.block_size])
        {
            MissReason::OtherKeys
        } else {
            MissReason::FirstSeen
        }
    }

    fn num_lost(&self) -> u64 {
        self.groups.iter().map(|state| state.num_lost).sum()
    }

    fn assert_valid(&self, hit: &PrefixHit) {
        let is_valid = hit.num_tokens == 0 || hit.num_lost == self.num_lost();
        assert!(is_valid, "blocks of the hit may be gone: look up again");
    }
}

impl Group {
    /// Whole blocks before a cut that the query after it sees.
    fn num_window_blocks(&self, block_size: usize) -> usize {
        self.window
            .map_or(0, |window| (window - 1).div_ceil(block_size))
    }

    /// Free blocks that adopting `hit` takes from the free list.
    fn num_free_blocks_of(&self, hit: &PrefixHit, group: usize) -> usize {
        let sources = hit.partial.iter().map(|partial| partial.sources[group]);
        hit.blocks[group]
            .iter()
            .copied()
            .chain(sources)
            .filter(|&block| !block.is_null() && self.pool.ref_count(block) == 0)
            .count()
    }
}
