//! The last hashes that were evicted, to tell a prefix that was lost from one that is new.
//!
//! Neighbours: `block_manager/allocation.rs` notes evictions, `block_manager/lookup.rs` asks.

use crate::BlockHash;

/// Evictions remembered.
const LEN_MAX: usize = 4096;

/// A ring of the first eight bytes of hashes: for statistics, so a collision costs nothing.
#[derive(Clone, Debug)]
pub(crate) struct EvictedHashes {
    ring: Vec<u64>,
    /// Where the next one goes once the ring is full.
    next: usize,
}

impl EvictedHashes {
    pub(crate) fn new() -> Self {
        Self {
            ring: Vec::with_capacity(LEN_MAX),
            next: 0,
        }
    }

    /// Notes `hash`; the oldest is forgotten when there are too many.
    pub(crate) fn push(&mut self, hash: &BlockHash) {
        if self.ring.len() < LEN_MAX {
            self.ring.push(hash.index_key());
        } else {
            self.ring[self.next] = hash.index_key();
            self.next = (self.next + 1) % LEN_MAX;
        }
    }

    /// Whether `hash` is among the last.
    pub(crate) fn contains(&self, hash: &BlockHash) -> bool {
        self.ring.contains(&hash.index_key())
    }

    pub(crate) fn clear(&mut self) {
        self.ring.clear();
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_evictions_are_remembered_and_no_more() {
        let hash = |number: u64| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            BlockHash::from_bytes(bytes)
        };
        let mut evicted = EvictedHashes::new();
        for number in 0..LEN_MAX as u64 + 10 {
            evicted.push(&hash(number));
        }
        assert!(!evicted.contains(&hash(9)));
        assert!(evicted.contains(&hash(10)) && evicted.contains(&hash(LEN_MAX as u64 + 9)));
        evicted.clear();
        assert!(!evicted.contains(&hash(100)));
    }
}
