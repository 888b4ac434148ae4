//! Runs the engine's steps through a model: the only place where data moves between host and
//! device once a model is loaded. One upload (all integers of the step) and one download (its
//! verdicts) per step; the download is started when the step is submitted and waited for when it is
//! collected, so that a device can have the next step queued by then.
//!
//! Neighbours: the engine calls [`ModelRunner::submit`] and [`ModelRunner::collect`]; `passes.rs` keeps
//! what is in flight, `upload.rs` packs a step, [`Decoder::forward`] makes its logits, `sampling.rs`
//! its verdicts, which `verdicts.rs` reads. Models that draft are in `drafting.rs`.

mod drafting;
mod passes;
mod sampling;
mod upload;
mod verdicts;

use burn::tensor::{Device, Tensor};
use forerun_engine::{DraftSource, Executor, ExecutorError, FailureScope, StepBatch, StepOutput};
use forerun_kernels::readback::ReadError;
use forerun_kernels::spec::KvSpec;
use forerun_kernels::step_inputs::StepInputsError;
use forerun_kernels::{kv_compact, kv_copy};
use thiserror::Error;

pub use self::drafting::DraftModelParts;
use self::drafting::Drafting;
use self::passes::Passes;
pub use self::upload::RowPadding;
use self::upload::Upload;
use crate::decoder::Decoder;
use crate::forward_context::ForwardContext;
use crate::kv_cache::KvCache;
use crate::layers::residual::ResidualStream;

/// A failed step.
#[derive(Debug, Error)]
pub enum RunnerError {
    /// The engine planned a step that does not fit the model.
    #[error("the step does not fit the model: {0}")]
    Inputs(#[from] StepInputsError),
    /// The device failed.
    #[error("the device failed: {message}. Its memory may be lost: restart forerun")]
    Device {
        /// In the device's words.
        message: String,
    },
    /// Verdicts did not come back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A step takes tokens from the one before, and there was none that decided any.
    #[error("the step takes tokens from a step before it that decided none")]
    NoPrevious,
    /// A pass of a drafter that this runner does not have.
    #[error("there is no {drafter:?} to draft with")]
    NoDrafter {
        /// Which.
        drafter: DraftSource,
    },
    /// A step was collected that was never submitted.
    #[error("no step is in flight")]
    NothingInFlight,
    /// The device returned something else than verdicts.
    #[error("expected {expected} words of verdicts from the device, found {found}")]
    Verdicts {
        /// Words expected.
        expected: usize,
        /// Words found.
        found: usize,
    },
}

/// What moved between host and device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferCounts {
    /// Steps run.
    pub steps: u64,
    /// Host to device.
    pub uploads: u64,
    /// Device to host.
    pub downloads: u64,
    /// Device to host, in bytes.
    pub download_bytes: u64,
}

/// A model on a device, with its KV cache.
#[derive(Debug)]
pub struct ModelRunner {
    decoder: Decoder,
    cache: KvCache,
    kv_specs: Vec<KvSpec>,
    passes: Passes,
    steps_in_flight_max: usize,
    counts: TransferCounts,
    drafting: Drafting,
    /// The same for passes that draft.
    draft_counts: TransferCounts,
}

/// The parts a [`ModelRunner`] is made of.
#[derive(Debug)]
pub struct RunnerParts {
    /// The model, on `device`.
    pub decoder: Decoder,
    /// Where it is.
    pub device: Device,
    /// One per layer.
    pub kv_specs: Vec<KvSpec>,
    /// Blocks in the pools of each KV group.
    pub num_blocks: Vec<usize>,
    /// V.
    pub vocab_size: usize,
    /// How row counts are rounded up.
    pub padding: RowPadding,
    /// Steps that may be submitted before one is collected. Native code runs a step when it is
    /// submitted, so more than 1 gains nothing there.
    pub steps_in_flight_max: usize,
}

impl ModelRunner {
    /// Allocates the KV pools.
    pub fn new(parts: RunnerParts) -> Self {
        let cache = KvCache::new(&parts.kv_specs, &parts.num_blocks, &parts.device);
        let block_size = parts.kv_specs.first().map_or(1, |spec| spec.block_size);
        Self {
            decoder: parts.decoder,
            cache,
            kv_specs: parts.kv_specs,
            passes: Passes::new(Upload::new(
                parts.device,
                parts.num_blocks,
                block_size,
                parts.vocab_size,
                parts.padding,
            )),
            steps_in_flight_max: parts.steps_in_flight_max,
            counts: TransferCounts::default(),
            drafting: Drafting::new(),
            draft_counts: TransferCounts::default(),
        }
    }

    /// What moved between host and device so far.
    pub fn transfer_counts(&self) -> TransferCounts {
        self.counts
    }

    /// What moved for passes that draft so far.
    pub fn draft_transfer_counts(&self) -> TransferCounts {
        self.draft_counts
    }

    /// The model.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Changes how many steps may be in flight: 1 makes every driver synchronous.
    pub fn set_steps_in_flight_max(&mut self, steps: usize) {
        self.steps_in_flight_max = steps;
    }

    /// Runs a step and waits for it, and also downloads its raw logits `[R, V]`, for tests and for
    /// scoring: the product never does.
    ///
    /// # Errors
    /// [`RunnerError`].
    pub fn execute_with_logits(
        &mut self,
        batch: &StepBatch,
        output: &mut StepOutput,
    ) -> Result<Vec<f32>, RunnerError> {
        let context = self.begin(batch)?;
        let logits = self.forward(&context, batch);
        self.finish(batch, &context, logits.clone())?;
        self.collect_step(output)?;
        let Some(logits) = logits else {
            return Ok(Vec::new());
        };
        let vocab_size = logits.dims()[1];
        let mut values = floats(logits)?;
        values.truncate(batch.num_logit_rows() * vocab_size);
        Ok(values)
    }

    /// The hidden states that enter each layer and leave the last norm, `[layers + 1][T, M]`.
    ///
    /// # Errors
    /// [`RunnerError`].
    pub fn hidden_states(&mut self, batch: &StepBatch) -> Result<Vec<Vec<f32>>, RunnerError> {
        let context = self.begin(batch)?;
        let mut streams: Vec<ResidualStream> = Vec::new();
        let last = self
            .decoder
            .hidden_states(&context, &mut self.cache, |_, stream| {
                streams.push(stream.clone());
            });
        let (_, normed) = last.normed(self.decoder.last_norm());
        let num_tokens = batch.num_tokens();
        let live_rows = |states: Tensor<2>| {
            let num_values = num_tokens * states.dims()[1];
            let mut values = floats(states)?;
            values.truncate(num_values);
            Ok(values)
        };
        streams
            .iter()
            .map(ResidualStream::value)
            .chain([normed])
            .map(live_rows)
            .collect()
    }

    fn submit_step(&mut self, batch: &StepBatch) -> Result<(), RunnerError> {
        let context = self.begin(batch)?;
        let logits = self.forward(&context, batch);
        self.finish(batch, &context, logits)
    }

    /// Uploads a step.
    fn begin(&mut self, batch: &StepBatch) -> Result<ForwardContext, RunnerError> {
        self.counts.steps += 1;
        self.passes.begin(batch, &mut self.counts)
    }

    /// Copies blocks and runs the layers.
    fn forward(&mut self, context: &ForwardContext, batch: &StepBatch) -> Option<Tensor<2>> {
        let has_copies = |group: usize| !batch.groups[group].block_copies.is_empty();
        for (cache, &spec) in self.cache.layers_mut().zip(&self.kv_specs) {
            if has_copies(spec.group) {
                cache.update(|pool| kv_copy::kv_copy(pool, context.step(), spec));
            }
        }
        self.decoder.forward(context, &mut self.cache)
    }

    /// Makes verdicts of the logits and starts their way to the host. What accepted drafts left in the
    /// pools comes to lie where a plain decode would have put it.
    fn finish(
        &mut self,
        batch: &StepBatch,
        context: &ForwardContext,
        logits: Option<Tensor<2>>,
    ) -> Result<(), RunnerError> {
        let format = self.passes.format(batch);
        let draft_logits = self.drafting.take_kept();
        let decided = logits
            .map(|logits| sampling::sample(batch, context, logits, draft_logits, format.num_top()));
        if let Some(sampled) = &decided
            && !batch.tails.is_empty()
        {
            for (cache, &spec) in self.cache.layers_mut().zip(&self.kv_specs) {
                let (step, verdicts) = (context.step(), sampled.verdicts.clone());
                cache.update(|pool| kv_compact::kv_compact(pool, step, verdicts, spec));
            }
        }
        let decided = decided.map(|sampled| (sampled.verdicts, sampled.rows));
        self.passes.push(decided, format)
    }

    /// Waits for the oldest step and reads its rows.
    fn collect_step(&mut self, output: &mut StepOutput) -> Result<(), RunnerError> {
        self.passes.collect(output, &mut self.counts)
    }
}

impl Executor for ModelRunner {
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError> {
        tracing::trace!(
            step = self.counts.steps,
            tokens = batch.num_tokens(),
            "submit"
        );
        self.submit_step(batch).map_err(|error| failure(&error))
    }

    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        let step = self.counts.steps - self.passes.num_in_flight() as u64;
        tracing::trace!(step, "collect");
        self.collect_step(output).map_err(|error| failure(&error))
    }

    fn steps_in_flight_max(&self) -> usize {
        self.steps_in_flight_max
    }

    fn submit_draft(
        &mut self,
        source: DraftSource,
        batch: &StepBatch,
    ) -> Result<(), ExecutorError> {
        self.submit_draft_pass(source, batch)
            .map_err(|error| failure(&error))
    }

    fn collect_draft(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        self.collect_draft_pass(output)
            .map_err(|error| failure(&error))
    }
}

fn failure(error: &RunnerError) -> ExecutorError {
    ExecutorError {
        scope: FailureScope::All,
        message: error.to_string(),
    }
}

fn floats(tensor: Tensor<2>) -> Result<Vec<f32>, RunnerError> {
    let data = tensor.try_into_data().map_err(device_error)?;
    data.try_to_vec().map_err(device_error)
}

fn device_error(error: impl std::fmt::Debug) -> RunnerError {
    RunnerError::Device {
        message: format!("{error:?}"),
    }
}
