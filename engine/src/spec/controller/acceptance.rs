//! How often guesses came true.
//!
//! Neighbours: part of [`super::Controller`] and of each request.

use std::collections::BTreeMap;

use super::{Bucket, DrafterId};

/// Guesses of one kind: by drafter, by how long a match they rest on, by depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    drafter: DrafterId,
    match_class: u8,
    depth: u8,
}

/// Depths from here on are alike.
const DEPTHS_MAX: usize = 8;
/// After so many guesses an older one counts half: texts change.
const HALF_LIFE: f64 = 40.0;
/// The estimate one level up counts as so many guesses.
const PRIOR_WEIGHT: f64 = 4.0;

impl Key {
    pub(super) fn new(drafter: DrafterId, match_len: usize, depth: usize) -> Self {
        let match_class = match match_len {
            0..=2 => match_len as u8,
            3..=4 => 3,
            5..=8 => 4,
            9..=16 => 5,
            _ => 6,
        };
        Self {
            drafter,
            match_class,
            depth: depth.min(DEPTHS_MAX) as u8,
        }
    }
}

/// Guesses tried and come true, the older ones faded.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    num_tried: f64,
    num_true: f64,
}

/// Counts by bucket and kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Acceptance {
    counts: BTreeMap<(Bucket, Key), Counts>,
}

impl Acceptance {
    /// The share that came true, as far as it is known, else `prior`.
    pub(super) fn estimate(&self, bucket: Bucket, key: Key, prior: f64) -> f64 {
        let counts = self.counts.get(&(bucket, key)).copied();
        let counts = counts.unwrap_or_default();
        (counts.num_true + PRIOR_WEIGHT * prior) / (counts.num_tried + PRIOR_WEIGHT)
    }

    pub(super) fn record(&mut self, bucket: Bucket, key: Key, is_true: bool) {
        let counts = self.counts.entry((bucket, key)).or_default();
        let fading = 0.5_f64.powf(1.0 / HALF_LIFE);
        counts.num_tried = counts.num_tried * fading + 1.0;
        counts.num_true = counts.num_true * fading + f64::from(u8::from(is_true));
    }
}
