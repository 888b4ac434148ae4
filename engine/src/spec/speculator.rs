//! Who drafts for which sequence in a step, and what is learnt of it.
//!
//! Neighbours: `propose.rs` makes the drafts of a step with it; host drafters implement [`Drafter`],
//! drafts of models are made in `device_drafter.rs`; told by `commit_draft.rs` what became of drafts,
//! and by `finish.rs` which sequences ended.

use super::controller::{Bucket, Controller, DrafterId, Offer};
use super::device_drafter::Wanted;
use super::draft_cache::DraftCache;
use super::{
    DraftContext, DraftTree, Drafter, NgramDrafter, Occurrence, SpecMethod, SpeculationConfig,
    SuffixDrafter,
};
use crate::request_state::RequestState;
use crate::sequence::Sequence;
use crate::{EngineConfig, SeqId, StepBatch, StepOutput, TokenId};

/// From so many matched tokens on a suffix replaces what a draft model would say: text that is being
/// copied goes on as it did.
const LONG_MATCH_LEN: usize = 12;

/// Drafters as numbers: what is learnt is kept apart by them.
pub(super) mod drafter_id {
    use super::DrafterId;

    pub(crate) const NGRAM: DrafterId = 0;
    pub(crate) const SUFFIX: DrafterId = 1;
    pub(crate) const GRAMMAR: DrafterId = 2;
    pub(crate) const DRAFT_MODEL: DrafterId = 3;
    pub(crate) const LAYER_SKIP: DrafterId = 4;
    pub(crate) const CUSTOM: DrafterId = 5;
}

/// The drafters of an engine.
#[derive(Debug)]
pub(crate) struct Speculator {
    pub(super) config: SpeculationConfig,
    ngram: NgramDrafter,
    suffix: SuffixDrafter,
    pub(super) custom: Option<Box<dyn Drafter>>,
    pub(super) controller: Controller,
    /// The draft model's memory, if there is one.
    pub(crate) draft_cache: Option<DraftCache>,
    /// Of the draft model.
    pub(super) draft_batch: StepBatch,
    /// Of the target's first layers.
    pub(super) layer_batch: StepBatch,
    pub(super) draft_output: StepOutput,
    pub(super) wants_model: Vec<Wanted>,
    pub(super) wants_layers: Vec<Wanted>,
    /// Sequences whose drafts the controller may cut, and how much it keeps of each.
    pub(super) offered: Vec<SeqId>,
    pub(super) num_kept: Vec<usize>,
    mask_words: usize,
}

/// A draft of the host, and who made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) drafter: DrafterId,
    pub(super) match_len: usize,
}

impl Speculator {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let spec = &config.speculation;
        let draft_model = spec.draft_model.as_ref();
        let num_draft_groups = draft_model.map_or(0, |model| model.groups.len());
        let (len_min, len_max) = (spec.ngram_len_min as usize, spec.ngram_len_max as usize);
        Self {
            config: spec.clone(),
            ngram: NgramDrafter::new(len_min, len_max, Occurrence::First),
            suffix: SuffixDrafter::new(),
            custom: None,
            controller: Controller::default(),
            draft_cache: draft_model.map(|model| DraftCache::new(config, model)),
            draft_batch: StepBatch::new(num_draft_groups, config.vocab_size),
            layer_batch: StepBatch::new(config.groups.len(), config.vocab_size),
            draft_output: StepOutput::default(),
            wants_model: Vec::new(),
            wants_layers: Vec::new(),
            offered: Vec::new(),
            num_kept: Vec::new(),
            mask_words: config.vocab_size.div_ceil(u32::BITS as usize),
        }
    }

    /// Who drafts for a request.
    pub(super) fn method(&self, request: &RequestState) -> SpecMethod {
        if request.beam.is_some() {
            return SpecMethod::Off;
        }
        request.speculation.method.unwrap_or(self.config.method)
    }

    /// The draft that `method` makes on the host. `None` where a model is to draft.
    pub(super) fn draft_on_host(
        &mut self,
        method: SpecMethod,
        sequence: &Sequence,
        context: &DraftContext<'_>,
        draft: &mut DraftTree,
    ) -> Option<Made> {
        if method == SpecMethod::Custom {
            let custom = self.custom.as_mut();
            let match_len = custom.map_or(0, |custom| custom.draft(context, draft));
            let drafter = drafter_id::CUSTOM;
            return Some(Made { drafter, match_len });
        }
        let forced = match &sequence.grammar {
            Some(grammar) => grammar.forced(context.depth_max, self.mask_words),
            None => Vec::new(),
        };
        let after = draft.push_chain(None, forced.iter().copied());
        let context = DraftContext {
            assumed: &forced,
            after,
            ..*context
        };
        let (drafter, match_len) = match method {
            SpecMethod::Ngram => (drafter_id::NGRAM, self.ngram.draft(&context, draft)),
            _ => (drafter_id::SUFFIX, self.suffix.draft(&context, draft)),
        };
        if !forced.is_empty() {
            let drafter = drafter_id::GRAMMAR;
            return Some(Made { drafter, match_len });
        }
        let has_model = matches!(method, SpecMethod::DraftModel | SpecMethod::LayerSkip)
            || (method == SpecMethod::Auto && self.draft_cache.is_some());
        if has_model && match_len < LONG_MATCH_LEN {
            // A model knows more than a short match.
            draft.clear();
            return None;
        }
        Some(Made { drafter, match_len })
    }

    /// What is known of drafts for a sequence.
    pub(super) fn offer(made: Made, sequence: &Sequence, request: &RequestState) -> Offer {
        Offer {
            drafter: made.drafter,
            match_len: made.match_len,
            bucket: Bucket {
                is_sampled: !sequence.sampling.is_greedy(),
                is_structured: sequence.grammar.is_some(),
                len_class: Bucket::len_class(sequence.tokens.len()),
                task: request.speculation.task,
            },
        }
    }

    /// What a drafter is called in reports.
    pub(crate) fn name(&self, drafter: DrafterId) -> &'static str {
        match drafter {
            drafter_id::NGRAM => "ngram",
            drafter_id::SUFFIX => "suffix",
            drafter_id::GRAMMAR => "grammar",
            drafter_id::DRAFT_MODEL => "draft-model",
            drafter_id::LAYER_SKIP => "layer-skip",
            _ => self
                .custom
                .as_ref()
                .map_or("custom", |custom| custom.name()),
        }
    }

    /// Whether models were asked for drafts in this step.
    pub(crate) fn has_model_drafts(&self) -> bool {
        !self.wants_model.is_empty() || !self.wants_layers.is_empty()
    }

    /// A pass without prompts and without drafts of models took so long.
    pub(crate) fn record_pass(&mut self, num_rows: usize, duration_us: u64) {
        self.controller.record_pass(num_rows, duration_us);
    }

    /// A sequence has ended; `output` is empty where nothing is to be learnt from it.
    pub(crate) fn forget(&mut self, seq: SeqId, tenant: Option<&str>, output: &[TokenId]) {
        if let Some(custom) = &mut self.custom {
            custom.forget(seq, tenant, output);
        }
        self.ngram.forget(seq, tenant, output);
        self.suffix.forget(seq, tenant, output);
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
