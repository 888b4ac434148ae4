//! The drafts of a step, before it is planned: asked of every drafter, cut to what pays.
//!
//! Neighbours: called by `engine.rs`; `speculator.rs` has the drafters, `controller/` decides.

use super::controller::{Fate, Shadow};
use super::device_drafter::{DraftPools, DraftRun, Wanted};
use super::speculator::{Made, Speculator, drafter_id};
use super::{DraftContext, DraftTree, Drafter, SpecMethod};
use crate::sequence::Overlap;
use crate::{DraftSource, Engine, Executor, SeqId, TokenId, Vocabulary};

/// A sequence that was not drafted for so many steps overlaps its steps like any other, ..
const STEPS_UNDRAFTED_MAX: u32 = 8;
/// .. but for one step in so many, in which the host sees what a draft would be.
const STEPS_BETWEEN_LOOKS: u32 = 16;

/// What a sequence is to have in a step.
#[derive(Clone, Copy, Debug)]
struct Asked {
    method: SpecMethod,
    /// The user said how many.
    is_fixed: bool,
    num_nodes_max: usize,
}

/// Why a request for drafts of a model has none.
const NO_MODEL: &str = "no such model is loaded to draft with";
/// Why a beam search has none.
const NO_BEAMS: &str = "beam search runs without drafts";

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// A drafter of the caller's own, for requests with [`SpecMethod::Custom`].
    pub fn set_drafter(&mut self, drafter: Box<dyn Drafter>) {
        self.speculator.custom = Some(drafter);
    }

    /// Makes drafts for the running sequences that are about to decode.
    pub(crate) fn draft(&mut self) {
        let speculator = &mut self.speculator;
        speculator.wants_model.clear();
        speculator.wants_layers.clear();
        speculator.offered.clear();
        speculator.controller.begin();
        let num_running = self.scheduler.queues.running().len();
        for index in 0..num_running {
            let (_, seq) = self.scheduler.queues.running()[index];
            self.draft_for(seq);
        }
        self.cut_drafts(num_running);
        let queues = &self.scheduler.queues;
        if let Some(cache) = &mut self.speculator.draft_cache {
            let running = queues.running();
            cache.release_others(|seq| running.iter().any(|&(_, running)| running == seq));
        }
        self.draft_on_device(DraftSource::DraftModel);
        self.draft_on_device(DraftSource::LayerSkip);
    }

    /// Who drafts for a sequence in this step, and what bounds the draft. `None` where nobody does.
    fn begin_draft(&mut self, seq: SeqId) -> Option<Asked> {
        let speculator = &mut self.speculator;
        let sequence = self.sequences.get_mut(seq);
        sequence.draft.clear();
        let request = self.requests.get_mut(sequence.request);
        let method = speculator.method(request);
        if method == SpecMethod::Off {
            sequence.overlap = Overlap::Allowed;
            if request.beam.is_some() && speculator.config.method != SpecMethod::Off {
                request.spec_report.refused = Some(NO_BEAMS);
            }
            return None;
        }
        sequence.num_steps_undrafted += 1;
        let num_steps = sequence.num_steps_undrafted;
        let is_looked_at = num_steps.is_multiple_of(STEPS_BETWEEN_LOOKS);
        sequence.overlap = if num_steps < STEPS_UNDRAFTED_MAX || is_looked_at {
            Overlap::AwaitsHost
        } else {
            Overlap::Allowed
        };
        if let Some(shadow) = &sequence.shadow
            && let Fate::Judged(num_true, is_refuted) = shadow.judge(&sequence.tokens)
        {
            let offer = shadow.offer;
            let estimates = &mut request.estimates;
            (speculator.controller).learn(offer, estimates, num_true, is_refuted);
            sequence.shadow = None;
        }
        let config = &speculator.config;
        let fixed = request.speculation.num_tokens.or(config.num_tokens);
        let num_nodes_max = sequence
            .num_drafts_max()
            .min(config.num_tokens_max as usize)
            .min(fixed.map_or(usize::MAX, |fixed| fixed as usize));
        (num_nodes_max > 0).then_some(Asked {
            method,
            is_fixed: fixed.is_some(),
            num_nodes_max,
        })
    }

    /// The draft of one sequence, or its wish for one of a model.
    fn draft_for(&mut self, seq: SeqId) {
        let Some(asked) = self.begin_draft(seq) else {
            return;
        };
        let Asked {
            method,
            num_nodes_max,
            ..
        } = asked;
        let speculator = &mut self.speculator;
        let sequence = self.sequences.get_mut(seq);
        let request = self.requests.get_mut(sequence.request);
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
        let made = speculator.draft_on_host(method, sequence, &context, &mut draft);
        let Some(made) = made else {
            sequence.draft = draft;
            return self.want_model(seq, asked);
        };
        clip(&mut draft, num_nodes_max, self.config.vocab_size);
        sequence.drafter = made.drafter;
        let offer = Speculator::offer(made, sequence, request);
        if sequence.shadow.is_none() && !draft.is_empty() {
            let guesses = main_path(&draft);
            sequence.shadow = Some(Shadow::new(offer, guesses, sequence.tokens.len()));
        }
        if !asked.is_fixed && method != SpecMethod::Custom && !draft.is_empty() {
            let number = speculator.offered.len() as u32;
            speculator.offered.push(seq);
            let nodes = (0..draft.len() as u32).map(|node| (draft.depth(node), rank(&draft, node)));
            (speculator.controller).offer(number, offer, &request.estimates, nodes);
        }
        sequence.draft = draft;
    }

    /// Cuts the drafts of the host to what pays.
    fn cut_drafts(&mut self, num_running: usize) {
        let speculator = &mut self.speculator;
        let num_offered = speculator.offered.len();
        if num_offered == 0 {
            return;
        }
        speculator.num_kept.resize(num_offered, 0);
        (speculator.controller).decide(num_running, &mut speculator.num_kept[..num_offered]);
        for (&seq, &num_kept) in speculator.offered.iter().zip(&speculator.num_kept) {
            self.sequences.get_mut(seq).draft.truncate(num_kept);
        }
    }

    /// Notes that a model is to draft for a sequence, if that is expected to pay.
    fn want_model(&mut self, seq: SeqId, asked: Asked) {
        let Asked {
            method,
            is_fixed,
            num_nodes_max,
        } = asked;
        let speculator = &mut self.speculator;
        let spec = &speculator.config;
        let (drafter, cost) = if method == SpecMethod::LayerSkip {
            (drafter_id::LAYER_SKIP, spec.layer_skip_cost)
        } else {
            let cost = spec.draft_model.as_ref().map(|model| model.cost);
            (drafter_id::DRAFT_MODEL, cost)
        };
        let sequence = self.sequences.get_mut(seq);
        let Some(cost) = cost else {
            let request = self.requests.get_mut(sequence.request);
            request.spec_report.refused = Some(NO_MODEL);
            return;
        };
        sequence.drafter = drafter;
        let request = self.requests.get_mut(sequence.request);
        let made = Made {
            drafter,
            match_len: 0,
        };
        let offer = Speculator::offer(made, sequence, request);
        let num_drafts = if is_fixed {
            num_nodes_max
        } else {
            speculator.controller.num_model_drafts(
                offer,
                &mut request.estimates,
                num_nodes_max,
                f64::from(cost) / 1000.0,
            )
        };
        if num_drafts > 0 {
            let wanted = Wanted { seq, num_drafts };
            match method {
                SpecMethod::LayerSkip => speculator.wants_layers.push(wanted),
                _ => speculator.wants_model.push(wanted),
            }
        }
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
        let result = run.run(wanted, &mut self.sequences);
        for wanted in wanted {
            let sequence = self.sequences.get_mut(wanted.seq);
            let request = self.requests.get_mut(sequence.request);
            if result.is_err() {
                request.spec_report.failures += 1;
            } else if sequence.shadow.is_none() && !sequence.draft.is_empty() {
                let made = Made {
                    drafter: sequence.drafter,
                    match_len: 0,
                };
                let offer = Speculator::offer(made, sequence, request);
                let guesses = main_path(&sequence.draft);
                sequence.shadow = Some(Shadow::new(offer, guesses, sequence.tokens.len()));
            }
        }
    }
}

/// Cuts a draft to its first nodes, and before the first token that does not exist.
fn clip(draft: &mut DraftTree, num_nodes_max: usize, vocab_size: usize) {
    draft.truncate(num_nodes_max);
    let mut nodes = draft.nodes().iter();
    if let Some(unknown) = nodes.position(|node| node.token.0 as usize >= vocab_size) {
        draft.truncate(unknown);
    }
}

/// The first child of the first child, and so on.
fn main_path(draft: &DraftTree) -> Vec<TokenId> {
    let mut path = Vec::new();
    let mut node = draft.children(None).next();
    while let Some(at) = node {
        path.push(draft.nodes()[at as usize].token);
        node = draft.children(Some(at)).next();
    }
    path
}

/// Siblings before a node.
fn rank(draft: &DraftTree, node: u32) -> usize {
    let parent = draft.nodes()[node as usize].parent;
    draft
        .children(parent)
        .take_while(|&sibling| sibling < node)
        .count()
}
