//! From bytes to the token that has exactly these bytes, and a hash for small keys.
//!
//! A vocabulary of 262,144 entries is indexed at each start, so the index holds ids and hashes (the
//! bytes are in [`Pieces`]) and its hash is a few multiplications. Keys come from the vocabulary,
//! not from an adversary: texts are only looked up.
//!
//! Neighbours: [`super::super::pieces`], [`super::sentence_piece`], [`super::byte_level`].

use std::hash::Hasher;
use std::num::NonZeroU32;

use forerun_engine::TokenId;

use super::super::pieces::{Pieces, TokenKind};

/// Tokens by their bytes.
pub(super) struct PieceIndex {
    /// Open addressing with linear probing.
    slots: Vec<Option<Slot>>,
    /// Longer texts are not looked up.
    num_bytes_max: usize,
}

/// An entry. The tag spares a look at the bytes of most other tokens, which are seldom in cache.
#[derive(Clone, Copy)]
struct Slot {
    /// Upper half of the hash.
    tag: u32,
    /// The token's id + 1.
    successor: NonZeroU32,
}

impl Slot {
    fn token(self) -> TokenId {
        TokenId(self.successor.get() - 1)
    }
}

impl PieceIndex {
    /// Indexes the tokens of the kinds that `is_indexed` picks. Of two with equal bytes the first
    /// counts.
    pub(super) fn new(pieces: &Pieces, is_indexed: impl Fn(TokenKind) -> bool) -> Self {
        // At most half full, so that probing ends.
        let num_slots = (pieces.len() * 2).next_power_of_two().max(2);
        let mut index = Self {
            slots: vec![None; num_slots],
            num_bytes_max: 0,
        };
        for (id, kind) in pieces.iter() {
            let bytes = pieces.bytes(id);
            if !is_indexed(kind) || bytes.is_empty() {
                continue;
            }
            index.num_bytes_max = index.num_bytes_max.max(bytes.len());
            let hash = hash(bytes);
            let (place, found) = index.probe(pieces, bytes, hash);
            if found.is_none() {
                let successor = NonZeroU32::MIN.saturating_add(id.0);
                index.slots[place] = Some(Slot {
                    tag: tag(hash),
                    successor,
                });
            }
        }
        index
    }

    /// The token with exactly these bytes.
    pub(super) fn find(&self, pieces: &Pieces, bytes: &[u8]) -> Option<TokenId> {
        if bytes.len() > self.num_bytes_max {
            return None;
        }
        self.probe(pieces, bytes, hash(bytes)).1
    }

    /// The slot of `bytes`, or the free one where they would go, and the token.
    fn probe(&self, pieces: &Pieces, bytes: &[u8], hash: u64) -> (usize, Option<TokenId>) {
        let mask = self.slots.len() - 1;
        let mut place = hash as usize & mask;
        while let Some(slot) = self.slots[place] {
            if slot.tag == tag(hash) && pieces.bytes(slot.token()) == bytes {
                return (place, Some(slot.token()));
            }
            place = (place + 1) & mask;
        }
        (place, None)
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = QuickHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Multiply and fold, eight bytes at a time.
#[derive(Default)]
pub(super) struct QuickHasher(u64);

impl QuickHasher {
    fn mix(&mut self, word: u64) {
        // An odd constant with well spread bits (2^64 divided by the golden ratio).
        let product = u128::from(self.0 ^ word) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length sets apart texts that end in zero bytes.
        self.mix(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
