//! One seed: a workload of its own against an engine of its own, step by step to the end.
//!
//! Neighbours: `workload.rs` decides what is asked, `world.rs` runs it, `checkers.rs` judges.

use forerun_engine::{Pin, RequestId, Timestamp, TokenId};

use crate::fake_model::mix;
use crate::faults::Canary;
use crate::job::Progress;
use crate::workload::{self, Random, Shape, Workload};
use crate::world::World;

/// What a seed came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Of every array and every event.
    pub(crate) hash: u64,
    pub(crate) num_steps: usize,
    pub(crate) num_requests: usize,
    pub(crate) num_preemptions: usize,
    pub(crate) num_copies: usize,
    pub(crate) num_cached: usize,
    /// Draft tokens accepted.
    pub(crate) num_accepted: usize,
    /// Whether two steps were in flight at once.
    pub(crate) has_overlap: bool,
}

struct Simulation {
    random: Random,
    shape: Shape,
    world: World,
    /// Whole sequences, to be gone on with.
    history: Vec<Vec<TokenId>>,
    num_taken: usize,
    pins: Vec<Pin>,
}

/// Runs one seed to its end. Panics where something is wrong.
pub(crate) fn simulate(seed: u64, canary: Option<Canary>, is_printed: bool) -> Outcome {
    let mut random = Random(mix(seed, 0));
    let config = workload::config(&mut random);
    let shape = Shape::new(&mut random);
    if is_printed {
        println!("{config:#?}\n{shape:#?}");
    }
    let mut world = World::new(config);
    world.trace.is_printed = is_printed;
    let executor = world.engine.executor_mut();
    executor.canary = canary;
    executor.depth = random.within(1, 3);
    executor.draft_failures = seed.is_multiple_of(5).then_some(1 + mix(seed, 9) % 20);
    executor.computes_late = random.one_in(2);
    executor.trace.is_printed = is_printed;
    let mut simulation = Simulation {
        random,
        shape,
        world,
        history: Vec::new(),
        num_taken: 0,
        pins: Vec::new(),
    };
    simulation.arrive();
    simulation.drain();
    simulation.outcome()
}

impl Simulation {
    /// Requests come in bursts while others run and things go wrong.
    fn arrive(&mut self) {
        let mut num_tried = 0;
        while num_tried < self.shape.num_requests {
            let burst = self.random.within(0, 5);
            for _ in 0..burst {
                num_tried += 1;
                self.add();
            }
            self.disturb();
            self.advance_parked();
            let num_steps = self.random.within(1, 5);
            for _ in 0..num_steps {
                self.world.step();
                self.take_history();
            }
        }
    }

    fn add(&mut self) {
        let config = self.world.engine.config().clone();
        let job = Workload {
            random: &mut self.random,
            config: &config,
            shape: self.shape,
            history: &self.history,
        }
        .job();
        if let Err(error) = self.world.try_add_job(job.clone()) {
            let is_full = error.to_string().contains("the queue holds");
            assert!(is_full, "{error}: {job:?}");
        }
    }

    /// Aborts, faults, pins, resets.
    fn disturb(&mut self) {
        let num_requests = self.world.jobs.len();
        if self.shape.has_aborts && self.random.one_in(3) {
            let id = self.random.within(0, num_requests + 1) as u64;
            self.world.abort(RequestId(id));
        }
        if self.shape.has_faults && self.random.one_in(3) {
            let num_before = self.random.within(0, 3);
            let fault = workload::fault(&mut self.random, num_requests);
            let faults = &mut self.world.engine.executor_mut().faults;
            faults.extend((0..num_before).map(|_| None));
            faults.push_back(Some(fault));
        }
        if self.shape.has_resets && self.random.one_in(6) {
            self.world.engine.reset_prefix_cache();
            self.world.engine.check_integrity().unwrap();
        }
        if self.shape.has_pins && num_requests > 0 && self.random.one_in(2) {
            self.pin(num_requests);
        }
    }

    fn pin(&mut self, num_requests: usize) {
        let id = RequestId(self.random.within(0, num_requests) as u64);
        let request = self.world.jobs[&id].request.clone();
        let lifetime = self.random.within(0, 3000) as u64;
        let ends_at = Timestamp(self.world.now + lifetime);
        let expires_at = self.random.one_in(2).then_some(ends_at);
        let engine = &mut self.world.engine;
        let pin = engine.pin_prefix(&request.cache_keys, &request.prompt, expires_at);
        self.pins.extend(pin);
        if self.pins.len() > 3 {
            let pin = self.pins.remove(self.random.within(0, 3));
            engine.unpin_prefix(&pin);
        }
        engine.check_integrity().unwrap();
    }

    /// Some of what requests wait for comes.
    fn advance_parked(&mut self) {
        let is_parked = |(id, progress): (&RequestId, &Progress)| {
            let waits = self.world.jobs[id].request.waits_for.is_some();
            (waits && progress.usage.is_none()).then_some(*id)
        };
        let parked: Vec<_> = self.world.progress.iter().filter_map(is_parked).collect();
        for id in parked {
            if self.world.is_parked(id) && self.random.one_in(2) {
                if self.shape.has_aborts && self.random.one_in(10) {
                    self.world.fail_parked(id);
                } else {
                    self.world.advance_parked(id);
                }
            }
        }
    }

    /// Sequences that ended since last time.
    fn take_history(&mut self) {
        for (id, progress) in self.world.progress.iter().skip(self.num_taken) {
            if progress.usage.is_none() {
                break;
            }
            self.num_taken += 1;
            let mut tokens = self.world.jobs[id].request.prompt.clone();
            tokens.extend(&progress.samples[0].tokens);
            self.history.push(tokens);
        }
    }

    /// Until everybody has been told; then everything is judged.
    fn drain(&mut self) {
        self.world.engine.executor_mut().faults.clear();
        let bound = self.world.num_steps_bound();
        let mut num_steps = 0;
        while self.world.engine.has_work() || self.world.engine.num_requests() > 0 {
            self.advance_parked();
            self.world.step();
            num_steps += 1;
            assert!(num_steps <= bound, "more than {bound} steps");
        }
        for pin in self.pins.drain(..) {
            self.world.engine.unpin_prefix(&pin);
        }
        self.world.step();
        self.world.check_idle();
        self.world.assert_all_sound(self.shape.has_faults);
    }

    fn outcome(&self) -> Outcome {
        let executor = self.world.engine.executor();
        let usages = self.world.progress.values().filter_map(|p| p.usage);
        Outcome {
            hash: mix(executor.trace.hash, self.world.trace.hash),
            num_steps: executor.trace.num_steps,
            num_requests: self.world.jobs.len(),
            num_preemptions: self.world.num_preemptions,
            num_copies: executor.num_copies,
            num_accepted: executor.num_accepted,
            num_cached: usages.map(|usage| usage.cached_tokens).sum(),
            has_overlap: executor.depth_max_seen > 1,
        }
    }
}
