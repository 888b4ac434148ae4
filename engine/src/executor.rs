//! The model's side of a step, as the engine sees it.
//!
//! Neighbours: the model runner of `forerun-models` implements [`Executor`]; `engine.rs` submits the
//! batch of `step_batch/` and `commit.rs` takes its verdicts.

use thiserror::Error;

use crate::{RequestId, StepBatch, TokenId};

/// Runs ragged batches through a model, in the order in which they are submitted.
pub trait Executor {
    /// Starts a step: makes the batch's block copies, writes keys and values of every token to its
    /// slots, and begins to decide one verdict per entry of `batch.logit_rows`.
    ///
    /// Entries of `batch.carried` are tokens that the step before decides: the executor takes them
    /// from there, without waiting for the host.
    ///
    /// # Errors
    /// [`ExecutorError`] aborts the step as a whole. It must not be collected.
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError>;

    /// Waits for the oldest step that was submitted and not collected, and fills `output` (empty
    /// when it comes) with one row per entry of its `logit_rows`, in that order.
    ///
    /// # Errors
    /// [`ExecutorError`] aborts the step as a whole: no verdict of it counts. What was written to
    /// the pool does not matter, since the same positions are written again before they are read.
    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError>;

    /// How many steps may be submitted before one is collected: 1 is a synchronous driver. More
    /// than 2 are not used.
    fn steps_in_flight_max(&self) -> usize {
        1
    }

    /// Starts a pass of a model that drafts, under the contract of [`Self::submit`]: its groups are
    /// those of the draft model, or the target's where the target drafts. Tokens that the batch
    /// carries come from the pass submitted before. All passes of a step come before the step.
    ///
    /// # Errors
    /// [`ExecutorError`]: also where there is no such model.
    fn submit_draft(
        &mut self,
        source: DraftSource,
        batch: &StepBatch,
    ) -> Result<(), ExecutorError> {
        let message = format!("no {source:?} to draft {} tokens with", batch.num_tokens());
        let scope = FailureScope::All;
        Err(ExecutorError { scope, message })
    }

    /// Waits for the oldest draft pass that was not collected, as [`Self::collect`].
    ///
    /// # Errors
    /// [`ExecutorError`].
    fn collect_draft(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        output.clear();
        let message = "no draft pass is in flight".to_owned();
        let scope = FailureScope::All;
        Err(ExecutorError { scope, message })
    }
}

/// Which model runs a draft pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DraftSource {
    /// The draft model, over KV pools of its own.
    DraftModel,
    /// The target's first layers, over the first pools of the target.
    LayerSkip,
}

impl<E: Executor + ?Sized> Executor for Box<E> {
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError> {
        (**self).submit(batch)
    }

    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        (**self).collect(output)
    }

    fn steps_in_flight_max(&self) -> usize {
        (**self).steps_in_flight_max()
    }

    fn submit_draft(
        &mut self,
        source: DraftSource,
        batch: &StepBatch,
    ) -> Result<(), ExecutorError> {
        (**self).submit_draft(source, batch)
    }

    fn collect_draft(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        (**self).collect_draft(output)
    }
}

impl<E: Executor + ?Sized> Executor for &mut E {
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError> {
        (**self).submit(batch)
    }

    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        (**self).collect(output)
    }

    fn steps_in_flight_max(&self) -> usize {
        (**self).steps_in_flight_max()
    }

    fn submit_draft(
        &mut self,
        source: DraftSource,
        batch: &StepBatch,
    ) -> Result<(), ExecutorError> {
        (**self).submit_draft(source, batch)
    }

    fn collect_draft(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        (**self).collect_draft(output)
    }
}

/// What the target decided for one logit row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The next token.
    Token(TokenId),
    /// The logits hold a NaN, no finite value, or an infinity above all: there is no next token.
    NotFinite,
    /// The row of a draft that was not accepted: nothing follows it.
    Unreached,
}

/// A token and its natural log-probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub token: TokenId,
    /// Its log-probability; `-inf` where it was masked.
    pub logprob: f32,
}

/// Log-probabilities of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowLogprobs<'a> {
    /// The token that was chosen, or scored.
    pub chosen: TokenLogprob,
    /// How many tokens are at least as likely, itself included: 1 is the likeliest.
    pub rank: u32,
    /// The likeliest tokens, in descending order.
    pub top: &'a [TokenLogprob],
}

/// The verdicts of one step, reused from step to step.
#[derive(Clone, Debug, Default)]
pub struct StepOutput {
    verdicts: Vec<Verdict>,
    logprobs: Vec<Option<StoredLogprobs>>,
    top: Vec<TokenLogprob>,
}

#[derive(Clone, Copy, Debug)]
struct StoredLogprobs {
    chosen: TokenLogprob,
    rank: u32,
    top_start: usize,
    top_end: usize,
}

impl StepOutput {
    /// Forgets the last step's verdicts.
    pub fn clear(&mut self) {
        self.verdicts.clear();
        self.logprobs.clear();
        self.top.clear();
    }

    /// Adds the verdict of the next logit row.
    pub fn push(&mut self, verdict: Verdict) {
        self.verdicts.push(verdict);
        self.logprobs.push(None);
    }

    /// Adds the verdict of the next logit row with the log-probabilities that the row asked for.
    pub fn push_with_logprobs(
        &mut self,
        verdict: Verdict,
        chosen: TokenLogprob,
        rank: u32,
        top: impl IntoIterator<Item = TokenLogprob>,
    ) {
        let top_start = self.top.len();
        self.top.extend(top);
        self.verdicts.push(verdict);
        self.logprobs.push(Some(StoredLogprobs {
            chosen,
            rank,
            top_start,
            top_end: self.top.len(),
        }));
    }

    /// `[R]`.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Log-probabilities of row `row`, if they came.
    pub fn logprobs(&self, row: usize) -> Option<RowLogprobs<'_>> {
        let stored = self.logprobs[row]?;
        Some(RowLogprobs {
            chosen: stored.chosen,
            rank: stored.rank,
            top: &self.top[stored.top_start..stored.top_end],
        })
    }
}

/// A step that gave no verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ExecutorError {
    /// Who cannot go on.
    pub scope: FailureScope,
    /// What happened, for whoever sent the requests.
    pub message: String,
}

/// Which requests an [`ExecutorError`] ends. The others run again in the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureScope {
    /// Every request of the step.
    All,
    /// These. If none of them is in the step, every request of it ends: else the same step would
    /// fail for ever.
    Requests(Vec<RequestId>),
}
