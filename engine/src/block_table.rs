//! Where the tokens of one sequence lie in one KV group: logical block -> physical block.
//!
//! Neighbours: `block_manager/` appends blocks and takes them back; `step_batch/` reads slots.

use std::ops::Range;

use crate::{BlockId, Position, Slot};

/// Block ids in order of position. Append-only while the sequence runs, except that a window puts
/// the null block where it has let go, and that a shared block about to be written is replaced by
/// the sequence's own copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTable {
    block_size: usize,
    blocks: Vec<BlockId>,
    /// Leading entries that are the null block: `blocks[..num_released]`.
    num_released: usize,
    /// Leading blocks that have been offered to the prefix cache.
    num_published: usize,
    /// How often the prefix cache had been reset when the first block came: what was computed
    /// before a reset is not published after it.
    num_resets: u64,
}

impl BlockTable {
    /// An empty table over blocks of `block_size` tokens.
    pub fn new(block_size: usize) -> Self {
        Self {
            block_size,
            blocks: Vec::new(),
            num_released: 0,
            num_published: 0,
            num_resets: 0,
        }
    }

    /// Block ids, `[0, num_released)` null.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Blocks that the sequence holds: those a window has not let go.
    pub fn held_blocks(&self) -> &[BlockId] {
        &self.blocks[self.num_released..]
    }

    /// Tokens that have a slot, counted from position 0.
    pub fn capacity(&self) -> usize {
        self.blocks.len() * self.block_size
    }

    /// Blocks to append so that positions `[0, num_tokens)` have slots.
    pub fn num_missing(&self, num_tokens: usize) -> usize {
        num_tokens
            .div_ceil(self.block_size)
            .saturating_sub(self.blocks.len())
    }

    /// Slot of `position`.
    ///
    /// # Panics
    /// If no block was reserved for it, or a window has let it go: then the kernel would write into
    /// somebody else's block.
    pub fn slot_of(&self, position: Position) -> Slot {
        let position = position.0 as usize;
        let index = position / self.block_size;
        let held = self.num_released..self.blocks.len();
        assert!(
            held.contains(&index),
            "position {position} is in block {index}, held: {held:?}"
        );
        Slot(self.blocks[index].0 * self.block_size as u32 + (position % self.block_size) as u32)
    }

    /// Indexes of the blocks that hold positions `[first, end)` and were reserved, those let go
    /// left out.
    pub(crate) fn held_range(&self, first: usize, end: usize) -> Range<usize> {
        let end = end.div_ceil(self.block_size).min(self.blocks.len());
        let first = (first / self.block_size).max(self.num_released);
        first.min(end)..end
    }

    /// Makes room for `num_blocks` blocks in all, so that the table grows without allocating.
    pub(crate) fn reserve_capacity(&mut self, num_blocks: usize) {
        let missing = num_blocks.saturating_sub(self.blocks.len());
        self.blocks.reserve_exact(missing);
    }

    /// Appends a block, for the manager, which counts references.
    pub(crate) fn push(&mut self, block: BlockId) {
        self.blocks.push(block);
    }

    /// Puts `block` in place of the one at `index` and returns that.
    pub(crate) fn replace(&mut self, index: usize, block: BlockId) -> BlockId {
        assert!(index >= self.num_released, "a block let go stays so");
        std::mem::replace(&mut self.blocks[index], block)
    }

    /// Starts the table with blocks of the prefix cache, null where its window needs none.
    pub(crate) fn adopt(&mut self, blocks: &[BlockId]) {
        assert!(self.blocks.is_empty(), "a hit comes before anything else");
        self.blocks.extend_from_slice(blocks);
        self.num_released = blocks.iter().take_while(|block| block.is_null()).count();
        self.num_published = blocks.len();
    }

    /// Leading blocks that have been offered to the prefix cache.
    pub(crate) fn num_published(&self) -> usize {
        self.num_published
    }

    /// Notes that the first `num_blocks` blocks, and no more, have been offered.
    pub(crate) fn set_num_published(&mut self, num_blocks: usize) {
        self.num_published = num_blocks;
    }

    /// How often the prefix cache had been reset when the first block came.
    pub(crate) fn num_resets(&self) -> u64 {
        self.num_resets
    }

    /// Before the first block comes: notes how often the prefix cache has been reset.
    pub(crate) fn note_resets(&mut self, num_resets: u64) {
        if self.blocks.is_empty() {
            self.num_resets = num_resets;
        }
    }

    /// Puts the null block in place of the blocks wholly before `first_visible` and returns what
    /// was there, in order of position.
    pub(crate) fn release_before(
        &mut self,
        first_visible: usize,
    ) -> impl DoubleEndedIterator<Item = BlockId> {
        let start = self.num_released;
        let end = (first_visible / self.block_size)
            .min(self.blocks.len())
            .max(start);
        self.num_released = end;
        self.blocks[start..end]
            .iter_mut()
            .map(|block| std::mem::replace(block, BlockId::NULL))
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.num_released = 0;
        self.num_published = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> BlockTable {
        BlockTable {
            blocks: [7, 2, 9].map(BlockId).to_vec(),
            ..BlockTable::new(4)
        }
    }

    #[test]
    fn a_slot_is_the_block_and_the_offset_in_it() {
        let slots: Vec<_> = (0..12).map(|p| table().slot_of(Position(p)).0).collect();
        assert_eq!(slots, [28, 29, 30, 31, 8, 9, 10, 11, 36, 37, 38, 39]);
        let missing: Vec<_> = [0, 12, 13, 16, 17].map(|n| table().num_missing(n)).to_vec();
        assert_eq!(missing, [0, 0, 1, 1, 2]);
    }

    #[test]
    #[should_panic(expected = "position 12 is in block 3, held: 0..3")]
    fn a_position_without_a_slot_is_a_bug() {
        table().slot_of(Position(12));
    }

    #[test]
    #[should_panic(expected = "position 3 is in block 0, held: 1..3")]
    fn a_position_that_a_window_has_let_go_is_a_bug() {
        let mut table = table();
        assert!(table.release_before(7).eq([BlockId(7)]));
        table.slot_of(Position(3));
    }
}
