//! A simulated KV pool: what a token leaves in its slot, and who may see it.
//!
//! Neighbours: `fake_executor.rs` writes and reads it through the block tables of a batch.

use std::collections::BTreeMap;

use forerun_engine::{EngineConfig, RequestId, SeqId, StepBatch};

use crate::fake_model::{see, visible};

/// What a token leaves in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) token: u32,
    pub(crate) position: u32,
    /// Whose request wrote it.
    pub(crate) tenant: u64,
    /// Layer two: a hash of what the token saw when it was computed.
    pub(crate) state: u64,
    /// Only the first layers wrote it: of no use to the whole model.
    pub(crate) is_partial: bool,
}

/// What stands where a failed step was to write.
const POISON: Entry = Entry {
    token: u32::MAX,
    position: u32::MAX,
    tenant: u64::MAX,
    state: u64::MAX,
    is_partial: false,
};

#[derive(Clone, Debug)]
struct Group {
    slots: Vec<Option<Entry>>,
    window: Option<usize>,
}

/// Where the keys and values of a position lie among the slots of entry `seq`.
pub(crate) fn place_of(batch: &StepBatch, seq: usize, position: u32) -> u32 {
    match position.checked_sub(batch.tail_bases[seq]) {
        None => position,
        Some(offset) => batch.tails[(batch.tail_offsets[seq] + offset) as usize],
    }
}

/// The slots of every KV group.
#[derive(Clone, Debug)]
pub(crate) struct KvPool {
    block_size: usize,
    groups: Vec<Group>,
}

impl KvPool {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let groups = config.groups.iter().map(|group| Group {
            slots: vec![None; group.num_blocks * config.block_size],
            window: group.window,
        });
        Self {
            block_size: config.block_size,
            groups: groups.collect(),
        }
    }

    /// Slot of `position` by the table of sequence `seq` in group `group` of the batch.
    pub(crate) fn slot(&self, batch: &StepBatch, group: usize, seq: usize, position: u32) -> usize {
        let arrays = &batch.groups[group];
        let place = place_of(batch, seq, position);
        let logical = place as usize / self.block_size;
        assert!(
            logical < arrays.blocks_per_seq,
            "place {place} is past the block table"
        );
        let block = arrays.block_tables[seq * arrays.blocks_per_seq + logical] as usize;
        block * self.block_size + place as usize % self.block_size
    }

    /// Block copies, all read before any is written.
    pub(crate) fn copy_blocks(&mut self, batch: &StepBatch) {
        for (group, arrays) in self.groups.iter_mut().zip(&batch.groups) {
            let before = group.slots.clone();
            for &(source, destination) in &arrays.block_copies {
                let range = |block: usize| block * self.block_size..(block + 1) * self.block_size;
                let from = &before[range(source.index())];
                group.slots[range(destination.index())].copy_from_slice(from);
            }
        }
    }

    /// Moves what the accepted tokens of drafts left to where it lies after a plain decode.
    pub(crate) fn compact(&mut self, batch: &StepBatch, accepted: &[(usize, Vec<usize>)]) {
        for (group, arrays) in self.groups.iter_mut().zip(&batch.groups) {
            for (anchor, path) in accepted {
                for (index, &token) in path.iter().enumerate() {
                    let from = arrays.slot_mapping[token] as usize;
                    let to = arrays.slot_mapping[anchor + 1 + index] as usize;
                    group.slots[to] = group.slots[from];
                }
            }
        }
    }

    /// Whatever was there, nothing of it can be used.
    pub(crate) fn poison_copies(&mut self, batch: &StepBatch) {
        for (group, arrays) in self.groups.iter_mut().zip(&batch.groups) {
            for &(_, destination) in &arrays.block_copies {
                let start = destination.index() * self.block_size;
                group.slots[start..start + self.block_size].fill(Some(POISON));
            }
        }
    }

    /// A failed step leaves anything at all in the slots it was to write.
    pub(crate) fn poison_writes(&mut self, batch: &StepBatch) {
        for (group, arrays) in self.groups.iter_mut().zip(&batch.groups) {
            for &slot in &arrays.slot_mapping {
                group.slots[slot as usize] = Some(POISON);
            }
        }
    }

    /// Keys and values of every token, layer by layer.
    pub(crate) fn write(&mut self, batch: &StepBatch, token_ids: &[u32], tenants: &[u64]) {
        for (group, arrays) in self.groups.iter_mut().zip(&batch.groups) {
            for (token, &slot) in arrays.slot_mapping.iter().enumerate() {
                group.slots[slot as usize] = Some(Entry {
                    token: token_ids[token],
                    position: batch.positions[token],
                    tenant: tenants[batch.seq_of_token[token] as usize],
                    state: 0,
                    is_partial: false,
                });
            }
        }
        for token in 0..batch.num_tokens() {
            let seq = batch.seq_of_token[token] as usize;
            let position = batch.positions[token];
            let state = self.attend(batch, seq, position, |entry| u64::from(entry.token));
            for (group, arrays) in self.groups.iter_mut().zip(&batch.groups) {
                let entry = group.slots[arrays.slot_mapping[token] as usize].as_mut();
                entry.expect("written above").state = state;
            }
        }
    }

    /// What a draft pass sees of the tokens that are committed is what they are.
    pub(crate) fn check_tokens(
        &self,
        batch: &StepBatch,
        committed: &BTreeMap<(RequestId, SeqId), BTreeMap<u32, u32>>,
    ) {
        for (seq, entry) in batch.seqs.iter().enumerate() {
            let Some(tokens) = committed.get(&(entry.request, entry.seq)) else {
                continue;
            };
            let last = batch.context_lens[seq] - 1;
            for (index, group) in self.groups.iter().enumerate() {
                for position in visible(last, group.window) {
                    let slot = self.slot(batch, index, seq, position);
                    let found = group.slots[slot].expect("written").token;
                    // Behind them lie guesses.
                    if let Some(&expected) = tokens.get(&position) {
                        assert_eq!(found, expected, "drafts from garbage at {position}");
                    }
                }
            }
        }
    }

    /// What was just written comes of the first layers alone.
    pub(crate) fn mark_partial(&mut self, batch: &StepBatch) {
        for (group, arrays) in self.groups.iter_mut().zip(&batch.groups) {
            for &slot in &arrays.slot_mapping {
                let entry = group.slots[slot as usize].as_mut();
                entry.expect("just written").is_partial = true;
            }
        }
    }

    /// Hash of what the query at `position` of `seq` sees in every group.
    pub(crate) fn attend(
        &self,
        batch: &StepBatch,
        seq: usize,
        position: u32,
        of: fn(&Entry) -> u64,
    ) -> u64 {
        let mut hash = 0;
        for (index, group) in self.groups.iter().enumerate() {
            for seen in visible(position, group.window) {
                let slot = self.slot(batch, index, seq, seen);
                assert!(
                    slot >= self.block_size,
                    "position {seen} was let go but is visible"
                );
                let entry = group.slots[slot].as_ref();
                let entry = entry.expect("a slot is read that nobody wrote");
                hash = see(hash, seen, of(entry));
            }
        }
        hash
    }

    /// Every token that the queries of the batch see is where it belongs and of the same tenant.
    pub(crate) fn check_visible(&self, batch: &StepBatch, tenants: &[u64]) {
        for (seq, &tenant) in tenants.iter().enumerate() {
            let first = batch.positions[batch.query_offsets[seq] as usize];
            let end = batch.context_lens[seq];
            for (index, group) in self.groups.iter().enumerate() {
                for position in *visible(first, group.window).start()..end {
                    let slot = self.slot(batch, index, seq, position);
                    let entry = group.slots[slot].expect("a slot is read that nobody wrote");
                    assert_eq!(entry.position, position, "somebody else's slot {slot}");
                    assert!(!entry.is_partial, "layers of slot {slot} are missing");
                    assert_eq!(entry.tenant, tenant, "another tenant's slot {slot}");
                }
            }
        }
    }
}
