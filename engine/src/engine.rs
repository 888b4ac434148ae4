//! The engine: requests in, events out, one step at a time.
//!
//! Neighbours: everything here; read [`Engine::step`] first, then `arrival.rs`, how requests come in,
//! and `commit.rs`, what becomes of a step's verdicts. Callers: the command line and, later, the server, each with an [`Executor`] of
//! their choice.

use crate::block_manager::BlockManager;
use crate::in_flight::{InFlight, STEPS_IN_FLIGHT_MAX};
use crate::request_store::RequestStore;
use crate::scheduler::{PlanContext, Scheduler};
use crate::sequence_store::SequenceStore;
use crate::spec::Speculator;
use crate::statistics::{Statistics, StatisticsReport};
use crate::step_batch::MaskFailure;
use crate::{
    CacheKeys, ConfigError, EngineConfig, Events, Executor, FinishReason, Pin, PinError, RequestId,
    StepBatch, StepOutput, StepPlan, Timestamp, TokenId, Vocabulary,
};

/// Runs requests on an executor. Single-threaded and deterministic: its state is a function of the
/// calls made and the verdicts received.
#[derive(Debug)]
pub struct Engine<E, V> {
    pub(crate) config: EngineConfig,
    pub(crate) executor: E,
    pub(crate) vocabulary: V,
    pub(crate) requests: RequestStore,
    pub(crate) sequences: SequenceStore,
    pub(crate) scheduler: Scheduler,
    pub(crate) blocks: BlockManager,
    pub(crate) in_flight: InFlight,
    pub(crate) last_plan: StepPlan,
    pub(crate) output: StepOutput,
    pub(crate) events: Events,
    pub(crate) statistics: Statistics,
    /// Tokens added to outputs by the step that is being committed.
    pub(crate) num_emitted: usize,
    pub(crate) mask_failures: Vec<MaskFailure>,
    pub(crate) speculator: Speculator,
    /// Rows on the path of the draft that is being committed.
    pub(crate) draft_path: Vec<usize>,
    /// What the step that is being committed took.
    pub(crate) pass_us: u64,
    /// The row that is being committed follows a single token.
    pub(crate) is_decoding: bool,
    pub(crate) now: Timestamp,
}

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// An idle engine.
    ///
    /// # Errors
    /// [`ConfigError`] if `config` cannot work.
    pub fn new(config: EngineConfig, executor: E, vocabulary: V) -> Result<Self, ConfigError> {
        config.validate()?;
        let batch = StepBatch::new(config.groups.len(), config.vocab_size);
        Ok(Self {
            scheduler: Scheduler::new(&config),
            blocks: BlockManager::new(&config),
            in_flight: InFlight::new(&batch),
            requests: RequestStore::default(),
            sequences: SequenceStore::default(),
            last_plan: StepPlan::default(),
            output: StepOutput::default(),
            events: Events::default(),
            statistics: Statistics::default(),
            num_emitted: 0,
            mask_failures: Vec::new(),
            speculator: Speculator::new(&config),
            draft_path: Vec::new(),
            pass_us: 0,
            is_decoding: false,
            now: Timestamp::default(),
            config,
            executor,
            vocabulary,
        })
    }

    /// Runs a batch through the model and tells what came of the oldest one that was running.
    /// Without work: no events. `now` is the time, for statistics and for pins that expire.
    ///
    /// While the executor takes more than one step, the next is planned and submitted before the
    /// verdicts of the last are read. A failing executor ends requests, not the engine: see
    /// [`crate::ExecutorError`].
    pub fn step(&mut self, now: Timestamp) -> &Events {
        self.step_with_clock(|| now)
    }

    /// [`Self::step`] for callers whose clock goes on while the executor works: it is asked when the
    /// step begins and when verdicts have come, so that tokens are dated when they are there.
    pub fn step_with_clock(&mut self, mut clock: impl FnMut() -> Timestamp) -> &Events {
        self.now = clock();
        self.events.begin();
        self.blocks.expire_pins(self.now.0);
        while self.in_flight.len() < self.steps_in_flight_max() && self.submit_next(&mut clock) {}
        self.collect_oldest(clock);
        self.events.deliver()
    }

    /// Plans a step and submits it. Says whether there was anything to run.
    fn submit_next(&mut self, clock: &mut impl FnMut() -> Timestamp) -> bool {
        let began_at = clock();
        self.draft();
        let mut step = self.in_flight.take_vacant();
        step.submitted_at = clock();
        step.draft_us = step.submitted_at.since(began_at);
        step.has_model_drafts = self.speculator.has_model_drafts();
        let mut context = PlanContext {
            sequences: &mut self.sequences,
            requests: &self.requests,
            blocks: &mut self.blocks,
            has_steps_in_flight: !self.in_flight.is_empty(),
        };
        self.scheduler.plan(&mut context, &mut step.plan);
        self.note_plan(&step.plan);
        if step.plan.scheduled.is_empty() {
            self.blocks.release_copy_sources();
            self.in_flight.recycle(step);
            return false;
        }
        step.batch.build(
            &step.plan,
            &mut self.sequences,
            &self.blocks,
            &mut self.mask_failures,
        );
        self.blocks.release_copy_sources();
        self.count_as_computed(&mut step);
        self.last_plan.copy_from(&step.plan);
        match self.executor.submit(&step.batch) {
            Ok(()) => self.in_flight.push(step),
            Err(error) => self.fail_step(step, &error),
        }
        self.end_without_masks();
        true
    }

    fn steps_in_flight_max(&self) -> usize {
        self.executor
            .steps_in_flight_max()
            .min(self.config.scheduling.steps_in_flight_max)
            .clamp(1, STEPS_IN_FLIGHT_MAX)
    }

    /// Ends a request now. Its events come with the next step; a request that has ended already, or
    /// never was, is left alone.
    pub fn abort(&mut self, request: RequestId) {
        if self.requests.find(request).is_some() {
            self.events.begin();
            self.end_request(request, &FinishReason::Aborted);
        }
    }

    /// Empties the prefix cache. Running requests compute their tokens again, so that nothing that
    /// was computed before is found later; results in flight are dropped when they come. Call it
    /// when weights change.
    pub fn reset_prefix_cache(&mut self) {
        let mut context = PlanContext {
            sequences: &mut self.sequences,
            requests: &self.requests,
            blocks: &mut self.blocks,
            has_steps_in_flight: false,
        };
        let mut plan = StepPlan::default();
        while let Some(&(_, last)) = self.scheduler.queues.running().last() {
            self.scheduler.preempt(last, &mut context, &mut plan);
        }
        self.note_plan(&plan);
        self.blocks.reset_cache();
        self.speculator.reset();
    }

    /// Keeps what the cache has of a prefix from being evicted until `expires_at`, or for ever.
    /// A request that could not run otherwise breaks pins, the oldest first.
    ///
    /// # Errors
    /// [`PinError`] if nothing of it is cached, or the tenant's quota is spent.
    pub fn pin_prefix(
        &mut self,
        keys: &CacheKeys,
        tokens: &[TokenId],
        expires_at: Option<Timestamp>,
    ) -> Result<Pin, PinError> {
        self.blocks.pin(keys, tokens, expires_at.map(|at| at.0))
    }

    /// Lets go of a pinned prefix. One that is gone already is left alone.
    pub fn unpin_prefix(&mut self, pin: &Pin) {
        self.blocks.unpin(pin.id);
    }

    /// Whether a step has something to do or to tell. Requests that are parked are not work: see
    /// [`Self::num_requests`].
    pub fn has_work(&self) -> bool {
        let queues = &self.scheduler.queues;
        queues.num_waiting() > 0
            || !queues.running().is_empty()
            || !self.in_flight.is_empty()
            || self.events.are_pending()
    }

    /// Most tokens of a sequence that model and pools can hold: the limit to advertise.
    pub fn seq_len_max(&self) -> usize {
        self.config.seq_len_max()
    }

    /// What the engine was built with.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The plan of the step submitted last, for traces.
    pub fn last_plan(&self) -> &StepPlan {
        &self.last_plan
    }

    /// The blocks of every KV group.
    pub fn blocks(&self) -> &BlockManager {
        &self.blocks
    }

    /// The executor.
    pub fn executor(&self) -> &E {
        &self.executor
    }

    /// The executor, to be changed between steps.
    pub fn executor_mut(&mut self) -> &mut E {
        &mut self.executor
    }

    /// Requests that have not ended: parked, waiting and running.
    pub fn num_requests(&self) -> usize {
        self.requests.len()
    }

    /// Sequences that are parked, waiting, and running.
    pub fn queue_lens(&self) -> QueueLens {
        let queues = &self.scheduler.queues;
        QueueLens {
            parked: queues.num_parked(),
            waiting: queues.num_waiting(),
            running: queues.running().len(),
        }
    }

    /// What has been measured since the engine was made.
    pub fn statistics(&self) -> StatisticsReport {
        self.statistics.report()
    }
}

/// How many sequences are in each place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLens {
    /// Wait for something outside.
    pub parked: usize,
    /// Could run.
    pub waiting: usize,
    /// Hold blocks.
    pub running: usize,
}
