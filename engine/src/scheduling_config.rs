//! How the scheduler decides.
//!
//! Neighbours: part of `config.rs`; read by `scheduler.rs`, `queues.rs` and `engine.rs`.

/// Who is served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulingPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The smallest priority first; of equals the one that came first.
    Priority,
}

/// The scheduler's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulingConfig {
    /// Who is served first.
    pub policy: SchedulingPolicy,
    /// Most requests that wait or are parked; more are refused, so that callers slow down.
    pub waiting_max: usize,
    /// Most tokens of one prompt in a step (vLLM's `long_prefill_token_threshold`), so that several
    /// prompts advance at once; `None` is the whole budget.
    pub prefill_tokens_max: Option<usize>,
    /// The fairness bound: whoever has waited for more steps than this goes before everybody who
    /// has not, whatever the priorities.
    pub wait_steps_max: u64,
    /// Steps submitted before one is collected: 1 or 2. An executor may take fewer.
    pub steps_in_flight_max: usize,
}

impl Default for SchedulingConfig {
    fn default() -> Self {
        Self {
            policy: SchedulingPolicy::default(),
            waiting_max: usize::MAX,
            prefill_tokens_max: None,
            wait_steps_max: 10_000,
            steps_in_flight_max: 2,
        }
    }
}
