//! A hash index over the blocks of a pool, in arrays of fixed size: nothing is allocated after it
//! was made, and its order is a function of the calls.
//!
//! Neighbours: `prefix_cache/mod.rs` keeps one per way of finding a block.

use crate::BlockId;

/// Blocks by 64-bit keys. A block has one key at most; a key may have many blocks.
///
/// Each bucket is a list through the blocks in it, the newest first; the null block ends it.
#[derive(Clone, Debug)]
pub(super) struct BlockIndex {
    /// First block of each bucket; a power of two of them.
    heads: Vec<BlockId>,
    nodes: Vec<Node>,
    /// Bits of a key that count. All, except where tests force collisions.
    key_mask: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) prev: BlockId,
    pub(super) next: BlockId,
    /// The block's key while it is in the index.
    key: Option<u64>,
}

impl BlockIndex {
    /// An empty index for a pool of `num_blocks`, the null block included.
    pub(super) fn new(num_blocks: usize) -> Self {
        Self::with_key_mask(num_blocks, u64::MAX)
    }

    /// An index that tells keys apart by the bits of `key_mask` alone.
    pub(super) fn with_key_mask(num_blocks: usize, key_mask: u64) -> Self {
        let node = Node {
            prev: BlockId::NULL,
            next: BlockId::NULL,
            key: None,
        };
        Self {
            heads: vec![BlockId::NULL; num_blocks.next_power_of_two()],
            nodes: vec![node; num_blocks],
            key_mask,
        }
    }

    fn bucket(&self, key: u64) -> usize {
        // Keys are bytes of cryptographic hashes: any bits will do.
        key as usize & (self.heads.len() - 1)
    }

    /// Puts `block` under `key`, before the blocks that are there.
    ///
    /// # Panics
    /// If the block is in the index, or the null block.
    pub(super) fn insert(&mut self, block: BlockId, key: u64) {
        assert!(!block.is_null(), "the null block is never cached");
        let key = key & self.key_mask;
        let bucket = self.bucket(key);
        let next = std::mem::replace(&mut self.heads[bucket], block);
        let node = &mut self.nodes[block.index()];
        assert!(node.key.is_none(), "block {block} has a key already");
        *node = Node {
            prev: BlockId::NULL,
            next,
            key: Some(key),
        };
        if !next.is_null() {
            self.nodes[next.index()].prev = block;
        }
    }

    /// Takes `block` out, if it is in.
    pub(super) fn remove(&mut self, block: BlockId) {
        let Node { prev, next, key } = self.nodes[block.index()];
        let Some(key) = key else { return };
        let bucket = self.bucket(key);
        if prev.is_null() {
            self.heads[bucket] = next;
        } else {
            self.nodes[prev.index()].next = next;
        }
        if !next.is_null() {
            self.nodes[next.index()].prev = prev;
        }
        self.nodes[block.index()].key = None;
    }

    /// Blocks under `key`, the newest first.
    #[inline]
    pub(super) fn find(&self, key: u64) -> impl Iterator<Item = BlockId> + '_ {
        let key = key & self.key_mask;
        self.bucket_blocks(self.bucket(key))
            .filter(move |block| self.nodes[block.index()].key == Some(key))
    }

    fn bucket_blocks(&self, bucket: usize) -> impl Iterator<Item = BlockId> + '_ {
        let not_null = |block: BlockId| (!block.is_null()).then_some(block);
        std::iter::successors(not_null(self.heads[bucket]), move |block| {
            not_null(self.nodes[block.index()].next)
        })
    }

    /// The block's key, if it is in the index.
    pub(super) fn key_of(&self, block: BlockId) -> Option<u64> {
        self.nodes[block.index()].key
    }

    /// Whether `block` is under `key`, and under no other.
    pub(super) fn holds(&self, block: BlockId, key: u64) -> bool {
        self.key_of(block) == Some(key & self.key_mask)
            && self.find(key).any(|found| found == block)
    }

    /// Whether every block with a key is in that key's list exactly once, linked both ways, and
    /// every listed block has a key. Returns the first block that is not.
    pub(super) fn find_damage(&self) -> Option<BlockId> {
        let mut num_listed = vec![0_usize; self.nodes.len()];
        for bucket in 0..self.heads.len() {
            let mut prev = BlockId::NULL;
            for block in self.bucket_blocks(bucket) {
                let node = &self.nodes[block.index()];
                num_listed[block.index()] += 1;
                let key_fits = node.key.is_some_and(|key| self.bucket(key) == bucket);
                if num_listed[block.index()] > 1 || !key_fits || node.prev != prev {
                    return Some(block);
                }
                prev = block;
            }
        }
        let is_wrong = |&id: &usize| (num_listed[id] == 1) != self.nodes[id].key.is_some();
        (0..self.nodes.len())
            .find(is_wrong)
            .map(|id| BlockId(id as u32))
    }

    /// Takes everything out.
    pub(super) fn clear(&mut self) {
        self.heads.fill(BlockId::NULL);
        for node in &mut self.nodes {
            node.key = None;
        }
    }

    /// For tests that damage it.
    #[cfg(test)]
    pub(super) fn node_mut(&mut self, block: BlockId) -> &mut Node {
        &mut self.nodes[block.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(index: &BlockIndex, key: u64) -> Vec<u32> {
        index.find(key).map(|block| block.0).collect()
    }

    #[test]
    fn blocks_under_one_key_come_newest_first_and_leave_from_any_place() {
        let mut index = BlockIndex::new(6);
        for (block, key) in [(1, 8), (2, 16), (3, 8), (4, 8)] {
            index.insert(BlockId(block), key);
        }
        assert_eq!(found(&index, 8), [4, 3, 1], "16 shares the bucket of 8");
        index.remove(BlockId(3));
        index.remove(BlockId(3));
        assert_eq!(found(&index, 8), [4, 1]);
        index.remove(BlockId(4));
        index.remove(BlockId(1));
        assert_eq!((found(&index, 8), found(&index, 16)), (vec![], vec![2]));
        assert_eq!(index.find_damage(), None);
        index.clear();
        assert!(found(&index, 16).is_empty());
        assert_eq!(index.find_damage(), None);
    }

    #[test]
    fn damaged_links_are_found() {
        let sound = || {
            let mut index = BlockIndex::new(6);
            for block in 1..4 {
                index.insert(BlockId(block), 8);
            }
            index
        };
        assert_eq!(sound().find_damage(), None);
        let damages: [fn(&mut BlockIndex); 5] = [
            |index| index.node_mut(BlockId(2)).prev = BlockId(1),
            |index| index.node_mut(BlockId(2)).next = BlockId::NULL,
            |index| index.node_mut(BlockId(1)).next = BlockId(3),
            |index| index.node_mut(BlockId(2)).key = None,
            |index| index.node_mut(BlockId(4)).key = Some(8),
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            let mut index = sound();
            damage(&mut index);
            assert!(index.find_damage().is_some(), "damage {number}");
        }
    }
}
