//! Statistics of the engine: what its steps did, and what requests experienced, by buckets of
//! requests that are alike, since a mean over all hides who waits.
//!
//! Memory is bounded however many requests come: quantiles come from histograms, tenants beyond a
//! fixed number share a bucket. Times are given by the caller.
//!
//! Neighbours: `facts.rs` is what the engine notes down; `bucket.rs` and `histogram.rs` keep it;
//! `report.rs` is what comes out, `table.rs` its printed form.

mod bucket;
mod facts;
mod histogram;
mod report;
mod table;
#[cfg(test)]
mod tests;

use bucket::{Buckets, Requests};
use histogram::Histogram;

use crate::Timestamp;

pub use bucket::LengthClass;
pub use facts::{MissKind, RequestFacts, SamplingKind, StepFacts};
pub use report::{
    Bin, BucketReport, Distribution, EngineReport, MeanMax, MissCounts, PrefixReport,
    RequestsReport, StatisticsReport, TenantLabel,
};

/// What was measured since it was made.
#[derive(Clone, Debug)]
pub struct Statistics {
    steps: Steps,
    prefix: Prefix,
    requests: Requests,
    buckets: Buckets,
}

/// Sums over steps.
#[derive(Clone, Debug)]
struct Steps {
    count: u64,
    tokens: Histogram,
    seqs: MeanMaxSum,
    emitted_tokens: u64,
    kv_used_share: MeanMaxSum,
    kv_waste_share: MeanMaxSum,
    num_preemptions: u64,
    num_running_max: usize,
    num_waiting_max: usize,
    num_parked_max: usize,
}

/// Sums over lookups.
#[derive(Clone, Debug, Default)]
struct Prefix {
    num_lookups: u64,
    looked_up_tokens: u64,
    hit_tokens: u64,
    misses: MissCounts,
}

/// What a [`MeanMax`] is made from.
#[derive(Clone, Copy, Debug, Default)]
struct MeanMaxSum {
    count: u64,
    sum: f64,
    max: f64,
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            steps: Steps {
                count: 0,
                tokens: Histogram::preallocated(),
                seqs: MeanMaxSum::default(),
                emitted_tokens: 0,
                kv_used_share: MeanMaxSum::default(),
                kv_waste_share: MeanMaxSum::default(),
                num_preemptions: 0,
                num_running_max: 0,
                num_waiting_max: 0,
                num_parked_max: 0,
            },
            prefix: Prefix::default(),
            requests: Requests::default(),
            buckets: Buckets::default(),
        }
    }
}

impl Statistics {
    /// Takes up a step. Allocates nothing.
    ///
    /// # Panics
    /// If more blocks are used than there are, or more slots filled than allocated.
    pub fn record_step(&mut self, facts: &StepFacts) {
        assert!(
            facts.blocks_used <= facts.blocks_usable,
            "{} blocks in use of {}",
            facts.blocks_used,
            facts.blocks_usable
        );
        assert!(
            facts.slots_filled <= facts.slots_allocated,
            "{} slots filled of {}",
            facts.slots_filled,
            facts.slots_allocated
        );
        let steps = &mut self.steps;
        steps.count += 1;
        steps.tokens.record(facts.num_tokens as u64);
        steps.seqs.record(facts.num_seqs as f64);
        steps.emitted_tokens += facts.num_emitted as u64;
        steps.num_preemptions += facts.num_preempted as u64;
        steps.num_running_max = steps.num_running_max.max(facts.num_running);
        steps.num_waiting_max = steps.num_waiting_max.max(facts.num_waiting);
        steps.num_parked_max = steps.num_parked_max.max(facts.num_parked);
        if let Some(share) = share(facts.blocks_used as u64, facts.blocks_usable as u64) {
            steps.kv_used_share.record(share);
        }
        let slots_empty = facts.slots_allocated - facts.slots_filled;
        if let Some(share) = share(slots_empty as u64, facts.slots_allocated as u64) {
            steps.kv_waste_share.record(share);
        }
    }

    /// Takes up a request that has ended, for whatever reason, after generating
    /// `completion_tokens` tokens in all its samples.
    pub fn record_finished(
        &mut self,
        facts: &RequestFacts,
        now: Timestamp,
        completion_tokens: usize,
    ) {
        self.requests.record(facts, now, completion_tokens);
        self.buckets.record(facts, now, completion_tokens);
    }

    /// Takes up an admission that looked up `num_looked_up` tokens in the prefix cache, found
    /// `num_hit`, and missed the rest because of `miss`.
    ///
    /// # Panics
    /// If more was found than looked up.
    pub fn record_prefix(&mut self, num_looked_up: usize, num_hit: usize, miss: MissKind) {
        assert!(
            num_hit <= num_looked_up,
            "{num_hit} tokens found of {num_looked_up}"
        );
        self.prefix.num_lookups += 1;
        self.prefix.looked_up_tokens += num_looked_up as u64;
        self.prefix.hit_tokens += num_hit as u64;
        let misses = &mut self.prefix.misses;
        match miss {
            MissKind::None => {}
            MissKind::Disabled => misses.num_disabled += 1,
            MissKind::FirstSeen => misses.num_first_seen += 1,
            MissKind::Tokens => misses.num_tokens += 1,
            MissKind::OtherTenant => misses.num_other_tenant += 1,
            MissKind::Evicted => misses.num_evicted += 1,
        }
    }

    /// What was measured so far.
    pub fn report(&self) -> StatisticsReport {
        StatisticsReport {
            engine: self.steps.report(self.prefix.report()),
            requests: self.requests.report(),
            buckets: self.buckets.report(),
        }
    }
}

impl Steps {
    fn report(&self, prefix: PrefixReport) -> EngineReport {
        EngineReport {
            num_steps: self.count,
            tokens_per_step: self.tokens.distribution(),
            tokens_per_step_bins: self.tokens.bins(),
            seqs_per_step: self.seqs.report(),
            emitted_tokens: self.emitted_tokens,
            prefix,
            kv_used_share: self.kv_used_share.report(),
            kv_waste_share: self.kv_waste_share.report(),
            num_preemptions: self.num_preemptions,
            num_running_max: self.num_running_max as u64,
            num_waiting_max: self.num_waiting_max as u64,
            num_parked_max: self.num_parked_max as u64,
        }
    }
}

impl Prefix {
    fn report(&self) -> PrefixReport {
        PrefixReport {
            num_lookups: self.num_lookups,
            looked_up_tokens: self.looked_up_tokens,
            saved_prefill_tokens: self.hit_tokens,
            hit_share: share(self.hit_tokens, self.looked_up_tokens),
            misses: self.misses,
        }
    }
}

impl MeanMaxSum {
    /// Values are not negative.
    fn record(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.max = self.max.max(value);
    }

    fn report(self) -> Option<MeanMax> {
        (self.count > 0).then(|| MeanMax {
            mean: self.sum / self.count as f64,
            max: self.max,
        })
    }
}

/// `part / whole`; nothing if there is no whole.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
