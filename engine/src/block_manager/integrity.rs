//! Recounts everything that the block manager counts.
//!
//! Neighbours: called by `engine.rs`; the pool and the prefix cache check themselves
//! (`block_pool.rs`, `prefix_cache/integrity.rs`).

use super::{BlockManager, Group};
use crate::{BlockId, BlockTable, IntegrityError};

impl BlockManager {
    /// Recounts references from `all_tables` (the tables of every sequence), pins and scheduled
    /// copies, and compares; then the prefix cache with its indexes.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check_integrity(&self, all_tables: &[&[BlockTable]]) -> Result<(), IntegrityError> {
        for (group, state) in self.groups.iter().enumerate() {
            let mut ref_counts = vec![0; state.pool.num_usable() + 1];
            let mut count = |blocks: &[BlockId]| {
                for block in blocks {
                    ref_counts[block.index()] += 1;
                }
            };
            for tables in all_tables {
                check_table(&tables[group])?;
                count(tables[group].held_blocks());
            }
            for pin in &self.pins {
                count(pin.blocks(group));
            }
            for &(source, destination) in &state.copies {
                count(&[source, destination]);
            }
            state.pool.check_integrity(&ref_counts)?;
            state.check_copies()?;
            state.cache.check_integrity()?;
        }
        Ok(())
    }
}

/// Null exactly where a window has let go.
fn check_table(table: &BlockTable) -> Result<(), IntegrityError> {
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
    Ok(())
}

impl Group {
    fn check_copies(&self) -> Result<(), IntegrityError> {
        for (place, &(source_block, destination)) in self.copies.iter().enumerate() {
            let others = self.copies.iter().enumerate();
            let depends = others.into_iter().any(|(other, &(read, written))| {
                read == destination || (other != place && written == destination)
            });
            if depends {
                return Err(IntegrityError::Copies {
                    source_block,
                    destination,
                });
            }
        }
        Ok(())
    }
}
