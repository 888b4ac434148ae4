//! Where the tokens of one sequence lie in one KV group: logical block -> physical block.
//!
//! Neighbours: `block_manager.rs` appends blocks and takes them back; `step_batch.rs` reads slots.

use crate::{BlockId, Position, Slot};

/// Block ids in order of position. Append-only while the sequence runs, except that a window puts
/// the null block where it has let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTable {
    block_size: usize,
    blocks: Vec<BlockId>,
    /// Leading entries that are the null block: `blocks[..num_released]`.
    num_released: usize,
}

impl BlockTable {
    /// An empty table over blocks of `block_size` tokens.
    pub fn new(block_size: usize) -> Self {
        Self {
            block_size,
            blocks: Vec::new(),
            num_released: 0,
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

    /// For the manager, which counts references.
    pub(crate) fn blocks_mut(&mut self) -> &mut Vec<BlockId> {
        &mut self.blocks
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> BlockTable {
        BlockTable {
            block_size: 4,
            blocks: [7, 2, 9].map(BlockId).to_vec(),
            num_released: 0,
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
