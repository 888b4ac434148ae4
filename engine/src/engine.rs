//! The engine: requests in, events out, one step at a time.
//!
//! Neighbours: everything here; read [`Engine::step`] first. Callers: the command line and, later,
//! the server, each with an [`Executor`] of their choice.

use crate::block_manager::BlockManager;
use crate::scheduler::Scheduler;
use crate::sequence::Sequence;
use crate::sequence_store::SequenceStore;
use crate::{
    AdmissionError, ConfigError, EngineConfig, Events, Executor, ExecutorError, FailureCause,
    FailureScope, FinishReason, IntegrityError, Request, RequestId, SeqId, StepBatch, StepOutput,
    StepPlan, Verdict, Vocabulary,
};

/// Runs requests on an executor. Single-threaded and deterministic: its state is a function of the
/// calls made and the verdicts received.
#[derive(Debug)]
pub struct Engine<E, V> {
    config: EngineConfig,
    executor: E,
    vocabulary: V,
    sequences: SequenceStore,
    scheduler: Scheduler,
    blocks: BlockManager,
    plan: StepPlan,
    batch: StepBatch,
    output: StepOutput,
    events: Events,
}

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// An idle engine.
    ///
    /// # Errors
    /// [`ConfigError`] if `config` cannot work.
    pub fn new(config: EngineConfig, executor: E, vocabulary: V) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            scheduler: Scheduler::new(&config),
            blocks: BlockManager::new(&config),
            batch: StepBatch::new(config.groups.len()),
            sequences: SequenceStore::default(),
            plan: StepPlan::default(),
            output: StepOutput::default(),
            events: Events::default(),
            config,
            executor,
            vocabulary,
        })
    }

    /// Queues a request.
    ///
    /// # Errors
    /// [`AdmissionError`] if it is malformed or could not run even alone; nothing of it is kept.
    pub fn add_request(&mut self, request: Request) -> Result<RequestId, AdmissionError> {
        request.validate(&self.config)?;
        let tables = self.blocks.new_tables();
        let config = &self.config;
        let name = self
            .sequences
            .insert(|name| Sequence::new(name, request, tables, config));
        self.scheduler.enqueue(name.id);
        Ok(name.request)
    }

    /// Ends a request now. Its [`crate::Event::Finished`] comes with the next step; a request that
    /// has ended already, or never was, is left alone.
    pub fn abort(&mut self, request: RequestId) {
        let Some(seq) = self.sequences.find(request) else {
            return;
        };
        self.events.begin();
        self.finish(seq, FinishReason::Aborted);
        self.scheduler.forget_finished(&self.sequences);
    }

    /// Whether a step has something to do or to tell.
    pub fn has_work(&self) -> bool {
        !self.sequences.is_empty() || self.events.are_pending()
    }

    /// Runs one batch through the model and tells what came of it. Without work: no events.
    ///
    /// A failing executor ends requests, not the engine: see [`ExecutorError`].
    pub fn step(&mut self) -> &Events {
        self.events.begin();
        self.scheduler
            .plan(&mut self.sequences, &mut self.blocks, &mut self.plan);
        if !self.plan.scheduled.is_empty() {
            self.batch
                .build(&self.plan, &self.sequences, self.config.block_size);
            self.output.clear();
            match self.executor.execute(&self.batch, &mut self.output) {
                Ok(()) => self.commit(),
                Err(error) => self.abort_step(&error),
            }
        }
        self.events.deliver()
    }

    /// Most tokens of a sequence that model and pools can hold: the limit to advertise.
    pub fn seq_len_max(&self) -> usize {
        self.config.seq_len_max()
    }

    /// What the engine was built with.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The last step's plan, for traces and statistics.
    pub fn last_plan(&self) -> &StepPlan {
        &self.plan
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

    /// Requests that have not ended: waiting and running.
    pub fn num_requests(&self) -> usize {
        self.sequences.len()
    }

    /// Takes a step's verdicts: counts its tokens as computed, appends what was sampled, and frees
    /// the blocks of whoever has ended in the same step.
    ///
    /// The prefix cache (issue 3) publishes blocks here, once their tokens are committed and
    /// computed.
    fn commit(&mut self) {
        let num_rows = self.batch.num_logit_rows();
        let num_verdicts = self.output.verdicts().len();
        if num_verdicts != num_rows {
            let message = format!("{num_verdicts} verdicts came for {num_rows} logit rows");
            return self.abort_step(&ExecutorError {
                scope: FailureScope::All,
                message,
            });
        }
        for scheduled in &self.plan.scheduled {
            let (seq, generation) = (scheduled.seq, scheduled.generation);
            let Some(sequence) = self.sequences.get_current(seq, generation) else {
                continue;
            };
            sequence.num_computed += scheduled.num_scheduled;
            self.blocks
                .release_outside_windows(&mut sequence.tables, sequence.num_computed);
        }
        for row in 0..num_rows {
            self.commit_row(row, self.output.verdicts()[row]);
        }
        self.scheduler.forget_finished(&self.sequences);
    }

    /// Takes the verdict of one logit row.
    fn commit_row(&mut self, row: usize, verdict: Verdict) {
        let batch_seq = self.batch.seqs[self.batch.logit_seqs[row] as usize];
        let vocab_size = self.config.vocab_size;
        let Some(sequence) = self
            .sequences
            .get_current(batch_seq.seq, batch_seq.generation)
        else {
            return;
        };
        let finish = match verdict {
            Verdict::Token(token) if token.0 as usize >= vocab_size => {
                Some(FinishReason::Error(FailureCause::TokenOutOfVocabulary {
                    token,
                    vocab_size,
                }))
            }
            Verdict::Token(token) => sequence.commit(&[token], &self.vocabulary, &mut self.events),
            Verdict::NotFinite => {
                let position = self.batch.positions[self.batch.logit_rows[row] as usize] as usize;
                Some(FinishReason::Error(FailureCause::NotFinite { position }))
            }
        };
        if let Some(reason) = finish {
            self.finish(batch_seq.seq, reason);
        }
    }

    /// Undoes a step that failed: nothing counts as computed, and only those named by `error` end.
    /// Slots that were reserved stay with their sequences for the next try.
    fn abort_step(&mut self, error: &ExecutorError) {
        let is_named = |request: RequestId| match &error.scope {
            FailureScope::All => true,
            FailureScope::Requests(requests) => requests.contains(&request),
        };
        let names_nobody = !self.batch.seqs.iter().any(|entry| is_named(entry.request));
        for index in 0..self.batch.seqs.len() {
            let entry = self.batch.seqs[index];
            if names_nobody || is_named(entry.request) {
                let cause = FailureCause::Executor(error.message.clone());
                self.finish(entry.seq, FinishReason::Error(cause));
            }
        }
        self.scheduler.forget_finished(&self.sequences);
    }

    /// Ends a sequence: tells the caller, gives its blocks back. `forget_finished` must follow,
    /// before anything is added.
    fn finish(&mut self, seq: SeqId, reason: FinishReason) {
        let mut sequence = self.sequences.remove(seq);
        sequence.finish(reason, &mut self.events);
        self.blocks.release(&mut sequence.tables);
    }

    /// Recomputes every invariant from scratch. Cheap enough for tests and idle moments.
    ///
    /// # Errors
    /// The first one that does not hold: a bug.
    pub fn check_integrity(&self) -> Result<(), IntegrityError> {
        let all_tables: Vec<_> = self.sequences.iter().map(|s| s.tables.as_slice()).collect();
        self.blocks.check_integrity(&all_tables)?;
        let running = self.scheduler.running();
        if running.len() > self.config.step_seqs_max {
            let (found, limit) = (running.len(), self.config.step_seqs_max);
            return Err(IntegrityError::Running { found, limit });
        }
        for sequence in self.sequences.iter() {
            let seq = sequence.id;
            let is_waiting = self.scheduler.waiting().filter(|&id| id == seq).count();
            let is_running = running.iter().filter(|&&id| id == seq).count();
            if is_waiting + is_running != 1 {
                return Err(IntegrityError::Queues {
                    seq,
                    found: is_waiting + is_running,
                });
            }
            let num_blocks = sequence.tables.iter().map(|t| t.blocks().len()).sum();
            if is_waiting == 1 && num_blocks > 0 {
                return Err(IntegrityError::WaitingWithBlocks { seq, num_blocks });
            }
            sequence.check_integrity()?;
        }
        let (expected, found) = (self.sequences.len(), self.scheduler.num_queued());
        if found == expected {
            Ok(())
        } else {
            Err(IntegrityError::QueueLen { expected, found })
        }
    }
}
