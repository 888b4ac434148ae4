//! A slot for every token: gives blocks of each KV group to sequences and takes them back.
//!
//! Neighbours: called by `scheduler.rs` (reserve, release) and `engine.rs` (release, windows); one
//! [`BlockPool`] per group, one [`BlockTable`] per group and sequence.

use thiserror::Error;

use crate::{BlockPool, BlockTable, EngineConfig, IntegrityError};

/// The pools of all KV groups.
#[derive(Clone, Debug)]
pub struct BlockManager {
    block_size: usize,
    groups: Vec<GroupPool>,
}

#[derive(Clone, Debug)]
struct GroupPool {
    pool: BlockPool,
    window: Option<usize>,
}

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

impl BlockManager {
    /// Pools as `config` says, all free.
    pub fn new(config: &EngineConfig) -> Self {
        let groups = config
            .groups
            .iter()
            .map(|group| GroupPool {
                pool: BlockPool::new(group.num_blocks),
                window: group.window,
            })
            .collect();
        Self {
            block_size: config.block_size,
            groups,
        }
    }

    /// An empty block table for each group.
    pub fn new_tables(&self) -> Vec<BlockTable> {
        self.groups
            .iter()
            .map(|_| BlockTable::new(self.block_size))
            .collect()
    }

    /// Free blocks of group `group`.
    pub fn num_free(&self, group: usize) -> usize {
        self.groups[group].pool.num_free()
    }

    /// Usable blocks of group `group`, free or not.
    pub fn num_usable(&self, group: usize) -> usize {
        self.groups[group].pool.num_usable()
    }

    /// Whether positions `[0, num_tokens)` could all have slots now.
    ///
    /// # Errors
    /// [`OutOfBlocks`] of the first group that is too full.
    pub fn check_room(&self, tables: &[BlockTable], num_tokens: usize) -> Result<(), OutOfBlocks> {
        for (group, (state, table)) in self.groups.iter().zip(tables).enumerate() {
            let num_needed = table.num_missing(num_tokens);
            let num_free = state.pool.num_free();
            if num_needed > num_free {
                return Err(OutOfBlocks {
                    group,
                    num_needed,
                    num_free,
                });
            }
        }
        Ok(())
    }

    /// Gives positions `[0, num_tokens)` slots in every group, or changes nothing.
    ///
    /// Slots reserved earlier stay: after an aborted step they are simply there already.
    ///
    /// # Errors
    /// [`OutOfBlocks`] of the first group that is too full.
    pub fn reserve(
        &mut self,
        tables: &mut [BlockTable],
        num_tokens: usize,
    ) -> Result<(), OutOfBlocks> {
        self.check_room(tables, num_tokens)?;
        for (state, table) in self.groups.iter_mut().zip(tables) {
            for _ in 0..table.num_missing(num_tokens) {
                let block = state
                    .pool
                    .allocate()
                    .expect("check_room saw enough free blocks");
                table.blocks_mut().push(block);
            }
        }
        Ok(())
    }

    /// Takes every block back, last first.
    pub fn release(&mut self, tables: &mut [BlockTable]) {
        for (state, table) in self.groups.iter_mut().zip(tables) {
            state.pool.free(table.held_blocks().iter().rev().copied());
            table.clear();
        }
    }

    /// Takes back the blocks that no later query can see: those wholly before the window of the
    /// query at position `num_computed`, the next one.
    pub fn release_outside_windows(&mut self, tables: &mut [BlockTable], num_computed: usize) {
        for (state, table) in self.groups.iter_mut().zip(tables) {
            if let Some(window) = state.window {
                // That query sees positions [num_computed + 1 - window, num_computed].
                let first_visible = (num_computed + 1).saturating_sub(window);
                state.pool.free(table.release_before(first_visible).rev());
            }
        }
    }

    /// Recounts references from `all_tables` (the tables of every sequence) and compares.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check_integrity(&self, all_tables: &[&[BlockTable]]) -> Result<(), IntegrityError> {
        for (group, state) in self.groups.iter().enumerate() {
            let mut ref_counts = vec![0; state.pool.num_usable() + 1];
            for tables in all_tables {
                let table = &tables[group];
                let num_released = table.blocks().len() - table.held_blocks().len();
                for (index, &block) in table.blocks().iter().enumerate() {
                    if block.is_null() != (index < num_released) {
                        return Err(IntegrityError::Table {
                            index,
                            block,
                            num_released,
                        });
                    }
                }
                for block in table.held_blocks() {
                    ref_counts[block.index()] += 1;
                }
            }
            state.pool.check_integrity(&ref_counts)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Random operations keep every invariant; positions never share a slot.

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{KvGroupConfig, Position};

    fn config(block_size: usize, groups: &[(usize, Option<usize>)]) -> EngineConfig {
        let group = |&(num_blocks, window)| KvGroupConfig { num_blocks, window };
        EngineConfig {
            block_size,
            groups: groups.iter().map(group).collect(),
            step_tokens_max: 64,
            step_seqs_max: 8,
            max_seq_len: 1000,
            vocab_size: 100,
            eos_token_ids: vec![],
        }
    }

    /// What may happen to one of four sequences.
    #[derive(Clone, Debug)]
    enum Op {
        /// Computes so many tokens more.
        Grow(usize, usize),
        /// Ends, or is preempted.
        Release(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..4_usize, 1..20_usize).prop_map(|(seq, num_tokens)| Op::Grow(seq, num_tokens)),
            1 => (0..4_usize).prop_map(Op::Release),
        ]
    }

    /// Slots of the positions that can still be seen.
    fn live_slots(table: &BlockTable, block_size: usize, num_tokens: usize) -> Vec<u32> {
        let num_released = table.blocks().len() - table.held_blocks().len();
        let live = (num_released * block_size) as u32..num_tokens as u32;
        live.map(|position| table.slot_of(Position(position)).0)
            .collect()
    }

    proptest! {
        #[test]
        fn random_operations_keep_integrity_and_no_two_positions_share_a_slot(
            shift in 0..5_u32,
            window in prop::option::of(1..30_usize),
            num_blocks in 2..30_usize,
            ops in prop::collection::vec(op(), 0..60),
        ) {
            let block_size = 1 << shift;
            let config = config(block_size, &[(num_blocks, None), (num_blocks + 3, window)]);
            let mut blocks = BlockManager::new(&config);
            let mut sequences: Vec<_> = (0..4).map(|_| (blocks.new_tables(), 0)).collect();
            for op in ops {
                match op {
                    Op::Grow(seq, num_tokens) => {
                        let (tables, num_computed) = &mut sequences[seq];
                        let before = (tables.clone(), blocks.num_free(0), blocks.num_free(1));
                        if blocks.reserve(tables, *num_computed + num_tokens).is_ok() {
                            *num_computed += num_tokens;
                            prop_assert!(tables.iter().all(|t| t.capacity() >= *num_computed));
                            blocks.release_outside_windows(tables, *num_computed);
                        } else {
                            let after = (tables.clone(), blocks.num_free(0), blocks.num_free(1));
                            prop_assert_eq!(before, after);
                        }
                    }
                    Op::Release(seq) => {
                        let (tables, num_computed) = &mut sequences[seq];
                        blocks.release(tables);
                        *num_computed = 0;
                    }
                }
                let all: Vec<_> = sequences.iter().map(|(tables, _)| tables.as_slice()).collect();
                blocks.check_integrity(&all).unwrap();
                for group in 0..2 {
                    let mut seen = BTreeSet::new();
                    for (tables, num_tokens) in &sequences {
                        for slot in live_slots(&tables[group], block_size, *num_tokens) {
                            prop_assert!(slot as usize >= block_size, "the null block is written");
                            prop_assert!(seen.insert(slot), "slot {} has two positions", slot);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_full_pool_says_which_group_lacks_how_much_and_takes_nothing() {
        let mut blocks = BlockManager::new(&config(4, &[(9, None), (4, None)]));
        let mut tables = blocks.new_tables();
        let error = blocks.reserve(&mut tables, 15).unwrap_err();
        assert_eq!(
            error,
            OutOfBlocks {
                group: 1,
                num_needed: 4,
                num_free: 3
            }
        );
        assert_eq!(
            error.to_string(),
            "KV group 1 needs 4 more blocks, 3 are free"
        );
        assert_eq!((blocks.num_free(0), blocks.num_free(1)), (8, 3));
    }

    #[test]
    fn a_window_lets_go_of_exactly_the_blocks_that_the_next_query_cannot_see() {
        // Blocks of 4, window 6: the query at position p sees [p - 5, p].
        for num_computed in 0..40_usize {
            let mut blocks = BlockManager::new(&config(4, &[(20, Some(6))]));
            let mut tables = blocks.new_tables();
            blocks.reserve(&mut tables, 40).unwrap();
            blocks.release_outside_windows(&mut tables, num_computed);
            let num_released = tables[0]
                .blocks()
                .iter()
                .filter(|block| block.is_null())
                .count();
            let invisible = num_computed.saturating_sub(5);
            assert_eq!(num_released, invisible / 4, "{num_computed} computed");
            assert_eq!(blocks.num_free(0), 19 - 10 + num_released);
            blocks.release(&mut tables);
            assert_eq!(blocks.num_free(0), 19);
        }
    }

    #[test]
    fn a_table_that_names_a_block_without_holding_it_is_found() {
        let mut blocks = BlockManager::new(&config(4, &[(9, None)]));
        let mut tables = blocks.new_tables();
        blocks.reserve(&mut tables, 9).unwrap();
        let copy = tables.clone();
        let both = [tables.as_slice(), copy.as_slice()];
        assert!(blocks.check_integrity(&both).is_err());
        assert!(blocks.check_integrity(&[]).is_err());
        blocks.check_integrity(&[tables.as_slice()]).unwrap();
    }
}
