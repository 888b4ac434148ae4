//! Runs requests and keeps the numbers.
//!
//! Neighbours: `cache.rs` and `sched.rs` ask; `driver/` runs the engine.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, bail};
use forerun_engine::{
    Engine, EngineConfig, Executor, Request, RequestId, StatisticsReport, TokenId, Vocabulary,
};

use crate::driver::{Driver, NoGrammars, Outcome};

/// Tokens without text: nothing here looks at any.
struct NoText;

impl Vocabulary for NoText {
    fn token_bytes(&self, _id: TokenId) -> &[u8] {
        b""
    }
}

/// An engine that is measured.
pub(super) struct Meter<E> {
    driver: Driver<E, NoText, NoGrammars>,
    /// Time spent in [`Self::run`].
    pub(super) seconds: f64,
    /// Most blocks that were held by sequences at a time.
    pub(super) blocks_peak: usize,
}

/// A request, and after how many steps of the run it comes.
pub(super) struct Arrival {
    pub(super) after_steps: usize,
    pub(super) request: Request,
}

impl<E: Executor> Meter<E> {
    pub(super) fn new(config: EngineConfig, executor: E) -> Result<Self> {
        Ok(Self {
            driver: Driver::new(
                Engine::new(config, executor, NoText)?,
                NoGrammars::default(),
            ),
            seconds: 0.0,
            blocks_peak: 0,
        })
    }

    /// Runs requests that all come at once. The outcomes are in their order.
    pub(super) fn run(&mut self, requests: Vec<Request>) -> Result<Vec<Outcome>> {
        let arrival = |request| Arrival {
            after_steps: 0,
            request,
        };
        self.run_arrivals(requests.into_iter().map(arrival).collect())
    }

    /// Runs requests that come in this order, while others run. The outcomes are in their order.
    pub(super) fn run_arrivals(&mut self, arrivals: Vec<Arrival>) -> Result<Vec<Outcome>> {
        let started = Instant::now();
        let mut arrivals = arrivals.into_iter().peekable();
        let mut ended: BTreeMap<RequestId, Outcome> = BTreeMap::new();
        let mut num_steps = 0;
        while arrivals.peek().is_some() || !self.driver.is_idle() {
            while let Some(arrival) = arrivals.next_if(|next| next.after_steps <= num_steps) {
                self.driver.add(arrival.request, None)?;
            }
            for (id, outcome) in self.driver.step(|_| {}) {
                if let Some(cause) = outcome.failure() {
                    bail!("a request of the bench failed: {cause}");
                }
                ended.insert(id, outcome);
            }
            num_steps += 1;
            let blocks = self.driver.engine().blocks();
            let held = (0..blocks.num_groups()).map(|group| blocks.num_referenced(group));
            self.blocks_peak = self.blocks_peak.max(held.sum());
        }
        self.seconds += started.elapsed().as_secs_f64();
        Ok(ended.into_values().collect())
    }

    /// The engine's statistics.
    pub(super) fn statistics(&self) -> StatisticsReport {
        self.driver.engine().statistics()
    }
}

/// Milliseconds from a request to its first token.
pub(super) fn ttft_ms(outcome: &Outcome) -> Option<f64> {
    let first = outcome.samples.first()?.token_times.first()?;
    Some(first.since(outcome.queued_at) as f64 / 1000.0)
}

/// Milliseconds from a request to its last token.
pub(super) fn latency_ms(outcome: &Outcome) -> Option<f64> {
    let last = outcome.samples.first()?.token_times.last()?;
    Some(last.since(outcome.queued_at) as f64 / 1000.0)
}

/// Milliseconds between each two tokens of the first sample.
pub(super) fn intervals_ms(outcome: &Outcome) -> impl Iterator<Item = f64> {
    let times = outcome.samples.first().map(|sample| &sample.token_times);
    times
        .into_iter()
        .flat_map(|times| times.windows(2))
        .map(|pair| pair[1].since(pair[0]) as f64 / 1000.0)
}

/// The mean, if there is any value.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values
        .into_iter()
        .fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The nearest-rank quantile, if there is any value.
pub(super) fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}
