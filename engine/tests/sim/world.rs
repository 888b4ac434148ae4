//! An engine over the fake executor, with everything that was asked of it and came of it, checked
//! after every step.
//!
//! Neighbours: `job.rs` is what is asked; `checkers.rs` judges what came; `simulate.rs` and the
//! scenarios drive it.

use std::collections::{BTreeMap, BTreeSet};

use forerun_engine::{
    AdmissionError, Engine, EngineConfig, Event, FailureCause, FinishReason, Promotion, Request,
    RequestId, SchedulingPolicy, SpecMethod, Timestamp, WaitReason,
};

use crate::fake_executor::FakeExecutor;
use crate::fake_model::FakeVocabulary;
use crate::faults::Canary;
use crate::job::{Job, Progress, SampleOutput};
use crate::oracle;
use crate::scripted_drafter::{Answers, Script, ScriptedDrafter};
use crate::trace::Trace;

pub(crate) type FakeEngine = Engine<FakeExecutor, FakeVocabulary>;

/// A request that has not run yet and could.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    priority: i32,
    /// Steps there had been when it came.
    since: u64,
}

pub(crate) struct World {
    pub(crate) engine: FakeEngine,
    pub(crate) jobs: BTreeMap<RequestId, Job>,
    pub(crate) progress: BTreeMap<RequestId, Progress>,
    pub(crate) num_preemptions: usize,
    pub(crate) now: u64,
    pub(crate) trace: Trace,
    /// What the scripted drafter knows.
    answers: Answers,
    waiting: BTreeMap<RequestId, Waiting>,
    parked: BTreeSet<RequestId>,
    num_steps: u64,
}

impl World {
    pub(crate) fn new(config: EngineConfig) -> Self {
        let executor = FakeExecutor::new(&config);
        let vocab_size = config.vocab_size;
        let mut engine = Engine::new(config, executor, FakeVocabulary).unwrap();
        let answers = Answers::default();
        engine.set_drafter(Box::new(ScriptedDrafter {
            answers: answers.clone(),
            vocab_size,
            seed: 7,
            script: None,
        }));
        Self {
            engine,
            jobs: BTreeMap::new(),
            progress: BTreeMap::new(),
            num_preemptions: 0,
            now: 0,
            trace: Trace::default(),
            answers,
            waiting: BTreeMap::new(),
            parked: BTreeSet::new(),
            num_steps: 0,
        }
    }

    /// With so many steps in flight.
    pub(crate) fn with_depth(config: EngineConfig, depth: usize) -> Self {
        let mut world = Self::new(config);
        world.engine.executor_mut().depth = depth;
        world
    }

    pub(crate) fn try_add_job(&mut self, job: Job) -> Result<RequestId, AdmissionError> {
        let mut request = job.first_request();
        if let Some(Canary::IgnoredKeys) = self.engine.executor().canary {
            request.cache_keys = forerun_engine::CacheKeys::default();
        }
        let (priority, is_ready) = (request.priority, request.waits_for.is_none());
        let num_samples = request.output.num_samples;
        let id = self.engine.add_request(request, Timestamp(self.now))?;
        let executor = self.engine.executor_mut();
        executor.tenants.insert(id, job.tenant());
        if job.request.speculation.method == Some(SpecMethod::Custom) {
            self.tell_drafter(id, &job);
        }
        self.jobs.insert(id, job);
        self.progress.insert(id, Progress::new(num_samples));
        if is_ready {
            self.wait(id, priority);
        } else {
            self.parked.insert(id);
        }
        self.engine.check_integrity().unwrap();
        Ok(id)
    }

    /// Makes the scripted drafter keep to one script.
    pub(crate) fn script(&mut self, script: Script) {
        let vocab_size = self.engine.config().vocab_size;
        self.engine.set_drafter(Box::new(ScriptedDrafter {
            answers: self.answers.clone(),
            vocab_size,
            seed: 7,
            script: Some(script),
        }));
    }

    fn tell_drafter(&mut self, id: RequestId, job: &Job) {
        let answer = oracle::answer(job, self.engine.config());
        let whole = |sample: &SampleOutput| {
            let mut tokens = job.request.prompt.clone();
            tokens.extend(&sample.tokens);
            tokens
        };
        let whole = answer.drawn.iter().map(whole).collect();
        self.answers.lock().unwrap().insert(id, whole);
    }

    pub(crate) fn try_add(&mut self, request: Request) -> Result<RequestId, AdmissionError> {
        self.try_add_job(Job::new(request))
    }

    pub(crate) fn add(&mut self, request: Request) -> RequestId {
        self.try_add(request).unwrap()
    }

    fn wait(&mut self, id: RequestId, priority: i32) {
        let priority = match self.engine.config().scheduling.policy {
            SchedulingPolicy::Fcfs => 0,
            SchedulingPolicy::Priority => priority,
        };
        let since = self.num_steps;
        self.waiting.insert(id, Waiting { priority, since });
    }

    pub(crate) fn abort(&mut self, id: RequestId) {
        self.engine.abort(id);
        self.waiting.remove(&id);
        self.parked.remove(&id);
        self.engine.check_integrity().unwrap();
    }

    /// Whether a request that waits for something outside still does.
    pub(crate) fn is_parked(&self, id: RequestId) -> bool {
        self.parked.contains(&id) && !self.has_ended(id)
    }

    /// What a parked request waits for has come: its next piece of input, or all of it.
    pub(crate) fn advance_parked(&mut self, id: RequestId) {
        let job = self.jobs.get_mut(&id).unwrap();
        let promotion = match job.request.waits_for.unwrap() {
            WaitReason::StreamingInput => match job.pieces.pop_front() {
                Some(piece) => {
                    self.engine.append_prompt(id, &piece).unwrap();
                    return;
                }
                None => Promotion::InputComplete,
            },
            WaitReason::RemoteKv => Promotion::RemoteKv,
            WaitReason::Grammar => Promotion::Grammar(Box::new(job.grammar.clone().unwrap())),
        };
        let priority = job.request.priority;
        self.parked.remove(&id);
        self.engine
            .promote(id, promotion, Timestamp(self.now))
            .unwrap();
        self.wait(id, priority);
        self.engine.check_integrity().unwrap();
    }

    /// What a parked request waits for will not come.
    pub(crate) fn fail_parked(&mut self, id: RequestId) {
        let cause = FailureCause::Outside("it did not come".into());
        self.parked.remove(&id);
        self.engine
            .promote(id, Promotion::Failed(cause), Timestamp(self.now))
            .unwrap();
        self.engine.check_integrity().unwrap();
    }

    /// One step; its events are added to the progress.
    pub(crate) fn step(&mut self) {
        self.now += 100;
        let num_steps_run = self.engine.executor().trace.num_steps;
        for event in self.engine.step(Timestamp(self.now)).iter() {
            let (Event::PromptToken { request, .. }
            | Event::Draft { request, .. }
            | Event::Token { request, .. }
            | Event::SampleFinished { request, .. }
            | Event::Finished { request, .. }) = event;
            self.trace.note(&format!("{event:?}"));
            self.progress.get_mut(&request).unwrap().take(&event);
        }
        self.num_steps += 1;
        let num_run = self.engine.executor().trace.num_steps - num_steps_run;
        if num_run > 0 {
            let preempted = &self.engine.last_plan().preempted;
            self.num_preemptions += preempted.len();
            if !preempted.is_empty() {
                self.trace.note(&format!("preempt sequences {preempted:?}"));
            }
        }
        self.check_order();
        self.engine.check_integrity().unwrap();
    }

    /// First come, first served; whoever is overdue goes before everybody who is not.
    fn check_order(&mut self) {
        let started = std::mem::take(&mut self.engine.executor_mut().started);
        let wait_max = self.engine.config().scheduling.wait_steps_max;
        for id in started {
            let Some(own) = self.waiting.remove(&id) else {
                panic!("{id} runs but does not wait");
            };
            // A step plans once, or once more for each further step in flight; a step that is not
            // taken is planned again.
            let is_surely_early = 4 * (self.num_steps - own.since) < wait_max;
            for (&other_id, other) in &self.waiting {
                let is_surely_late = self.num_steps - other.since > wait_max + 1;
                let came_first = (other.priority, other_id) < (own.priority, id);
                assert!(
                    !is_surely_early || !(is_surely_late || came_first && wait_max > 1000),
                    "{id} was admitted before {other_id}"
                );
            }
        }
        let progress = &self.progress;
        self.waiting.retain(|id, _| progress[id].usage.is_none());
    }

    /// More steps than all requests can need, if nothing goes wrong.
    pub(crate) fn num_steps_bound(&self) -> usize {
        let config = self.engine.config();
        let chunk = config
            .scheduling
            .prefill_tokens_max
            .unwrap_or(usize::MAX)
            .min(config.step_tokens_max)
            .min(32);
        let work = |job: &Job| {
            let output = &job.request.output;
            let len = config.seq_len_max();
            // Each token may be preceded by the recomputation of the whole sequence.
            output.width() * len * (2 + len / chunk)
        };
        50 + self.jobs.values().map(work).sum::<usize>()
    }

    /// Steps until nothing is left to do; then the pool must be whole.
    pub(crate) fn run(&mut self) {
        for _ in 0..self.num_steps_bound() {
            if !self.engine.has_work() {
                self.check_idle();
                return;
            }
            self.step();
        }
        panic!(
            "{} requests are still there after {} steps",
            self.engine.num_requests(),
            self.num_steps_bound()
        );
    }

    /// Nothing is held and everybody has been told.
    pub(crate) fn check_idle(&self) {
        let blocks = self.engine.blocks();
        for group in 0..blocks.num_groups() {
            assert_eq!(blocks.num_referenced(group), 0, "blocks were lost");
        }
        for (id, progress) in &self.progress {
            assert!(progress.usage.is_some(), "{id} never ended");
            let ended = |sample: &crate::job::SampleOutput| sample.reason.is_some();
            // A beam search may find fewer texts than asked for.
            let is_beam = self.jobs[id].request.output.beam.is_some();
            let num_ended = progress.samples.iter().filter(|s| ended(s)).count();
            let is_told = num_ended == progress.samples.len() || (is_beam && num_ended > 0);
            assert!(is_told, "a sample of {id} never ended");
        }
    }

    pub(crate) fn has_ended(&self, id: RequestId) -> bool {
        self.progress[&id].usage.is_some()
    }

    /// Why the only sample of `id` ended.
    pub(crate) fn reason(&self, id: RequestId) -> &FinishReason {
        let reason = self.progress[&id].samples[0].reason.as_ref();
        reason.expect("it has ended")
    }

    /// Tokens of the first sample.
    pub(crate) fn num_tokens(&self, id: RequestId) -> usize {
        self.progress[&id].samples[0].tokens.len()
    }

    /// Cached tokens of a request that has ended.
    pub(crate) fn num_cached(&self, id: RequestId) -> usize {
        self.progress[&id].usage.unwrap().cached_tokens
    }
}
