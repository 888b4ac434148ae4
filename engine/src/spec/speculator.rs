//! Who drafts for which sequence in a step.
//!
//! Neighbours: asked by `engine.rs` before it plans; host drafters implement [`Drafter`]; told by
//! `commit_draft.rs` what became of drafts, and by `finish.rs` which sequences ended.

use super::{DraftContext, DraftTree, Drafter, SpecMethod, SpeculationConfig};
use crate::request_state::RequestState;
use crate::{Engine, EngineConfig, Executor, SeqId, TokenId, Vocabulary};

/// The drafters of an engine.
#[derive(Debug)]
pub(crate) struct Speculator {
    config: SpeculationConfig,
    custom: Option<Box<dyn Drafter>>,
}

impl Speculator {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            config: config.speculation.clone(),
            custom: None,
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
    }
}

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// A drafter of the caller's own, for requests with [`SpecMethod::Custom`].
    pub fn set_drafter(&mut self, drafter: Box<dyn Drafter>) {
        self.speculator.custom = Some(drafter);
    }

    /// Makes drafts for the running sequences that are about to decode.
    pub(crate) fn draft(&mut self) {
        let speculator = &mut self.speculator;
        for &(_, seq) in self.scheduler.queues.running() {
            let sequence = self.sequences.get_mut(seq);
            sequence.draft.clear();
            let request = self.requests.get(sequence.request);
            let method = speculator.method(request);
            sequence.wants_draft = method != SpecMethod::Off;
            let num_nodes_max = sequence
                .num_drafts_max()
                .min(speculator.config.num_tokens_max as usize)
                .min(
                    request
                        .speculation
                        .num_tokens
                        .map_or(usize::MAX, |n| n as usize),
                );
            if num_nodes_max == 0 || method == SpecMethod::Off {
                continue;
            }
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
            if let Some(custom) = &mut speculator.custom {
                custom.draft(&context, &mut draft);
            }
            draft.truncate(num_nodes_max);
            let vocab_size = self.config.vocab_size as u32;
            let mut nodes = draft.nodes().iter();
            if let Some(unknown) = nodes.position(|node| node.token.0 >= vocab_size) {
                draft.truncate(unknown);
            }
            sequence.draft = draft;
        }
    }
}
