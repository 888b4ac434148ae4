//! Drives an engine: requests in, whole outcomes out, with grammars compiled on the side.
//!
//! The engine itself reads no clock and compiles nothing: both happen here. Used by `generate`,
//! `batch` and `bench`; over a fake executor in tests.
//!
//! Neighbours: `outcome.rs` is what comes of a request; `grammars.rs` where grammars come from.

mod grammars;
mod outcome;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forerun_engine::{
    AdmissionError, Engine, Event, Executor, FailureCause, Promotion, Request, RequestId,
    Timestamp, Vocabulary, WaitReason,
};
use forerun_models::grammar::GrammarSource;

pub(crate) use grammars::{Compiled, GrammarQueue, NoGrammars};
pub(crate) use outcome::{Outcome, Sample, ScoredToken, finish_name};

/// How long to wait for a grammar before looking at other things again.
const GRAMMAR_WAIT: Duration = Duration::from_millis(100);

/// An engine with a clock and a grammar compiler.
pub(crate) struct Driver<E, V, G> {
    engine: Engine<E, V>,
    grammars: G,
    started: Instant,
    /// What has come so far of requests that have not ended.
    outcomes: BTreeMap<RequestId, Outcome>,
    /// Tokens generated so far, by every request.
    num_generated: u64,
}

impl<E: Executor, V: Vocabulary, G: GrammarQueue> Driver<E, V, G> {
    /// Drives an engine that has no requests yet.
    pub(crate) fn new(engine: Engine<E, V>, grammars: G) -> Self {
        Self {
            engine,
            grammars,
            started: Instant::now(),
            outcomes: BTreeMap::new(),
            num_generated: 0,
        }
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &Engine<E, V> {
        &self.engine
    }

    /// Tokens generated so far, by every request.
    pub(crate) fn num_generated(&self) -> u64 {
        self.num_generated
    }

    /// The time, as the engine is told it.
    pub(crate) fn now(&self) -> Timestamp {
        since(self.started)
    }

    /// Whether the engine's queue takes another request.
    pub(crate) fn has_room(&self) -> bool {
        let lens = self.engine.queue_lens();
        lens.waiting + lens.parked < self.engine.config().scheduling.waiting_max
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Adds a request. With a grammar it is parked until that is compiled.
    ///
    /// # Errors
    /// [`AdmissionError`] if the engine refuses it.
    pub(crate) fn add(
        &mut self,
        mut request: Request,
        grammar: Option<GrammarSource>,
    ) -> Result<RequestId, AdmissionError> {
        request.waits_for = grammar.as_ref().map(|_| WaitReason::Grammar);
        let (num_samples, now) = (request.output.num_samples, self.now());
        let id = self.engine.add_request(request, now)?;
        self.outcomes.insert(id, Outcome::new(num_samples, now));
        if let Some(source) = grammar {
            self.grammars.submit(id.0, source);
        }
        Ok(id)
    }

    /// Takes a step and returns the requests that ended in it. `watch` sees every event.
    ///
    /// If every request waits for its grammar, waits for one, for a while.
    pub(crate) fn step(&mut self, mut watch: impl FnMut(&Event<'_>)) -> Vec<(RequestId, Outcome)> {
        while let Some((ticket, compiled)) = self.grammars.try_finished() {
            self.promote(ticket, compiled);
        }
        if !self.engine.has_work()
            && !self.is_idle()
            && let Some((ticket, compiled)) = self.grammars.wait_finished(GRAMMAR_WAIT)
        {
            self.promote(ticket, compiled);
        }
        let started = self.started;
        let events = self.engine.step_with_clock(|| since(started));
        let now = since(started);
        let mut ended = Vec::new();
        for event in events.iter() {
            watch(&event);
            self.num_generated += u64::from(matches!(event, Event::Token { .. }));
            let id = request_of(&event);
            let Some(outcome) = self.outcomes.get_mut(&id) else {
                unreachable!("request {id} was added here and has not ended");
            };
            outcome.take(&event, now);
            if matches!(event, Event::Finished { .. })
                && let Some(outcome) = self.outcomes.remove(&id)
            {
                ended.push((id, outcome));
            }
        }
        ended
    }

    fn promote(&mut self, ticket: u64, compiled: Compiled) {
        let promotion = match compiled {
            Ok(grammar) => Promotion::Grammar(grammar),
            Err(message) => Promotion::Failed(FailureCause::Grammar(message)),
        };
        let now = self.now();
        self.engine
            .promote(RequestId(ticket), promotion, now)
            .expect("it was parked for its grammar when that was submitted");
    }
}

/// The time since `started`, as the engine is told it.
fn since(started: Instant) -> Timestamp {
    let elapsed = started.elapsed().as_micros();
    Timestamp(u64::try_from(elapsed).unwrap_or(u64::MAX))
}

fn request_of(event: &Event<'_>) -> RequestId {
    match event {
        Event::PromptToken { request, .. }
        | Event::Draft { request, .. }
        | Event::Token { request, .. }
        | Event::SampleFinished { request, .. }
        | Event::Finished { request, .. } => *request,
    }
}
