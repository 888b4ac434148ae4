//! The statistics as plain numbers, to be printed or serialised.
//!
//! Neighbours: `mod.rs` makes the report; `table.rs` prints it.

use serde::Serialize;

use super::{LengthClass, SamplingKind};

/// Everything that was measured so far. What never came is `None` (JSON: `null`), not 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatisticsReport {
    /// The engine as a whole, from its steps.
    pub engine: EngineReport,
    /// All requests that have ended.
    pub requests: RequestsReport,
    /// The same by kind, prompt length, output length and tenant; only buckets that have requests,
    /// in that order.
    pub buckets: Vec<BucketReport>,
}

/// What the steps did, and how full the engine was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineReport {
    /// Steps taken.
    pub num_steps: u64,
    /// Tokens that ran in a step.
    pub tokens_per_step: Option<Distribution>,
    /// Steps by the number of tokens that ran, per power of two; empty ones are left out.
    pub tokens_per_step_bins: Vec<Bin>,
    /// Sequences that ran in a step.
    pub seqs_per_step: Option<MeanMax>,
    /// Tokens added to outputs, those of requests that still run included.
    pub emitted_tokens: u64,
    /// What the prefix cache found.
    pub prefix: PrefixReport,
    /// Blocks held by sequences, as a share of those that can hold tokens, over steps.
    pub kv_used_share: Option<MeanMax>,
    /// Slots without a token, as a share of the slots in blocks held by sequences, over the steps
    /// that had any.
    pub kv_waste_share: Option<MeanMax>,
    /// Preemptions, those of requests that still run included.
    pub num_preemptions: u64,
    /// Most sequences that were admitted at a time.
    pub num_running_max: u64,
    /// Most requests that waited for room at a time.
    pub num_waiting_max: u64,
    /// Most requests that waited for something outside the engine at a time.
    pub num_parked_max: u64,
}

/// What the prefix cache found. Every admission is a lookup, also one after a preemption.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrefixReport {
    /// Lookups.
    pub num_lookups: u64,
    /// Tokens looked up.
    pub looked_up_tokens: u64,
    /// Tokens found, which did not have to be computed.
    pub saved_prefill_tokens: u64,
    /// `saved_prefill_tokens` over `looked_up_tokens`.
    pub hit_share: Option<f64>,
    /// Why lookups did not find everything.
    pub misses: MissCounts,
}

/// Lookups that did not find everything, by the reason: see [`super::MissKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MissCounts {
    /// The prefix cache was off.
    pub num_disabled: u64,
    /// The first missing block was never seen.
    pub num_first_seen: u64,
    /// Its tokens differ from what was cached.
    pub num_tokens: u64,
    /// It is another tenant's.
    pub num_other_tenant: u64,
    /// It was evicted.
    pub num_evicted: u64,
}

/// Requests that are alike.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BucketReport {
    /// How their tokens are chosen.
    pub kind: SamplingKind,
    /// Length of their prompts.
    pub prompt_len: LengthClass,
    /// Length of what was generated, all samples of a request together.
    pub output_len: LengthClass,
    /// Whose they are.
    pub tenant: TenantLabel,
    /// What was measured.
    pub requests: RequestsReport,
}

/// Whose requests a bucket holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantLabel {
    /// Requests without a tenant.
    Nobody,
    /// Requests of this tenant.
    Named(String),
    /// Requests of all tenants that came after the first 64.
    Other,
}

/// Measures of requests that have ended, however they ended. A request that ended too early for a
/// measure is not in it: each has its own `count`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestsReport {
    /// Requests.
    pub num_requests: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Tokens that requests found in the prefix cache when they came back from preemption, and so
    /// did not compute again.
    pub recomputed_cached_tokens: u64,
    /// Time to the first token since the request was queued, parked time included.
    pub ttft_us: Option<Distribution>,
    /// Mean time per output token after the first, of requests with at least two. Tokens of all
    /// samples of a request count together.
    pub tpot_us: Option<Distribution>,
    /// Time from being ready until the first admission.
    pub queue_us: Option<Distribution>,
    /// Time parked for something outside the engine, of requests that were.
    pub parked_us: Option<Distribution>,
    /// Time from being queued to the end.
    pub total_us: Option<Distribution>,
    /// Prompt tokens found in the prefix cache at the first admission.
    pub cached_tokens: Option<Distribution>,
    /// Preemptions of a request.
    pub preemptions: Option<Distribution>,
}

/// Values of a measure. Quantiles are nearest-rank, within 1 % of the exact ones; the rest is exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The least.
    pub min: u64,
    /// Half are not above this.
    pub p50: u64,
    /// 95 in 100 are not above this.
    pub p95: u64,
    /// 99 in 100 are not above this.
    pub p99: u64,
    /// The greatest.
    pub max: u64,
}

/// Mean and greatest of a value over steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeanMax {
    /// The mean.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
}

/// How many values lie in `low ..= high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// The least value counted here.
    pub low: u64,
    /// The greatest value counted here.
    pub high: u64,
    /// Values.
    pub count: u64,
}
