//! Gives blocks: slots for the tokens of a step, and copies of shared blocks before they are
//! written.
//!
//! Neighbours: called by `scheduler.rs`; `engine.rs` puts the copies into the batch; `lookup.rs`
//! gives the blocks of a cached prefix before anything is reserved.

use std::ops::Range;

use thiserror::Error;

use super::{BlockManager, Group};
use crate::{BlockId, BlockTable};

/// A pool has fewer free blocks than asked for. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("KV group {group} needs {num_needed} more blocks, {num_free} are free")]
pub struct OutOfBlocks {
    /// Index of the group.
    pub group: usize,
    /// Blocks asked for.
    pub num_needed: usize,
    /// Blocks free.
    pub num_free: usize,
}

impl OutOfBlocks {
    pub(super) fn check(
        group: usize,
        num_needed: usize,
        num_free: usize,
    ) -> Result<(), OutOfBlocks> {
        let error = Self {
            group,
            num_needed,
            num_free,
        };
        if num_needed > num_free {
            Err(error)
        } else {
            Ok(())
        }
    }
}

impl BlockManager {
    /// Gives positions `[0, num_tokens)` slots in every group, of which those from `first_written`
    /// on will be written: each held block among these that others hold too is replaced by a block
    /// of the sequence's own, and a copy is scheduled of what it holds before `first_written`.
    /// Or changes nothing.
    ///
    /// Slots reserved earlier stay: after an aborted step they are simply there already. Allocates
    /// no memory beyond the table's and the list of copies.
    ///
    /// # Errors
    /// [`OutOfBlocks`] of the first group that is too full.
    pub fn reserve(
        &mut self,
        tables: &mut [BlockTable],
        first_written: usize,
        num_tokens: usize,
    ) -> Result<(), OutOfBlocks> {
        for (group, (state, table)) in self.groups.iter().zip(&*tables).enumerate() {
            let written = table.held_range(first_written, num_tokens);
            let num_needed = table.num_missing(num_tokens) + state.num_shared(table, written);
            OutOfBlocks::check(group, num_needed, state.pool.num_free())?;
        }
        for (state, table) in self.groups.iter_mut().zip(tables) {
            table.note_resets(self.num_resets);
            state.make_writable(table, self.block_size, first_written..num_tokens);
            for _ in 0..table.num_missing(num_tokens) {
                table.push(state.allocate());
            }
        }
        Ok(())
    }

    /// Whether [`Self::reserve`] would copy blocks that others hold too.
    pub(crate) fn needs_copies(
        &self,
        tables: &[BlockTable],
        first_written: usize,
        num_tokens: usize,
    ) -> bool {
        let groups = self.groups.iter().zip(tables);
        groups.into_iter().any(|(state, table)| {
            let written = table.held_range(first_written, num_tokens);
            state.num_shared(table, written) > 0
        })
    }

    /// Copies of whole blocks in group `group`, as (source, destination), to be made before the
    /// next step writes: all those scheduled since [`BlockManager::release_copy_sources`].
    ///
    /// No two have the same destination and no source is a destination, so that their order does
    /// not matter. If a step with copies fails, their destinations hold nothing: the sequences
    /// that have them must be computed anew.
    pub fn copies(&self, group: usize) -> &[(BlockId, BlockId)] {
        &self.groups[group].copies
    }

    /// Forgets the copies, after a batch with them was built. Until then both ends of each are
    /// kept from being handed out, even if their sequences end.
    pub fn release_copy_sources(&mut self) {
        for state in &mut self.groups {
            for (source, destination) in state.copies.drain(..) {
                state.pool.free([source, destination]);
            }
        }
    }
}

impl Group {
    /// Takes the block that has been free the longest, and evicts what was cached in it.
    ///
    /// # Panics
    /// If there is none: callers have checked.
    pub(super) fn allocate(&mut self) -> BlockId {
        let block = self.pool.allocate();
        let block = block.expect("the caller saw enough free blocks");
        if self.cache.num_valid(block) > 0 {
            self.num_lost += 1;
            if let Some(hash) = self.cache.unpublish(block) {
                self.evicted.push(&hash);
            }
        }
        block
    }

    /// Schedules a copy and keeps both ends from being handed out.
    pub(super) fn schedule_copy(&mut self, source: BlockId, destination: BlockId) {
        // A source that is itself to be filled by a copy holds, by then, what that copy's source
        // holds: nothing is computed between scheduling and copying.
        let mut earlier = self.copies.iter();
        let source = earlier
            .find(|(_, filled)| *filled == source)
            .map_or(source, |&(original, _)| original);
        let is_independent = self
            .copies
            .iter()
            .all(|&(read, written)| written != destination && read != destination);
        assert!(
            is_independent && source != destination,
            "block {destination} is in use by another copy"
        );
        self.pool.touch(source);
        self.pool.touch(destination);
        self.copies.push((source, destination));
    }

    /// Whether a table other than the caller's, or a pin, holds `block`. Scheduled copies do not
    /// count: they are made before anything is written.
    fn is_shared(&self, block: BlockId) -> bool {
        let ref_count = self.pool.ref_count(block);
        if ref_count == 1 {
            return false;
        }
        let is_end = |&&(source, destination): &&_| source == block || destination == block;
        let num_copies = self.copies.iter().filter(is_end).count();
        ref_count as usize - num_copies > 1
    }

    fn num_shared(&self, table: &BlockTable, indexes: Range<usize>) -> usize {
        table.blocks()[indexes]
            .iter()
            .filter(|&&block| self.is_shared(block))
            .count()
    }

    /// Makes the blocks at positions `written` the table's own and forgets what was published of
    /// their contents there.
    fn make_writable(&mut self, table: &mut BlockTable, block_size: usize, written: Range<usize>) {
        for index in table.held_range(written.start, written.end) {
            let block = table.blocks()[index];
            let num_kept = written.start.saturating_sub(index * block_size);
            if self.is_shared(block) {
                let own = self.allocate();
                if num_kept > 0 {
                    self.schedule_copy(block, own);
                }
                table.replace(index, own);
                self.pool.free([block]);
            } else if self.cache.num_valid(block) > num_kept {
                self.cache.unpublish(block);
                self.num_lost += 1;
            }
            table.set_num_published(table.num_published().min(index));
        }
    }
}
