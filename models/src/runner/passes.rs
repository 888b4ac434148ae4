//! Steps of one model on their way: what was uploaded, what the next may take tokens from, and which
//! verdicts are still to come.
//!
//! Neighbours: [`super::ModelRunner`] has one for the target's steps, and one for each model that
//! drafts; `upload.rs` packs a step, `verdicts.rs` reads its rows.

use std::collections::VecDeque;

use burn::tensor::{Int, Tensor};
use forerun_engine::{StepBatch, StepOutput};
use forerun_kernels::advance;
use forerun_kernels::readback::PendingRead;

use super::upload::{self, Upload};
use super::verdicts::RowFormat;
use super::{RunnerError, TransferCounts};
use crate::forward_context::ForwardContext;

/// Steps in the order in which they were submitted.
#[derive(Debug)]
pub(super) struct Passes {
    pub(super) upload: Upload,
    /// Verdicts `[R, 2]` of the step submitted last, from which the next may take tokens.
    previous: Option<Tensor<2, Int>>,
    in_flight: VecDeque<SubmittedStep>,
}

/// A step whose verdicts are on their way.
#[derive(Debug)]
struct SubmittedStep {
    /// `None` where no row wants logits.
    read: Option<PendingRead>,
    format: RowFormat,
}

impl Passes {
    pub(super) fn new(upload: Upload) -> Self {
        Self {
            upload,
            previous: None,
            in_flight: VecDeque::new(),
        }
    }

    pub(super) fn num_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Uploads a step. Tokens that the step before decides are filled in on the device.
    pub(super) fn begin(
        &mut self,
        batch: &StepBatch,
        counts: &mut TransferCounts,
    ) -> Result<ForwardContext, RunnerError> {
        let previous_rows = self.previous.as_ref().map_or(0, |rows| rows.dims()[0]);
        let context = self.upload.upload(batch, previous_rows)?;
        counts.uploads += 1;
        if !upload::takes_tokens(batch) {
            return Ok(context);
        }
        let previous = self.previous.clone().ok_or(RunnerError::NoPrevious)?;
        Ok(context.map_step(|step| advance::advance(step, previous)))
    }

    /// The format in which a step's rows come.
    pub(super) fn format(&self, batch: &StepBatch) -> RowFormat {
        RowFormat::of(batch, self.upload.padding(), self.upload.vocab_size())
    }

    /// Starts the way of `rows` to the host; the next step may take tokens from `verdicts`. `None` for
    /// a step without rows.
    pub(super) fn push(
        &mut self,
        decided: Option<(Tensor<2, Int>, Tensor<2, Int>)>,
        format: RowFormat,
    ) -> Result<(), RunnerError> {
        let (verdicts, rows) = decided.unzip();
        self.previous = verdicts;
        let read = rows.map(PendingRead::start).transpose()?;
        self.in_flight.push_back(SubmittedStep { read, format });
        Ok(())
    }

    /// Waits for the oldest step and reads its rows.
    pub(super) fn collect(
        &mut self,
        output: &mut StepOutput,
        counts: &mut TransferCounts,
    ) -> Result<(), RunnerError> {
        let step = self
            .in_flight
            .pop_front()
            .ok_or(RunnerError::NothingInFlight)?;
        let Some(read) = step.read else {
            return Ok(());
        };
        let words = read.wait()?;
        counts.downloads += 1;
        counts.download_bytes += size_of_val(words.as_slice()) as u64;
        step.format.read(&words, output)
    }
}
