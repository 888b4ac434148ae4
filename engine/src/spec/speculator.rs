//! Who drafts for which sequence in a step.
//!
//! Neighbours: asked by `engine.rs` before it plans; host drafters implement [`Drafter`], drafts of
//! models are made in `device_drafter.rs`; told by `commit_draft.rs` what became of drafts, and by
//! `finish.rs` which sequences ended.

use super::device_drafter::{DraftPools, DraftRun, Wanted};
use super::draft_cache::DraftCache;
use super::{DraftContext, DraftTree, Drafter, SpecMethod, SpeculationConfig};
use crate::request_state::RequestState;
use crate::{
    DraftSource, Engine, EngineConfig, Executor, SeqId, StepBatch, StepOutput, TokenId, Vocabulary,
};

/// The drafters of an engine.
#[derive(Debug)]
pub(crate) struct Speculator {
    config: SpeculationConfig,
    custom: Option<Box<dyn Drafter>>,
    /// The draft model's memory, if there is one.
    pub(crate) draft_cache: Option<DraftCache>,
    /// Of the draft model.
    draft_batch: StepBatch,
    /// Of the target's first layers.
    layer_batch: StepBatch,
    draft_output: StepOutput,
    wants_model: Vec<Wanted>,
    wants_layers: Vec<Wanted>,
}

impl Speculator {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let spec = &config.speculation;
        let draft_model = spec.draft_model.as_ref();
        let num_draft_groups = draft_model.map_or(0, |model| model.groups.len());
        Self {
            config: spec.clone(),
            custom: None,
            draft_cache: draft_model.map(|model| DraftCache::new(config, model)),
            draft_batch: StepBatch::new(num_draft_groups, config.vocab_size),
            layer_batch: StepBatch::new(config.groups.len(), config.vocab_size),
            draft_output: StepOutput::default(),
            wants_model: Vec::new(),
            wants_layers: Vec::new(),
        }
    }

    /// Who drafts for a request.
    fn method(&self, request: &RequestState) -> SpecMethod {
        if request.beam.is_some() {
            return SpecMethod::Off;
        }
        request.speculation.method.unwrap_or(self.config.method)
    }

    /// Notes what became of a draft.
    pub(crate) fn record(
        &mut self,
        request: &mut RequestState,
        _seq: SeqId,
        draft: &DraftTree,
        num_accepted: usize,
    ) {
        let nodes = 0..draft.len() as u32;
        let depth = nodes.map(|node| draft.depth(node)).max().unwrap_or(0);
        let drafter = self.custom.as_ref().map_or("custom", |d| d.name());
        let size = (draft.len(), depth);
        request
            .spec_report
            .record_draft(drafter, size, num_accepted);
    }

    /// A sequence has ended; `output` is empty where nothing is to be learnt from it.
    pub(crate) fn forget(&mut self, seq: SeqId, tenant: Option<&str>, output: &[TokenId]) {
        if let Some(custom) = &mut self.custom {
            custom.forget(seq, tenant, output);
        }
        if let Some(cache) = &mut self.draft_cache {
            cache.release(seq);
        }
    }

    /// Weights have changed.
    pub(crate) fn reset(&mut self) {
        if let Some(cache) = &mut self.draft_cache {
            cache.reset();
        }
    }
}

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// A drafter of the caller's own, for requests with [`SpecMethod::Custom`].
    pub fn set_drafter(&mut self, drafter: Box<dyn Drafter>) {
        self.speculator.custom = Some(drafter);
    }

    /// Makes drafts for the running sequences that are about to decode.
    pub(crate) fn draft(&mut self) {
        self.speculator.wants_model.clear();
        self.speculator.wants_layers.clear();
        for index in 0..self.scheduler.queues.running().len() {
            let (_, seq) = self.scheduler.queues.running()[index];
            self.draft_on_host(seq);
        }
        let queues = &self.scheduler.queues;
        if let Some(cache) = &mut self.speculator.draft_cache {
            let running = queues.running();
            cache.release_others(|seq| running.iter().any(|&(_, running)| running == seq));
        }
        self.draft_on_device(DraftSource::DraftModel);
        self.draft_on_device(DraftSource::LayerSkip);
    }

    /// The draft of one sequence, or its wish for one of a model.
    fn draft_on_host(&mut self, seq: SeqId) {
        let speculator = &mut self.speculator;
        let sequence = self.sequences.get_mut(seq);
        sequence.draft.clear();
        let request = self.requests.get(sequence.request);
        let method = speculator.method(request);
        sequence.wants_draft = method != SpecMethod::Off;
        let asked = request
            .speculation
            .num_tokens
            .or(speculator.config.num_tokens);
        let num_nodes_max = sequence
            .num_drafts_max()
            .min(speculator.config.num_tokens_max as usize)
            .min(asked.map_or(usize::MAX, |asked| asked as usize));
        if num_nodes_max == 0 {
            return;
        }
        let wanted = Wanted {
            seq,
            num_drafts: num_nodes_max,
        };
        let mut draft = std::mem::take(&mut sequence.draft);
        let context = DraftContext {
            seq,
            request: request.id,
            tenant: request.tenant.as_deref(),
            tokens: &sequence.tokens,
            num_prompt: sequence.num_prompt,
            assumed: &[],
            after: None,
            num_nodes_max,
            depth_max: num_nodes_max,
            width_max: speculator.config.width_max as usize,
        };
        match method {
            SpecMethod::Custom => {
                if let Some(custom) = &mut speculator.custom {
                    custom.draft(&context, &mut draft);
                }
            }
            SpecMethod::DraftModel => speculator.wants_model.push(wanted),
            SpecMethod::LayerSkip => speculator.wants_layers.push(wanted),
            SpecMethod::Off | SpecMethod::Auto | SpecMethod::Ngram | SpecMethod::Suffix => {}
        }
        draft.truncate(num_nodes_max);
        let vocab_size = self.config.vocab_size as u32;
        let mut nodes = draft.nodes().iter();
        if let Some(unknown) = nodes.position(|node| node.token.0 >= vocab_size) {
            draft.truncate(unknown);
        }
        sequence.draft = draft;
    }

    /// The drafts of a model, for everybody who wants one at once.
    fn draft_on_device(&mut self, source: DraftSource) {
        let speculator = &mut self.speculator;
        let (pools, batch, wanted) = match source {
            DraftSource::DraftModel => {
                let Some(cache) = &mut speculator.draft_cache else {
                    return;
                };
                let batch = &mut speculator.draft_batch;
                (DraftPools::Own(cache), batch, &speculator.wants_model)
            }
            DraftSource::LayerSkip => {
                let batch = &mut speculator.layer_batch;
                let blocks = &mut self.blocks;
                (DraftPools::Target(blocks), batch, &speculator.wants_layers)
            }
        };
        if wanted.is_empty() {
            return;
        }
        let mut run = DraftRun {
            executor: &mut self.executor,
            pools,
            batch,
            output: &mut speculator.draft_output,
            num_tokens_max: self.config.step_tokens_max,
            vocab_size: self.config.vocab_size,
        };
        if run.run(wanted, &mut self.sequences).is_err() {
            for wanted in wanted {
                let request = self.sequences.get(wanted.seq).request;
                self.requests.get_mut(request).spec_report.failures += 1;
            }
        }
    }
}
