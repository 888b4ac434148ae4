//! Pins: prefixes kept from eviction, for a time, within a quota per tenant.
//!
//! Neighbours: the caller pins through the engine; `scheduler.rs` breaks pins when nothing else is
//! left to give to the oldest request.

use thiserror::Error;

use super::{BlockManager, Group};
use crate::{BlockId, CacheKeys, TokenId};

/// Names a pin for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinId(pub u64);

/// What was pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// To take it off again.
    pub id: PinId,
    /// Tokens of the prefix that are kept: whole blocks.
    pub num_tokens: usize,
}

/// Why nothing was pinned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PinError {
    /// There is no prefix cache.
    #[error("the prefix cache is off: nothing can be pinned")]
    Disabled,
    /// Not one whole block of the prefix is cached.
    #[error("no block of these {num_tokens} tokens is cached: run a request with them first")]
    NotCached {
        /// Tokens asked for.
        num_tokens: usize,
    },
    /// The tenant would keep more blocks than it may.
    #[error(
        "{} has {num_pinned} blocks pinned and asks for {num_wanted} more, the limit is {limit}: take \
         off a pin, or raise the limit",
        tenant.as_deref().unwrap_or("the tenant without a name")
    )]
    Quota {
        /// The tenant.
        tenant: Option<String>,
        /// Blocks it has pinned, over all groups.
        num_pinned: usize,
        /// Blocks that this pin would add.
        num_wanted: usize,
        /// Most it may have.
        limit: usize,
    },
}

/// A pin's blocks.
#[derive(Clone, Debug)]
pub(super) struct PinRecord {
    id: PinId,
    tenant: Option<String>,
    expires_at: Option<u64>,
    /// Per group, in order of position.
    blocks: Vec<Vec<BlockId>>,
}

impl PinRecord {
    /// Blocks kept in group `group`.
    pub(super) fn blocks(&self, group: usize) -> &[BlockId] {
        &self.blocks[group]
    }

    fn num_blocks(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    fn release(self, groups: &mut [Group]) {
        for (state, blocks) in groups.iter_mut().zip(self.blocks) {
            state.pool.free(blocks.into_iter().rev());
        }
    }
}

impl BlockManager {
    /// Keeps the whole blocks of `tokens` that are cached now from eviction, until the pin is taken
    /// off, broken, or expires at `expires_at` (in the caller's unit, the one of
    /// [`BlockManager::expire_pins`]). Of a window group, the blocks that a hit at the end of the
    /// prefix needs.
    ///
    /// A block counts once for each pin that keeps it.
    ///
    /// # Errors
    /// [`PinError`]; nothing is pinned then.
    pub fn pin(
        &mut self,
        keys: &CacheKeys,
        tokens: &[TokenId],
        expires_at: Option<u64>,
    ) -> Result<Pin, PinError> {
        if !self.config.enabled {
            return Err(PinError::Disabled);
        }
        let mut chain = self.new_chain(keys);
        chain.extend(tokens);
        let (num_full, mut blocks) = self.find_full_blocks(&chain, tokens);
        if num_full == 0 {
            let num_tokens = tokens.len();
            return Err(PinError::NotCached { num_tokens });
        }
        for blocks in &mut blocks {
            blocks.retain(|block| !block.is_null());
        }
        let id = PinId(self.num_pins_ever);
        let record = PinRecord {
            id,
            tenant: keys.tenant.clone(),
            expires_at,
            blocks,
        };
        self.check_quota(&record)?;
        for (state, blocks) in self.groups.iter_mut().zip(&record.blocks) {
            for &block in blocks {
                state.pool.touch(block);
            }
        }
        self.num_pins_ever += 1;
        self.pins.push(record);
        let num_tokens = num_full * self.block_size;
        Ok(Pin { id, num_tokens })
    }

    fn check_quota(&self, record: &PinRecord) -> Result<(), PinError> {
        let num_pinned = self.num_pinned_blocks(record.tenant.as_deref());
        let num_wanted = record.num_blocks();
        let limit = self.config.pinned_blocks_per_tenant_max;
        if num_pinned + num_wanted > limit {
            return Err(PinError::Quota {
                tenant: record.tenant.clone(),
                num_pinned,
                num_wanted,
                limit,
            });
        }
        Ok(())
    }

    /// Blocks that `tenant` has pinned, over all groups and pins.
    pub fn num_pinned_blocks(&self, tenant: Option<&str>) -> usize {
        let own = self
            .pins
            .iter()
            .filter(|pin| pin.tenant.as_deref() == tenant);
        own.map(PinRecord::num_blocks).sum()
    }

    /// Takes a pin off. Returns whether it was still there.
    pub fn unpin(&mut self, id: PinId) -> bool {
        let place = self.pins.iter().position(|pin| pin.id == id);
        if let Some(place) = place {
            self.pins.remove(place).release(&mut self.groups);
        }
        place.is_some()
    }

    /// Takes off the pins that expire at `now` or before, and returns how many.
    pub fn expire_pins(&mut self, now: u64) -> usize {
        let is_over = |pin: &mut PinRecord| pin.expires_at.is_some_and(|end| end <= now);
        let mut num_expired = 0;
        for pin in self.pins.extract_if(.., is_over) {
            pin.release(&mut self.groups);
            num_expired += 1;
        }
        num_expired
    }

    /// Takes off the oldest pin. Returns whether there was one.
    pub fn break_oldest_pin(&mut self) -> bool {
        let has_pins = !self.pins.is_empty();
        if has_pins {
            self.pins.remove(0).release(&mut self.groups);
        }
        has_pins
    }
}
