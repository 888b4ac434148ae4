//! Runs prompts with speculation off and on, in turn, in one engine per drafter.
//!
//! Neighbours: `mod.rs` says what to run; `numbers.rs` keeps what came of it.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, bail};
use forerun_engine::{
    CacheKeys, Engine, EngineConfig, Executor, Request, RequestId, SamplingParams, SpecMethod,
    SpeculationParams, StopParams, TokenId,
};
use forerun_models::grammar::GrammarSource;

use super::numbers::{Cell, Run};
use crate::codec::Codec;
use crate::driver::{Driver, GrammarQueue, Outcome};
use crate::speculation::Settings;

/// Tokens that a new engine generates before anything is measured.
const WARM_UP_TOKENS: u32 = 8;

/// A prompt in tokens.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) prompt: Vec<TokenId>,
    pub(super) grammar: Option<GrammarSource>,
}

/// Jobs whose numbers are told together.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) label: String,
    pub(super) jobs: Vec<Job>,
    /// Whether all run at once, and not one after another.
    pub(super) at_once: bool,
}

/// How every group is run.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) settings: Settings,
    pub(super) num_repeats: u32,
    pub(super) max_tokens: u32,
    /// Seed of the first repeat; the others count on from it.
    pub(super) seed: u64,
}

/// How a run samples and whether it speculates.
#[derive(Clone, Copy, Debug)]
struct Mode {
    temperature: f32,
    seed: u64,
    is_on: bool,
    max_tokens: u32,
}

/// An engine with one drafter.
pub(super) struct Lab<'a, E, C, G> {
    driver: Driver<E, &'a C, G>,
    setup: &'a Setup,
    /// Requests made.
    num_requests: u64,
}

impl<'a, E: Executor, C: Codec, G: GrammarQueue> Lab<'a, E, C, G> {
    /// An engine that has run something, so that nothing of the first run is measured.
    pub(super) fn new(
        config: EngineConfig,
        (executor, codec, grammars): (E, &'a C, G),
        setup: &'a Setup,
        warm_up: &Job,
    ) -> Result<Self> {
        let mut lab = Self {
            driver: Driver::new(Engine::new(config, executor, codec)?, grammars),
            setup,
            num_requests: 0,
        };
        for is_on in [false, true] {
            let mode = Mode {
                temperature: 0.0,
                seed: 0,
                is_on,
                max_tokens: WARM_UP_TOKENS,
            };
            lab.run_batch(std::slice::from_ref(warm_up), mode)?;
        }
        Ok(lab)
    }

    /// Runs a group off and on in turn, prompt by prompt, so that both see the same machine; every
    /// other time on comes first.
    pub(super) fn measure(&mut self, group: &Group, temperature: f32) -> Result<Cell> {
        let width = if group.at_once { group.jobs.len() } else { 1 };
        let mut cell = Cell::new(group.label.clone());
        let mut num_pairs = 0_u32;
        for repeat in 0..self.setup.num_repeats {
            let (mut off, mut on) = (Run::default(), Run::default());
            for batch in group.jobs.chunks(width.max(1)) {
                let is_off_first = num_pairs.is_multiple_of(2);
                num_pairs += 1;
                for is_on in [!is_off_first, is_off_first] {
                    let mode = Mode {
                        temperature,
                        seed: self.setup.seed.wrapping_add(u64::from(repeat)),
                        is_on,
                        max_tokens: self.setup.max_tokens,
                    };
                    let (outcomes, seconds) = self.run_batch(batch, mode)?;
                    let run = if is_on { &mut on } else { &mut off };
                    run.add(&outcomes, seconds);
                }
            }
            cell.push(&off, &on);
        }
        Ok(cell)
    }

    /// Runs jobs at once. Gives what came of each, and how long it took.
    fn run_batch(&mut self, jobs: &[Job], mode: Mode) -> Result<(Vec<Outcome>, f64)> {
        let started = Instant::now();
        for job in jobs {
            let request = self.request(job, mode);
            self.driver.add(request, job.grammar.clone())?;
        }
        let mut ended: BTreeMap<RequestId, Outcome> = BTreeMap::new();
        while !self.driver.is_idle() {
            for (id, outcome) in self.driver.step(|_| {}) {
                if let Some(cause) = outcome.failure() {
                    bail!("a request of the bench failed: {cause}");
                }
                ended.insert(id, outcome);
            }
        }
        Ok((
            ended.into_values().collect(),
            started.elapsed().as_secs_f64(),
        ))
    }

    fn request(&mut self, job: &Job, mode: Mode) -> Request {
        self.num_requests += 1;
        Request {
            prompt: job.prompt.clone(),
            sampling: SamplingParams {
                temperature: mode.temperature,
                seed: mode.seed,
                ..SamplingParams::default()
            },
            stop: StopParams {
                max_tokens: Some(mode.max_tokens),
                ..StopParams::default()
            },
            // A tenant of its own: an answer that was given before to the same prompt would be the
            // best draft there is, which no user has.
            cache_keys: CacheKeys {
                tenant: Some(format!("bench-{}", self.num_requests)),
                ..CacheKeys::default()
            },
            speculation: if mode.is_on {
                self.setup.settings.params(true)
            } else {
                SpeculationParams {
                    method: Some(SpecMethod::Off),
                    ..SpeculationParams::default()
                }
            },
            ..Request::default()
        }
    }
}
