//! The engine: requests in, events out, one step at a time.
//!
//! Neighbours: everything here; read [`Engine::step`] first, then `commit.rs`, what becomes of a
//! step's verdicts. Callers: the command line and, later, the server, each with an [`Executor`] of
//! their choice.

use std::sync::Arc;

use crate::admission;
use crate::beam::BeamSearch;
use crate::block_manager::BlockManager;
use crate::in_flight::{InFlight, STEPS_IN_FLIGHT_MAX};
use crate::rank::{Rank, Urgency};
use crate::request_state::RequestState;
use crate::request_store::RequestStore;
use crate::scheduler::{PlanContext, Scheduler};
use crate::sequence::{Draws, PromptScores, Sequence, SequenceParts};
use crate::sequence_store::SequenceStore;
use crate::statistics::{RequestFacts, SamplingKind, Statistics, StatisticsReport};
use crate::step_batch::MaskFailure;
use crate::stop::StopConditions;
use crate::{
    AdmissionError, CacheKeys, ConfigError, EngineConfig, Events, Executor, FailureCause,
    FinishReason, Grammar, LogprobsParams, Pin, PinError, Request, RequestId, SchedulingPolicy,
    StepBatch, StepOutput, StepPlan, Timestamp, TokenId, Vocabulary, WaitReason,
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
    pub(crate) mask_failures: Vec<MaskFailure>,
    pub(crate) now: Timestamp,
}

/// What a parked request was waiting for.
#[derive(Debug)]
pub enum Promotion {
    /// Its compiled grammar.
    Grammar(Box<dyn Grammar>),
    /// Its keys and values are where they should be.
    RemoteKv,
    /// Its prompt is complete.
    InputComplete,
    /// It will not come: the request ends with this message.
    Failed(FailureCause),
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
            mask_failures: Vec::new(),
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
        self.now = now;
        self.events.begin();
        self.blocks.expire_pins(now.0);
        while self.in_flight.len() < self.steps_in_flight_max() && self.submit_next() {}
        self.collect_oldest();
        self.events.deliver()
    }

    /// Plans a step and submits it. Says whether there was anything to run.
    fn submit_next(&mut self) -> bool {
        let mut step = self.in_flight.take_vacant();
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
        self.count_as_computed(&step);
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

    /// Queues a request, or parks it if it waits for something. `now` is when it came.
    ///
    /// # Errors
    /// [`AdmissionError`] if it is malformed, could not run even alone, or finds the queue full;
    /// nothing of it is kept.
    pub fn add_request(
        &mut self,
        request: Request,
        now: Timestamp,
    ) -> Result<RequestId, AdmissionError> {
        request.validate(&self.config)?;
        let waiting_max = self.config.scheduling.waiting_max;
        let num_waiting = self.scheduler.queues.num_waiting() + self.scheduler.queues.num_parked();
        if num_waiting >= waiting_max {
            return Err(AdmissionError::QueueFull {
                num_waiting,
                waiting_max,
            });
        }
        Ok(self.insert(request, now))
    }

    fn insert(&mut self, request: Request, now: Timestamp) -> RequestId {
        let id = self.requests.next_id();
        let sampling = Arc::new(request.sampling);
        let is_greedy = sampling.is_greedy();
        let num_prompt = request.prompt.len();
        let priority = match self.config.scheduling.policy {
            SchedulingPolicy::Fcfs => 0,
            SchedulingPolicy::Priority => request.priority,
        };
        let output = request.output;
        let parts = SequenceParts {
            request: id,
            rank: Rank {
                urgency: Urgency::Normal,
                priority,
                request: id,
                sibling: 0,
            },
            stop: StopConditions::new(&request.stop, num_prompt, &self.config),
            prompt: request.prompt,
            sampling,
            tables: self.blocks.new_tables(),
            chain: self.blocks.new_chain(&request.cache_keys),
            draws: first_draws(&output, self.config.vocab_size),
            prompt_scores: output.prompt_logprobs.map(|num_top| PromptScores {
                num_top,
                num_told: 0,
            }),
            logprobs: if output.is_streamed() {
                output.logprobs
            } else {
                output.logprobs.or(Some(LogprobsParams {
                    num_top: 0,
                    kind: crate::LogprobsKind::Processed,
                }))
            },
            is_logged: !output.is_streamed(),
        };
        let seq = self.sequences.insert(|name| Sequence::new(name, parts)).id;
        let sequence = self.sequences.get_mut(seq);
        match request.waits_for {
            Some(_) => self.scheduler.queues.park(sequence),
            None => self.scheduler.queues.wait(sequence),
        }
        let kind = match (output.beam, is_greedy) {
            (Some(_), _) => SamplingKind::Beam,
            (None, true) => SamplingKind::Greedy,
            (None, false) => SamplingKind::Sampled,
        };
        let tenant = request.cache_keys.tenant.clone();
        self.requests.insert(RequestState {
            id,
            output,
            stop: request.stop,
            was_admitted: false,
            waits_for: request.waits_for,
            live: vec![seq],
            has_forked: output.width() == 1,
            num_siblings: 0,
            beam: output.beam.map(|params| BeamSearch::new(params, seq)),
            ended: Vec::new(),
            usage: crate::Usage {
                prompt_tokens: num_prompt,
                ..crate::Usage::default()
            },
            facts: RequestFacts::new(now, kind, num_prompt, tenant),
        });
        id
    }

    /// More of the prompt of a request that is parked for [`WaitReason::StreamingInput`].
    ///
    /// # Errors
    /// [`AdmissionError`] if it is not, or if the prompt gets too long: the request stays as it was.
    pub fn append_prompt(
        &mut self,
        request: RequestId,
        tokens: &[TokenId],
    ) -> Result<(), AdmissionError> {
        admission::in_vocabulary("prompt", tokens, self.config.vocab_size)?;
        let waiting = self.requests.find_mut(request);
        let Some(state) = waiting.filter(|r| r.waits_for == Some(WaitReason::StreamingInput))
        else {
            let what = "more of its prompt";
            return Err(AdmissionError::NotParked { request, what });
        };
        let sequence = self.sequences.get_mut(state.live[0]);
        let num_prompt = sequence.tokens.len() + tokens.len();
        admission::check_length(num_prompt, &self.config)?;
        let stop = StopConditions::new(&state.stop, num_prompt, &self.config);
        sequence.append_prompt(tokens, stop);
        state.usage.prompt_tokens = num_prompt;
        state.facts.set_prompt_tokens(num_prompt);
        Ok(())
    }

    /// What a parked request was waiting for has come, or failed to. It takes the place in the queue
    /// that its arrival gives it. A request that has ended meanwhile is left alone.
    ///
    /// # Errors
    /// [`AdmissionError::NotParked`] if it waits for something else.
    pub fn promote(
        &mut self,
        request: RequestId,
        promotion: Promotion,
        now: Timestamp,
    ) -> Result<(), AdmissionError> {
        let Some(state) = self.requests.find_mut(request) else {
            return Ok(());
        };
        let (waits_for, what) = match &promotion {
            Promotion::Grammar(_) => (Some(WaitReason::Grammar), "a grammar"),
            Promotion::RemoteKv => (Some(WaitReason::RemoteKv), "remote keys and values"),
            Promotion::InputComplete => (Some(WaitReason::StreamingInput), "its prompt"),
            Promotion::Failed(_) => (state.waits_for, "anything"),
        };
        if state.waits_for.is_none() || state.waits_for != waits_for {
            return Err(AdmissionError::NotParked { request, what });
        }
        match promotion {
            Promotion::Failed(cause) => {
                self.events.begin();
                self.end_request(request, &FinishReason::Error(cause));
                return Ok(());
            }
            Promotion::Grammar(grammar) => {
                state.facts.set_structured();
                self.sequences.get_mut(state.live[0]).grammar = Some(grammar);
            }
            Promotion::RemoteKv | Promotion::InputComplete => {}
        }
        state.waits_for = None;
        state.facts.promoted(now);
        let sequence = self.sequences.get_mut(state.live[0]);
        self.scheduler.queues.wait(sequence);
        Ok(())
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

/// What the row after the prompt is for.
fn first_draws(output: &crate::OutputParams, vocab_size: usize) -> Draws {
    match (output.beam, output.width()) {
        (Some(params), _) => {
            let num_top = output.logprobs.map_or(0, |logprobs| logprobs.num_top);
            Draws::Candidates(BeamSearch::num_candidates(params, num_top, vocab_size))
        }
        (None, 1) => Draws::One,
        (None, width) => Draws::Fork(width as u32),
    }
}
