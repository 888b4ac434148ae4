//! What can go wrong outside the engine, and the bugs that are planted to see whether they are found.
//!
//! Neighbours: `fake_executor.rs` does what is said here; `workload.rs` decides when.

use forerun_engine::{ExecutorError, StepBatch};

/// What goes wrong with one step.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// It is not taken.
    Submit(ExecutorError),
    /// It gives no verdicts.
    Collect(ExecutorError),
    /// A verdict too many.
    ExtraVerdict,
    /// A verdict too few.
    MissingVerdict,
    /// Logits of some sequences, by this seed, are not finite.
    NotFinite(u64),
    /// Some sequences, by this seed, get a token that does not exist.
    NoSuchToken(u64),
}

/// A bug of the engine or of a device, as it would show between the two.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Canary {
    /// The step's arrays are damaged.
    Batch(fn(&mut StepBatch)),
    /// Two verdicts of a step change places.
    SwappedVerdicts,
    /// Log-probabilities belong to the row before.
    ShiftedLogprobs,
    /// The last token of each step leaves the keys and values of another.
    WrongToken,
    /// A step that fails says that it did not.
    HiddenFailure,
    /// Requests reach the engine without their cache keys.
    IgnoredKeys,
    /// What accepted drafts left stays where it was written.
    NotCompacted,
    /// A carried token is taken from the step before the right one.
    StaleCarry,
}

/// Every planted bug by name. Each must be caught.
pub(crate) const CANARIES: [(&str, Canary); 20] = [
    ("copies dropped", Canary::Batch(drop_copies)),
    ("carried row off by one", Canary::Batch(shift_carried)),
    ("carried token of an older step", Canary::StaleCarry),
    ("verdicts of two rows swapped", Canary::SwappedVerdicts),
    ("slot off by one", Canary::Batch(shift_slot)),
    ("block table of the neighbour", Canary::Batch(rotate_tables)),
    (
        "history without the carried token",
        Canary::Batch(forget_carried),
    ),
    ("history of the neighbour", Canary::Batch(forget_history)),
    ("mask shifted", Canary::Batch(shift_masks)),
    ("placeholder counted twice", Canary::Batch(count_twice)),
    ("bans ignored", Canary::Batch(drop_bias)),
    ("seed of the next sample", Canary::Batch(next_seed)),
    (
        "log-probabilities of the row before",
        Canary::ShiftedLogprobs,
    ),
    ("keys and values of another token", Canary::WrongToken),
    ("a failed step that counts", Canary::HiddenFailure),
    ("tenants share a cache", Canary::IgnoredKeys),
    ("accepted drafts are not moved", Canary::NotCompacted),
    ("branches see their neighbours", Canary::Batch(drop_tails)),
    (
        "history without the drafts before it",
        Canary::Batch(forget_path),
    ),
    ("noise of drafts off by one", Canary::Batch(shift_noise)),
];

fn drop_copies(batch: &mut StepBatch) {
    for group in &mut batch.groups {
        group.block_copies.clear();
    }
}

fn shift_carried(batch: &mut StepBatch) {
    let num_carried = batch.carried.len();
    let rows: Vec<_> = batch.carried.iter().map(|carried| carried.row).collect();
    for (index, carried) in batch.carried.iter_mut().enumerate() {
        carried.row = rows[(index + 1) % num_carried];
    }
}

fn shift_slot(batch: &mut StepBatch) {
    for group in &mut batch.groups {
        if let Some(slot) = group.slot_mapping.last_mut() {
            *slot += 1;
        }
    }
}

fn rotate_tables(batch: &mut StepBatch) {
    for group in &mut batch.groups {
        group.block_tables.rotate_left(group.blocks_per_seq);
    }
}

fn forget_carried(batch: &mut StepBatch) {
    for row in &mut batch.sampling {
        row.carried_row = None;
    }
}

fn forget_history(batch: &mut StepBatch) {
    let ranges: Vec<_> = batch.sampling.iter().map(|row| row.history).collect();
    for (index, row) in batch.sampling.iter_mut().enumerate() {
        row.history = ranges[(index + 1) % ranges.len()];
    }
}

fn shift_masks(batch: &mut StepBatch) {
    for word in &mut batch.masks {
        *word = word.rotate_left(1);
    }
}

/// As if the token in flight had two places: what comes after it draws with the noise of the next.
fn count_twice(batch: &mut StepBatch) {
    let carried: Vec<_> = batch.carried.iter().map(|carried| carried.token).collect();
    for (row, token) in batch.logit_rows.iter().enumerate() {
        if carried.contains(token) {
            batch.sampling[row].position += 1;
        }
    }
}

fn drop_bias(batch: &mut StepBatch) {
    for row in &mut batch.sampling {
        row.bias = (0, 0);
    }
}

fn drop_tails(batch: &mut StepBatch) {
    batch.tails.clear();
    batch.tail_offsets.fill(0);
    batch.tail_bases.clone_from(&batch.context_lens);
}

fn forget_path(batch: &mut StepBatch) {
    for row in 0..batch.sampling.len() {
        if let Some(parent) = batch.sampling[row].parent_row {
            batch.sampling[row].history = batch.sampling[parent as usize].history;
        }
    }
}

fn shift_noise(batch: &mut StepBatch) {
    for row in &mut batch.sampling {
        row.position += u32::from(row.parent_row.is_some());
    }
}

fn next_seed(batch: &mut StepBatch) {
    for row in &mut batch.sampling {
        row.seed = row.seed.wrapping_add(1);
    }
}
