//! The model's side of a step, as the engine sees it.
//!
//! Neighbours: the model runner of `forerun-models` implements [`Executor`]; `engine.rs` calls it
//! with the batch of `step_batch.rs` and commits its verdicts.

use thiserror::Error;

use crate::{RequestId, StepBatch, TokenId};

/// Runs one ragged batch through a model.
pub trait Executor {
    /// Makes the batch's block copies, writes keys and values of every token to its slots, and
    /// fills `output` (empty when it comes) with one verdict per entry of `batch.logit_rows`, in
    /// that order.
    ///
    /// # Errors
    /// [`ExecutorError`] aborts the step as a whole: no verdict of it counts. What was written to
    /// the pool does not matter, since the same positions are written again before they are read.
    fn execute(&mut self, batch: &StepBatch, output: &mut StepOutput) -> Result<(), ExecutorError>;
}

impl<E: Executor + ?Sized> Executor for Box<E> {
    fn execute(&mut self, batch: &StepBatch, output: &mut StepOutput) -> Result<(), ExecutorError> {
        (**self).execute(batch, output)
    }
}

impl<E: Executor + ?Sized> Executor for &mut E {
    fn execute(&mut self, batch: &StepBatch, output: &mut StepOutput) -> Result<(), ExecutorError> {
        (**self).execute(batch, output)
    }
}

/// What the target decided for one logit row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The next token.
    Token(TokenId),
    /// The logits hold a NaN, no finite value, or an infinity above all: there is no next token.
    NotFinite,
}

/// The verdicts of one step, reused from step to step.
#[derive(Clone, Debug, Default)]
pub struct StepOutput {
    verdicts: Vec<Verdict>,
}

impl StepOutput {
    /// Forgets the last step's verdicts.
    pub fn clear(&mut self) {
        self.verdicts.clear();
    }

    /// Adds the verdict of the next logit row.
    pub fn push(&mut self, verdict: Verdict) {
        self.verdicts.push(verdict);
    }

    /// `[R]`.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
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
