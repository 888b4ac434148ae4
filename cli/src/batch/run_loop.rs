//! The loop of a batch: lines in as the engine has room, steps, results out as they finish.
//!
//! Neighbours: `lines.rs` and `entry.rs` bring requests, `driver/` runs them, `results.rs` writes
//! them; `mod.rs` puts the parts together.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use forerun_engine::{Event, Executor, FailureCause, RequestId, Vocabulary};

use super::entry;
use super::lines::{Line, Lines, NextLine};
use super::progress::{Progress, Tally};
use super::results::{Results, result_id};
use super::resume::{Answered, NameHash};
use crate::codec::Codec;
use crate::driver::{Driver, GrammarQueue, Outcome};
use crate::openai::{Answer, AnswerHead, ApiError, ApiRequest, Defaults, EngineRequest};
use crate::speculation::Settings;

/// Steps in a row whose failure ends the batch: a device that fails so often is lost, and every
/// line that is left would get an error for it.
const FAILED_STEPS_MAX: u32 = 3;

/// Unknown keys that are warned of: a bound, since they are outside input.
const WARNED_KEYS_MAX: usize = 64;

/// Everything a batch needs besides its engine.
pub(super) struct BatchParts<'a, L, W, C> {
    /// The input.
    pub(super) lines: L,
    /// The output.
    pub(super) out: W,
    /// Text to tokens and back.
    pub(super) codec: &'a C,
    /// Name of the model.
    pub(super) model: &'a str,
    /// What lines get that do not say.
    pub(super) defaults: Defaults,
    /// Seed of the lines that give none: each gets its own from it.
    pub(super) seed: u64,
    /// How drafts are verified for lines that do not say.
    pub(super) speculation: Settings,
    /// What an earlier run has answered.
    pub(super) answered: Answered,
    /// Shows how it goes, and warnings.
    pub(super) progress: Progress,
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_field_names,
    reason = "num_ is how counts are named everywhere"
)]
pub(super) struct Summary {
    /// Lines answered in this run.
    pub(super) num_ok: u64,
    /// Lines that got an error in this run.
    pub(super) num_errors: u64,
    /// Lines that an earlier run had answered.
    pub(super) num_skipped: u64,
    /// Lines that got an error in earlier runs.
    pub(super) num_errors_before: u64,
}

impl Summary {
    /// The exit status: 0 if every line of the output is an answer, 2 if some are errors.
    pub(super) fn exit_code(&self) -> u8 {
        if self.num_errors + self.num_errors_before > 0 {
            2
        } else {
            0
        }
    }
}

/// A request that runs.
struct Running {
    number: u64,
    custom_id: String,
    head: AnswerHead,
}

pub(super) struct Batch<'a, L, W, C, E, V, G> {
    driver: Driver<E, V, G>,
    lines: L,
    results: Results<W>,
    codec: &'a C,
    model: &'a str,
    defaults: Defaults,
    seed: u64,
    speculation: Settings,
    answered: Answered,
    progress: Progress,
    seen: HashSet<NameHash>,
    warned_keys: HashSet<String>,
    running: BTreeMap<RequestId, Running>,
    input_end: u64,
    num_skipped: u64,
    num_failed_steps: u32,
}

impl<'a, L, W, C, E, V, G> Batch<'a, L, W, C, E, V, G>
where
    L: Lines,
    W: Write,
    C: Codec,
    E: Executor,
    V: Vocabulary,
    G: GrammarQueue,
{
    pub(super) fn new(parts: BatchParts<'a, L, W, C>, driver: Driver<E, V, G>) -> Self {
        Self {
            driver,
            lines: parts.lines,
            results: Results::new(parts.out),
            codec: parts.codec,
            model: parts.model,
            defaults: parts.defaults,
            seed: parts.seed,
            speculation: parts.speculation,
            answered: parts.answered,
            progress: parts.progress,
            seen: HashSet::new(),
            warned_keys: HashSet::new(),
            running: BTreeMap::new(),
            input_end: 0,
            num_skipped: 0,
            num_failed_steps: 0,
        }
    }

    /// The engine's driver.
    pub(super) fn driver(&self) -> &Driver<E, V, G> {
        &self.driver
    }

    /// Runs to the end of the input.
    ///
    /// # Errors
    /// The input cannot be read, the output cannot be written, or the device keeps failing. What is
    /// written then can be resumed.
    pub(super) fn run(&mut self) -> Result<Summary> {
        let mut has_input = true;
        while has_input || !self.driver.is_idle() {
            has_input = has_input && self.feed()?;
            if !self.driver.is_idle() {
                self.step()?;
            }
            self.show();
        }
        self.progress.finish();
        Ok(Summary {
            num_ok: self.results.num_ok,
            num_errors: self.results.num_errors,
            num_skipped: self.num_skipped,
            num_errors_before: self.answered.num_errors,
        })
    }

    /// Takes lines as long as there are some and the engine has room for a request. Says whether
    /// more may come.
    fn feed(&mut self) -> Result<bool> {
        while self.driver.has_room() {
            let may_wait = self.driver.is_idle();
            let next = self.lines.next_line(may_wait);
            match next.context("cannot read the input")? {
                NextLine::Line(line) => self.take(line)?,
                NextLine::NotYet => return Ok(true),
                NextLine::End => return Ok(false),
            }
        }
        Ok(true)
    }

    fn take(&mut self, line: Line) -> Result<()> {
        let number = line.number;
        self.input_end = line.end;
        let entry = match entry::parse(line, self.defaults) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(()),
            Err(error) => return self.refuse_line(number, error),
        };
        let name = NameHash::of(&entry.custom_id);
        if !self.seen.insert(name) {
            return self.refuse_line(number, entry::repeated(number, &entry.custom_id));
        }
        if self.answered.names.contains(&name) {
            self.num_skipped += 1;
            return Ok(());
        }
        let added = entry
            .request
            .and_then(|request| self.add(number, name, request));
        match added {
            Ok((id, head)) => {
                let custom_id = entry.custom_id;
                let running = Running {
                    number,
                    custom_id,
                    head,
                };
                self.running.insert(id, running);
                Ok(())
            }
            Err(error) => self.write(number, Some(&entry.custom_id), Err(error)),
        }
    }

    fn add(
        &mut self,
        number: u64,
        name: NameHash,
        request: ApiRequest,
    ) -> Result<(RequestId, AnswerHead), ApiError> {
        for key in request.unknown_keys() {
            if self.warned_keys.len() < WARNED_KEYS_MAX && self.warned_keys.insert(key.clone()) {
                let key = serde_json::Value::from(key.as_str());
                self.progress.warn(&format!(
                    "body key {key} is not known and ignored (first in line {number})"
                ));
            }
        }
        let EngineRequest {
            request,
            grammar,
            head,
        } = request.into_engine(self.codec, name.seed(self.seed), &self.speculation)?;
        let id = self.driver.add(request, grammar)?;
        Ok((id, head))
    }

    /// An error about a line that has no name of its own.
    fn refuse_line(&mut self, number: u64, error: ApiError) -> Result<()> {
        if self.answered.numbers.contains(&number) {
            self.num_skipped += 1;
            return Ok(());
        }
        self.write(number, None, Err(error))
    }

    fn step(&mut self) -> Result<()> {
        let mut has_tokens = false;
        let ended = self
            .driver
            .step(|event| has_tokens |= matches!(event, Event::Token { .. }));
        let mut failure = None;
        for (id, outcome) in ended {
            let Some(Running {
                number,
                custom_id,
                head,
            }) = self.running.remove(&id)
            else {
                unreachable!("request {id} was added for a line and ends once");
            };
            if let Some(FailureCause::Executor(message)) = outcome.failure() {
                failure = Some(message.clone());
            }
            let body = self.answer(number, head, &outcome);
            self.write(number, Some(&custom_id), body)?;
        }
        match failure {
            Some(message) => {
                self.num_failed_steps += 1;
                if self.num_failed_steps >= FAILED_STEPS_MAX {
                    bail!(
                        "{FAILED_STEPS_MAX} steps failed in a row, the last with: {message}. Run \
                         the same command again to answer the lines that are left"
                    );
                }
            }
            None if has_tokens => self.num_failed_steps = 0,
            None => {}
        }
        Ok(())
    }

    fn answer(
        &self,
        number: u64,
        head: AnswerHead,
        outcome: &Outcome,
    ) -> Result<crate::openai::ResponseBody, ApiError> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let answer = Answer {
            codec: self.codec,
            model: self.model,
            name: &result_id(number),
            created: since_1970.unwrap_or_default().as_secs(),
        };
        answer.body(head, outcome)
    }

    fn write(
        &mut self,
        number: u64,
        custom_id: Option<&str>,
        result: Result<crate::openai::ResponseBody, ApiError>,
    ) -> Result<()> {
        self.results
            .write(number, custom_id, result)
            .context("cannot write the output")
    }

    fn show(&mut self) {
        let engine = self.driver.engine();
        let blocks = engine.blocks();
        let groups = 0..blocks.num_groups();
        let (used, usable) = groups.fold((0, 0), |(used, usable), group| {
            (
                used + blocks.num_referenced(group),
                usable + blocks.num_usable(group),
            )
        });
        let lens = engine.queue_lens();
        self.progress.show(Tally {
            input_end: self.input_end,
            num_ok: self.results.num_ok,
            num_errors: self.results.num_errors,
            num_skipped: self.num_skipped,
            num_running: lens.running,
            num_waiting: lens.waiting + lens.parked,
            num_generated: self.driver.num_generated(),
            kv_used_share: used as f64 / usable.max(1) as f64,
        });
    }
}
