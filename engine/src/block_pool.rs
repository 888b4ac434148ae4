//! The blocks of one KV group: who holds how many references, and which are free.
//!
//! Neighbours: `block_manager/` keeps one pool per group. Free blocks may still be found through the
//! prefix cache (`prefix_cache/`): that is why they leave the list in order of age, and why
//! [`BlockPool::touch`] can take any of them out of its middle.

use crate::{BlockId, IntegrityError};

/// Reference counts and the free list of `num_blocks` blocks. Every operation is O(1) per block.
///
/// The free list is a ring through `links`, headed by the null block, which is never free itself:
///
/// ```text
/// null -> oldest free -> ... -> newest free -> null       (next; prev runs the other way)
///         allocate takes here     free appends here
/// ```
#[derive(Clone, Debug)]
pub struct BlockPool {
    ref_counts: Vec<u32>,
    links: Vec<Link>,
    num_free: usize,
}

/// Neighbours in the free list. Meaningless for blocks in use.
#[derive(Clone, Copy, Debug)]
struct Link {
    prev: BlockId,
    next: BlockId,
}

impl BlockPool {
    /// A pool of `num_blocks` blocks, the null block included, all free in order of id.
    ///
    /// # Panics
    /// If there is no block besides the null block, or ids do not fit 32 bits: `EngineConfig`
    /// refuses both.
    pub fn new(num_blocks: usize) -> Self {
        assert!(
            num_blocks >= 2,
            "{num_blocks} blocks, need the null block and another"
        );
        let len = u32::try_from(num_blocks).expect("EngineConfig keeps slots within 32 bits");
        let links = (0..len)
            .map(|id| Link {
                prev: BlockId((id + len - 1) % len),
                next: BlockId((id + 1) % len),
            })
            .collect();
        Self {
            ref_counts: vec![0; num_blocks],
            links,
            num_free: num_blocks - 1,
        }
    }

    /// Blocks that can hold tokens: all but the null block.
    pub fn num_usable(&self) -> usize {
        self.ref_counts.len() - 1
    }

    /// Blocks that nobody holds.
    pub fn num_free(&self) -> usize {
        self.num_free
    }

    /// How many hold `block`: tables, pins, and copies to be made.
    pub fn ref_count(&self, block: BlockId) -> u32 {
        self.ref_counts[block.index()]
    }

    /// Takes the block that has been free the longest; one reference.
    pub fn allocate(&mut self) -> Option<BlockId> {
        let block = self.links[BlockId::NULL.index()].next;
        if block.is_null() {
            return None;
        }
        self.unlink(block);
        self.ref_counts[block.index()] = 1;
        Some(block)
    }

    /// One more reference to `block`, which may be free: it leaves the free list then.
    ///
    /// # Panics
    /// If it is the null block.
    pub fn touch(&mut self, block: BlockId) {
        assert!(!block.is_null(), "the null block is not counted");
        if self.ref_counts[block.index()] == 0 {
            self.unlink(block);
        }
        self.ref_counts[block.index()] += 1;
    }

    /// One reference less to each block; those that reach zero become the newest free ones, in the
    /// given order. Give the last block of a sequence first, so that a prefix outlives its tail.
    ///
    /// # Panics
    /// If a block is not held: it is the null block, or was freed twice.
    pub fn free(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for block in blocks {
            let count = &mut self.ref_counts[block.index()];
            assert!(*count > 0, "block {block} is freed but not held");
            *count -= 1;
            if *count == 0 {
                self.append(block);
            }
        }
    }

    fn unlink(&mut self, block: BlockId) {
        let Link { prev, next } = self.links[block.index()];
        self.links[prev.index()].next = next;
        self.links[next.index()].prev = prev;
        self.num_free -= 1;
    }

    fn append(&mut self, block: BlockId) {
        let newest = self.links[BlockId::NULL.index()].prev;
        self.links[block.index()] = Link {
            prev: newest,
            next: BlockId::NULL,
        };
        self.links[newest.index()].next = block;
        self.links[BlockId::NULL.index()].prev = block;
        self.num_free += 1;
    }

    /// Walks the free list and compares it with the counts, and these with `expected_ref_counts`,
    /// recounted from the tables by the caller.
    ///
    /// # Errors
    /// The first difference found.
    pub fn check_integrity(&self, expected_ref_counts: &[u32]) -> Result<(), IntegrityError> {
        let mut on_free_list = vec![false; self.ref_counts.len()];
        let mut num_free = 0;
        let mut last = BlockId::NULL;
        loop {
            let block = self.links[last.index()].next;
            let back = self.links[block.index()].prev;
            if back != last || on_free_list[block.index()] {
                return Err(IntegrityError::FreeList {
                    block,
                    expected: last,
                    found: back,
                });
            }
            if block.is_null() {
                break;
            }
            on_free_list[block.index()] = true;
            num_free += 1;
            last = block;
        }
        if num_free != self.num_free {
            return Err(IntegrityError::NumFree {
                expected: num_free,
                found: self.num_free,
            });
        }
        for (id, (&found, &expected)) in self.ref_counts.iter().zip(expected_ref_counts).enumerate()
        {
            let block = BlockId(id as u32);
            if found != expected {
                return Err(IntegrityError::RefCount {
                    block,
                    expected,
                    found,
                });
            }
            let is_free = found == 0 && !block.is_null();
            if is_free != on_free_list[id] {
                return Err(IntegrityError::FreeAndHeld {
                    block,
                    ref_count: found,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(pool: &mut BlockPool, n: usize) -> Vec<u32> {
        (0..n)
            .map_while(|_| pool.allocate())
            .map(|block| block.0)
            .collect()
    }

    #[test]
    fn blocks_leave_in_order_of_age_and_never_the_null_block() {
        let mut pool = BlockPool::new(6);
        assert_eq!(allocate(&mut pool, 9), [1, 2, 3, 4, 5]);
        // A sequence frees its last block first, so that its first is reused last.
        pool.free([4, 2].map(BlockId));
        pool.free([5].map(BlockId));
        assert_eq!(allocate(&mut pool, 9), [4, 2, 5]);
        assert_eq!(pool.num_free(), 0);
        pool.check_integrity(&[0, 1, 1, 1, 1, 1]).unwrap();
    }

    #[test]
    fn a_touched_block_leaves_the_middle_of_the_list_and_counts_its_holders() {
        let mut pool = BlockPool::new(6);
        pool.touch(BlockId(3));
        pool.touch(BlockId(3));
        assert_eq!((pool.ref_count(BlockId(3)), pool.num_free()), (2, 4));
        assert_eq!(allocate(&mut pool, 3), [1, 2, 4]);
        pool.free([BlockId(3)]);
        assert_eq!(allocate(&mut pool, 9), [5], "one holder is left");
        pool.free([BlockId(3)]);
        assert_eq!(allocate(&mut pool, 9), [3]);
    }

    #[test]
    #[should_panic(expected = "block 2 is freed but not held")]
    fn freeing_twice_is_a_bug() {
        let mut pool = BlockPool::new(4);
        allocate(&mut pool, 2);
        pool.free([2, 2].map(BlockId));
    }

    #[test]
    #[should_panic(expected = "block 0 is freed but not held")]
    fn the_null_block_cannot_be_freed() {
        BlockPool::new(4).free([BlockId::NULL]);
    }

    #[test]
    fn each_kind_of_damage_is_found() {
        let counts = [0, 1, 1, 0, 0];
        let sound = || {
            let mut pool = BlockPool::new(5);
            allocate(&mut pool, 2);
            pool
        };
        sound().check_integrity(&counts).unwrap();
        let damages: [fn(&mut BlockPool); 5] = [
            |pool| pool.ref_counts[1] = 2,
            |pool| pool.ref_counts[3] = 1,
            |pool| pool.num_free = 3,
            |pool| pool.links[4].prev = BlockId(1),
            |pool| pool.links[3].next = BlockId(3),
        ];
        for (index, damage) in damages.into_iter().enumerate() {
            let mut pool = sound();
            damage(&mut pool);
            assert!(pool.check_integrity(&counts).is_err(), "damage {index}");
        }
        let mut lost = sound();
        lost.unlink(BlockId(3));
        assert!(
            lost.check_integrity(&counts).is_err(),
            "a free block on no list"
        );
    }
}
