//! Passes of models that draft: a draft model over KV pools of its own, or the target's first layers
//! over the target's.
//!
//! Neighbours: [`super::ModelRunner`] runs them between steps; the engine decides who drafts.

use burn::tensor::{DType, Device, Tensor, TensorData};
use forerun_engine::{DraftSource, StepBatch, StepOutput};
use forerun_kernels::spec::KvSpec;
use forerun_kernels::{kv_copy, logits_process, sample};

use super::passes::Passes;
use super::upload::Upload;
use super::{ModelRunner, RunnerError, sampling};
use crate::decoder::Decoder;
use crate::forward_context::ForwardContext;
use crate::kv_cache::KvCache;

/// A draft model beside the target, on the same device.
#[derive(Debug)]
pub(super) struct DraftModel {
    decoder: Decoder,
    cache: KvCache,
    kv_specs: Vec<KvSpec>,
    passes: Passes,
    /// Tokens that target and draft model both have; the draft model's other logits are masked.
    num_shared_tokens: usize,
}

/// The parts a draft model is made of.
#[derive(Debug)]
pub struct DraftModelParts {
    /// The model, on the target's device.
    pub decoder: Decoder,
    /// One per layer.
    pub kv_specs: Vec<KvSpec>,
    /// Blocks in the pools of each KV group.
    pub num_blocks: Vec<usize>,
    /// The first so many token ids mean the same to both models.
    pub num_shared_tokens: usize,
}

/// What drafting adds to a runner.
#[derive(Debug)]
pub(super) struct Drafting {
    model: Option<DraftModel>,
    /// Layers of the target that draft, and their passes.
    layers: Option<(usize, Passes)>,
    /// Sources of the passes in flight, the oldest first.
    sources: std::collections::VecDeque<DraftSource>,
    /// Processed logits that drafts were drawn from since the last step.
    kept: Vec<Tensor<2>>,
}

impl Drafting {
    pub(super) fn new() -> Self {
        Self {
            model: None,
            layers: None,
            sources: std::collections::VecDeque::new(),
            kept: Vec::new(),
        }
    }

    /// The logits that drafts were drawn from, in one piece, and forgets them.
    pub(super) fn take_kept(&mut self) -> Option<Tensor<2>> {
        let kept = std::mem::take(&mut self.kept);
        match kept.len() {
            0 => None,
            1 => kept.into_iter().next(),
            _ => Some(Tensor::cat(kept, 0)),
        }
    }
}

impl ModelRunner {
    /// Lets a draft model draft. Its pools are allocated now.
    pub fn add_draft_model(&mut self, parts: DraftModelParts, device: &Device) {
        let cache = KvCache::new(&parts.kv_specs, &parts.num_blocks, device);
        let block_size = parts.kv_specs.first().map_or(1, |spec| spec.block_size);
        let upload = Upload::new(
            device.clone(),
            parts.num_blocks,
            block_size,
            self.passes.upload.vocab_size(),
            self.passes.upload.padding(),
        );
        self.drafting.model = Some(DraftModel {
            decoder: parts.decoder,
            cache,
            kv_specs: parts.kv_specs,
            passes: Passes::new(upload),
            num_shared_tokens: parts.num_shared_tokens,
        });
    }

    /// Lets the target's first `num_layers` layers draft.
    pub fn set_draft_layers(&mut self, num_layers: usize) {
        let upload = self.passes.upload.empty_copy();
        self.drafting.layers = Some((num_layers, Passes::new(upload)));
    }

    /// What a guess of the target's first layers costs, in thousandths of a pass of all of them, if they
    /// draft.
    pub fn draft_layers_cost(&self) -> Option<u32> {
        let (num_layers, _) = self.drafting.layers.as_ref()?;
        let part = self.decoder.weight_bytes_of(*num_layers);
        let cost = 1000 * part / self.decoder.weight_bytes().max(1);
        Some(u32::try_from(cost).unwrap_or(u32::MAX))
    }

    pub(super) fn submit_draft_pass(
        &mut self,
        source: DraftSource,
        batch: &StepBatch,
    ) -> Result<(), RunnerError> {
        let vocab_size = self.passes.upload.vocab_size();
        let (passes, logits, context) = match source {
            DraftSource::DraftModel => {
                let model = self.drafting.model.as_mut();
                let model = model.ok_or(RunnerError::NoDrafter { drafter: source })?;
                let context = model.passes.begin(batch, &mut self.draft_counts)?;
                let logits = model.forward(&context, batch);
                let num_shared = model.num_shared_tokens;
                let logits = logits.map(|logits| widened(logits, num_shared, vocab_size));
                (&mut model.passes, logits, context)
            }
            DraftSource::LayerSkip => {
                let layers = self.drafting.layers.as_mut();
                let (num_layers, passes) =
                    layers.ok_or(RunnerError::NoDrafter { drafter: source })?;
                let context = passes.begin(batch, &mut self.draft_counts)?;
                let logits = (self.decoder).forward_layers(&context, &mut self.cache, *num_layers);
                (passes, logits, context)
            }
        };
        self.draft_counts.steps += 1;
        let format = passes.format(batch);
        let verdicts = logits.map(|logits| {
            let step = context.step();
            let processed = if batch.sampling.iter().any(sampling::is_processed) {
                logits_process::logits_process(logits, step.clone())
            } else {
                logits
            };
            if batch.keeps_distributions {
                let live = live_rows(processed.clone(), batch.num_logit_rows());
                self.drafting.kept.push(live);
            }
            sample::sample(processed, step)
        });
        passes.push(verdicts.map(|rows| (rows.clone(), rows)), format)?;
        self.drafting.sources.push_back(source);
        Ok(())
    }

    pub(super) fn collect_draft_pass(
        &mut self,
        output: &mut StepOutput,
    ) -> Result<(), RunnerError> {
        let source = self.drafting.sources.pop_front();
        let source = source.ok_or(RunnerError::NothingInFlight)?;
        let passes = match source {
            DraftSource::DraftModel => self.drafting.model.as_mut().map(|model| &mut model.passes),
            DraftSource::LayerSkip => self.drafting.layers.as_mut().map(|(_, passes)| passes),
        };
        let passes = passes.ok_or(RunnerError::NoDrafter { drafter: source })?;
        passes.collect(output, &mut self.draft_counts)
    }
}

impl DraftModel {
    fn forward(&mut self, context: &ForwardContext, batch: &StepBatch) -> Option<Tensor<2>> {
        for (cache, &spec) in self.cache.layers_mut().zip(&self.kv_specs) {
            if !batch.groups[spec.group].block_copies.is_empty() {
                cache.update(|pool| kv_copy::kv_copy(pool, context.step(), spec));
            }
        }
        self.decoder.forward(context, &mut self.cache)
    }
}

/// Rows without those of padding, so that kept rows have the numbers that the engine gave them.
fn live_rows(logits: Tensor<2>, num_rows: usize) -> Tensor<2> {
    if logits.dims()[0] == num_rows {
        logits
    } else {
        logits.narrow(0, 0, num_rows)
    }
}

/// The logits of `num_shared` tokens among those of the target's vocabulary; the others are masked.
fn widened(logits: Tensor<2>, num_shared: usize, vocab_size: usize) -> Tensor<2> {
    let [num_rows, found] = logits.dims();
    if found == vocab_size && num_shared == vocab_size {
        return logits;
    }
    let device = logits.device();
    let shared = logits.narrow(1, 0, num_shared);
    if num_shared == vocab_size {
        return shared;
    }
    let num_masked = vocab_size - num_shared;
    let masked = vec![f32::NEG_INFINITY; num_rows * num_masked];
    let masked = TensorData::new(masked, [num_rows, num_masked]);
    let masked = Tensor::<2>::from_data(masked, (&device, DType::F32));
    Tensor::cat(vec![shared, masked], 1)
}
