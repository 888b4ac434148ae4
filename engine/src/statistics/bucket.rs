//! Finished requests, sorted into buckets of requests that are alike.
//!
//! Neighbours: `mod.rs` keeps the buckets; `facts.rs` is what a request brings; `histogram.rs`
//! holds each measure; `report.rs` is what becomes of it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use super::histogram::Histogram;
use super::report::{BucketReport, RequestsReport, TenantLabel};
use super::{RequestFacts, SamplingKind};
use crate::Timestamp;

/// Tenants that have buckets of their own: the first so many to finish a request. All others share
/// theirs, so that names made up by callers cannot fill the memory.
pub(super) const TENANTS_MAX: usize = 64;

/// A class of lengths, a factor of four wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LengthClass {
    /// Up to 64 tokens.
    To64,
    /// 65 to 256 tokens.
    To256,
    /// 257 to 1,024 tokens.
    To1024,
    /// 1,025 to 4,096 tokens.
    To4096,
    /// More than 4,096 tokens.
    Longer,
}

impl LengthClass {
    /// The class of a length in tokens.
    pub fn of(len: usize) -> Self {
        match len {
            0..=64 => Self::To64,
            65..=256 => Self::To256,
            257..=1024 => Self::To1024,
            1025..=4096 => Self::To4096,
            _ => Self::Longer,
        }
    }

    /// As it is printed and serialised, at most five characters.
    pub fn label(self) -> &'static str {
        match self {
            Self::To64 => "<=64",
            Self::To256 => "<=256",
            Self::To1024 => "<=1k",
            Self::To4096 => "<=4k",
            Self::Longer => ">4k",
        }
    }
}

impl fmt::Display for LengthClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

impl Serialize for LengthClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.label())
    }
}

/// What the requests of one bucket have in common. Buckets are reported in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BucketKey {
    kind: SamplingKind,
    prompt_len: LengthClass,
    output_len: LengthClass,
    tenant: TenantKey,
}

/// Whose requests a bucket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TenantKey {
    /// Nobody's.
    Nobody,
    /// Those of the tenant with this index, in order of first finished request.
    Known(usize),
    /// Those of all further tenants.
    Other,
}

/// The buckets that have met a request: at most 4 kinds, 5 by 5 lengths and [`TENANTS_MAX`] + 2
/// tenants. A request adds at most seven entries of 16 bytes to their histograms.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    tenants: BTreeMap<String, usize>,
    buckets: BTreeMap<BucketKey, Requests>,
}

impl Buckets {
    /// Takes up a request that has ended.
    pub(super) fn record(&mut self, facts: &RequestFacts, now: Timestamp, completion_len: usize) {
        let key = BucketKey {
            kind: facts.kind,
            prompt_len: LengthClass::of(facts.prompt_tokens),
            output_len: LengthClass::of(completion_len),
            tenant: self.tenant_key(facts.tenant.as_deref()),
        };
        let requests = self.buckets.entry(key).or_default();
        requests.record(facts, now, completion_len);
    }

    /// All buckets, in order of kind, lengths and tenant.
    pub(super) fn report(&self) -> Vec<BucketReport> {
        let mut names = vec![""; self.tenants.len()];
        for (name, &index) in &self.tenants {
            names[index] = name;
        }
        let tenant_label = |tenant| match tenant {
            TenantKey::Nobody => TenantLabel::Nobody,
            TenantKey::Known(index) => TenantLabel::Named(names[index].to_owned()),
            TenantKey::Other => TenantLabel::Other,
        };
        let reports = self.buckets.iter().map(|(key, requests)| BucketReport {
            kind: key.kind,
            prompt_len: key.prompt_len,
            output_len: key.output_len,
            tenant: tenant_label(key.tenant),
            requests: requests.report(),
        });
        reports.collect()
    }

    fn tenant_key(&mut self, tenant: Option<&str>) -> TenantKey {
        let Some(name) = tenant else {
            return TenantKey::Nobody;
        };
        if let Some(&index) = self.tenants.get(name) {
            return TenantKey::Known(index);
        }
        let index = self.tenants.len();
        if index == TENANTS_MAX {
            return TenantKey::Other;
        }
        self.tenants.insert(name.to_owned(), index);
        TenantKey::Known(index)
    }
}

/// Measures of requests that have ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    count: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    recomputed_cached_tokens: u64,
    ttft_us: Histogram,
    tpot_us: Histogram,
    queue_us: Histogram,
    parked_us: Histogram,
    total_us: Histogram,
    cached_tokens: Histogram,
    preemptions: Histogram,
}

impl Requests {
    /// Takes up a request that ended at `now`. A measure that it did not come to (a first token, an
    /// admission) stays out of that measure's distribution.
    pub(super) fn record(&mut self, facts: &RequestFacts, now: Timestamp, completion_len: usize) {
        self.count += 1;
        self.prompt_tokens += facts.prompt_tokens as u64;
        self.completion_tokens += completion_len as u64;
        self.recomputed_cached_tokens += facts.recomputed_cached_tokens as u64;
        if let Some(ttft_us) = facts.ttft_us() {
            self.ttft_us.record(ttft_us);
        }
        if let Some(tpot_us) = facts.tpot_us() {
            self.tpot_us.record(tpot_us);
        }
        if let Some(parked_us) = facts.parked_us {
            self.parked_us.record(parked_us);
        }
        if let Some(admission) = facts.admission {
            self.queue_us.record(admission.queue_us);
            self.cached_tokens.record(admission.cached_tokens as u64);
        }
        self.total_us.record(now.since(facts.queued_at));
        self.preemptions.record(facts.num_preemptions as u64);
    }

    pub(super) fn report(&self) -> RequestsReport {
        RequestsReport {
            num_requests: self.count,
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            recomputed_cached_tokens: self.recomputed_cached_tokens,
            ttft_us: self.ttft_us.distribution(),
            tpot_us: self.tpot_us.distribution(),
            queue_us: self.queue_us.distribution(),
            parked_us: self.parked_us.distribution(),
            total_us: self.total_us.distribution(),
            cached_tokens: self.cached_tokens.distribution(),
            preemptions: self.preemptions.distribution(),
        }
    }
}
