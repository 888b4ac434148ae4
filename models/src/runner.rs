//! Runs the engine's steps through a model: the only place where data moves between host and
//! device once a model is loaded. One upload (all integers of the step) and one download (the
//! verdicts) per step.
//!
//! Neighbours: `Engine::step` calls [`ModelRunner::execute`]; it calls [`Decoder::forward`] and the
//! `sample` kernel.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use forerun_engine::{
    Executor, ExecutorError, FailureScope, StepBatch, StepOutput, TokenId, Verdict,
};
use forerun_kernels::spec::KvSpec;
use forerun_kernels::step_inputs::{
    GroupArrays, SamplingRow, StepArrays, StepCapacity, StepInputs, StepInputsError,
};
use forerun_kernels::{kv_copy, sample};
use thiserror::Error;

use crate::decoder::Decoder;
use crate::forward_context::ForwardContext;
use crate::kv_cache::KvCache;
use crate::layers::residual::ResidualStream;

/// Words of one verdict: token id, status.
const VERDICT_WORDS: usize = 2;
/// The status of a row with a token.
const STATUS_TOKEN: u32 = 0;

/// How the row counts of a step are rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowPadding {
    /// Not at all: native kernels take any count.
    Exact,
    /// To powers of two, so that a device compiles and configures few different launches.
    PowersOfTwo,
}

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
    device: Device,
    kv_specs: Vec<KvSpec>,
    num_blocks: usize,
    vocab_size: usize,
    padding: RowPadding,
    inputs: Option<StepInputs>,
    sampling: Vec<SamplingRow>,
    block_copies: Vec<(u32, u32)>,
    counts: TransferCounts,
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
    /// Blocks in each pool.
    pub num_blocks: usize,
    /// V.
    pub vocab_size: usize,
    /// How row counts are rounded up.
    pub padding: RowPadding,
}

impl ModelRunner {
    /// Allocates the KV pools.
    pub fn new(parts: RunnerParts) -> Self {
        let cache = KvCache::new(&parts.kv_specs, parts.num_blocks, &parts.device);
        Self {
            decoder: parts.decoder,
            cache,
            device: parts.device,
            kv_specs: parts.kv_specs,
            num_blocks: parts.num_blocks,
            vocab_size: parts.vocab_size,
            padding: parts.padding,
            inputs: None,
            sampling: Vec::new(),
            block_copies: Vec::new(),
            counts: TransferCounts::default(),
        }
    }

    /// What moved between host and device so far.
    pub fn transfer_counts(&self) -> TransferCounts {
        self.counts
    }

    /// The model.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Runs a step like [`Executor::execute`] and also downloads its logits `[R, V]`, for tests and
    /// for scoring: the product never does.
    ///
    /// # Errors
    /// [`RunnerError`].
    pub fn execute_with_logits(
        &mut self,
        batch: &StepBatch,
        output: &mut StepOutput,
    ) -> Result<Vec<f32>, RunnerError> {
        let context = self.upload(batch)?;
        let Some(logits) = self.forward(&context, batch) else {
            return Ok(Vec::new());
        };
        let verdicts = sample::sample(logits.clone(), context.step());
        self.download(verdicts, batch.num_logit_rows(), output)?;
        let mut values = floats(logits)?;
        values.truncate(batch.num_logit_rows() * self.vocab_size);
        Ok(values)
    }

    /// The hidden states that enter each layer and leave the last norm, `[layers + 1][T, M]`.
    ///
    /// # Errors
    /// [`RunnerError`].
    pub fn hidden_states(&mut self, batch: &StepBatch) -> Result<Vec<Vec<f32>>, RunnerError> {
        let context = self.upload(batch)?;
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

    fn run(&mut self, batch: &StepBatch, output: &mut StepOutput) -> Result<(), RunnerError> {
        let context = self.upload(batch)?;
        match self.forward(&context, batch) {
            Some(logits) => {
                let verdicts = sample::sample(logits, context.step());
                self.download(verdicts, batch.num_logit_rows(), output)
            }
            None => Ok(()),
        }
    }

    fn forward(&mut self, context: &ForwardContext, batch: &StepBatch) -> Option<Tensor<2>> {
        if !batch.block_copies.is_empty() {
            for (cache, &spec) in self.cache.layers_mut().zip(&self.kv_specs) {
                cache.update(|pool| kv_copy::kv_copy(pool, context.step(), spec));
            }
        }
        self.decoder.forward(context, &mut self.cache)
    }

    /// Checks and packs the step's integers and sends them as one buffer.
    fn upload(&mut self, batch: &StepBatch) -> Result<ForwardContext, RunnerError> {
        self.sampling.clear();
        self.sampling.extend(
            batch
                .sampling
                .iter()
                .map(|row| SamplingRow::plain(row.temperature, row.seed, row.position)),
        );
        self.block_copies.clear();
        self.block_copies
            .extend(batch.block_copies.iter().map(|(from, to)| (from.0, to.0)));
        let block_size = self.kv_specs.first().map_or(1, |spec| spec.block_size);
        let groups: Vec<GroupArrays<'_>> = batch
            .groups
            .iter()
            .map(|group| GroupArrays {
                slot_mapping: &group.slot_mapping,
                block_tables: &group.block_tables,
                blocks_per_seq: group.blocks_per_seq,
                num_blocks: self.num_blocks,
                block_size,
                block_copies: &self.block_copies,
            })
            .collect();
        let step = StepArrays {
            token_ids: &batch.token_ids,
            positions: &batch.positions,
            seq_of_token: &batch.seq_of_token,
            query_offsets: &batch.query_offsets,
            context_lens: &batch.context_lens,
            logit_rows: &batch.logit_rows,
            sampling: &self.sampling,
            groups: &groups,
            ..StepArrays::default()
        };
        let capacity = self.padding.capacity(batch);
        let inputs = match self.inputs.take() {
            Some(inputs) if *inputs.capacity() == capacity => self.inputs.insert(inputs),
            _ => self.inputs.insert(StepInputs::new(capacity)),
        };
        inputs.fill(&step, self.vocab_size)?;
        let words = inputs.words();
        let data = TensorData::new(words.to_vec(), [words.len()]);
        let buffer = Tensor::<1, Int>::from_data(data, (&self.device, DType::U32));
        self.counts.steps += 1;
        self.counts.uploads += 1;
        let capacity = inputs.capacity();
        Ok(ForwardContext::new(
            buffer,
            capacity.tokens,
            capacity.logit_rows,
        ))
    }

    /// Reads the verdicts of the live rows.
    fn download(
        &mut self,
        verdicts: Tensor<2, Int>,
        num_rows: usize,
        output: &mut StepOutput,
    ) -> Result<(), RunnerError> {
        let data = verdicts.try_into_data().map_err(device_error)?;
        let words: &[u32] = data.as_slice().map_err(device_error)?;
        self.counts.downloads += 1;
        self.counts.download_bytes += size_of_val(words) as u64;
        let expected = num_rows * VERDICT_WORDS;
        let live = words.get(..expected).ok_or(RunnerError::Verdicts {
            expected,
            found: words.len(),
        })?;
        for verdict in live.chunks_exact(VERDICT_WORDS) {
            output.push(match verdict[1] {
                STATUS_TOKEN => Verdict::Token(TokenId(verdict[0])),
                _ => Verdict::NotFinite,
            });
        }
        Ok(())
    }
}

impl Executor for ModelRunner {
    fn execute(&mut self, batch: &StepBatch, output: &mut StepOutput) -> Result<(), ExecutorError> {
        self.run(batch, output).map_err(|error| ExecutorError {
            scope: FailureScope::All,
            message: error.to_string(),
        })
    }
}

impl RowPadding {
    /// The buffer a batch needs.
    fn capacity(self, batch: &StepBatch) -> StepCapacity {
        let round = |count: usize| match self {
            Self::Exact => count,
            Self::PowersOfTwo if count == 0 => 0,
            Self::PowersOfTwo => count.next_power_of_two(),
        };
        StepCapacity {
            tokens: round(batch.num_tokens()),
            seqs: round(batch.num_seqs()),
            logit_rows: round(batch.num_logit_rows()),
            blocks_per_seq: batch
                .groups
                .iter()
                .map(|group| round(group.blocks_per_seq))
                .collect(),
            copies: vec![round(batch.block_copies.len()); batch.groups.len()],
            ..StepCapacity::default()
        }
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
