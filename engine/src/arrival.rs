//! How requests come in: checked, queued or parked, and promoted when what they wait for has come.
//!
//! Neighbours: `admission.rs` checks; `engine.rs` runs what is here; `finish.rs` is the other end.

use std::sync::Arc;

use crate::admission;
use crate::beam::BeamSearch;
use crate::rank::{Rank, Urgency};
use crate::request_state::RequestState;
use crate::sequence::{Draws, PromptScores, Sequence, SequenceParts};
use crate::spec::RequestEstimates;
use crate::statistics::{RequestFacts, SamplingKind};
use crate::stop::StopConditions;
use crate::{
    AdmissionError, Engine, Executor, FailureCause, FinishReason, Grammar, LogprobsKind,
    LogprobsParams, OutputParams, Request, RequestId, SchedulingPolicy, SpeculationReport,
    Timestamp, TokenId, Usage, Vocabulary, WaitReason,
};

/// What a parked request was waiting for.
#[derive(Debug)]
pub enum Promotion {
    /// Its compiled grammar.
    Grammar(Box<dyn Grammar>),
    /// Its keys and values are where they should be.
    RemoteKv,
    /// Its prompt is complete.
    InputComplete,
    /// It will not come: the request ends with this message.
    Failed(FailureCause),
}

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// Queues a request, or parks it if it waits for something. `now` is when it came.
    ///
    /// # Errors
    /// [`AdmissionError`] if it is malformed, could not run even alone, or finds the queue full;
    /// nothing of it is kept.
    pub fn add_request(
        &mut self,
        request: Request,
        now: Timestamp,
    ) -> Result<RequestId, AdmissionError> {
        request.validate(&self.config)?;
        let waiting_max = self.config.scheduling.waiting_max;
        let num_waiting = self.scheduler.queues.num_waiting() + self.scheduler.queues.num_parked();
        if num_waiting >= waiting_max {
            return Err(AdmissionError::QueueFull {
                num_waiting,
                waiting_max,
            });
        }
        Ok(self.insert(request, now))
    }

    fn insert(&mut self, mut request: Request, now: Timestamp) -> RequestId {
        let id = self.requests.next_id();
        let (output, num_prompt) = (request.output, request.prompt.len());
        let kind = match (output.beam, request.sampling.is_greedy()) {
            (Some(_), _) => SamplingKind::Beam,
            (None, true) => SamplingKind::Greedy,
            (None, false) => SamplingKind::Sampled,
        };
        let parts = self.first_sequence(id, &mut request);
        let sequence = self.sequences.insert(|name| Sequence::new(name, parts));
        match request.waits_for {
            Some(_) => self.scheduler.queues.park(sequence),
            None => self.scheduler.queues.wait(sequence),
        }
        let seq = sequence.id;
        self.requests.insert(RequestState {
            id,
            output,
            stop: request.stop,
            was_admitted: false,
            waits_for: request.waits_for,
            live: vec![seq],
            has_forked: output.width() == 1,
            num_siblings: 0,
            beam: output.beam.map(|params| BeamSearch::new(params, seq)),
            ended: Vec::new(),
            usage: Usage {
                prompt_tokens: num_prompt,
                ..Usage::default()
            },
            speculation: request.speculation,
            estimates: RequestEstimates::default(),
            spec_report: SpeculationReport::default(),
            tenant: request.cache_keys.tenant.clone(),
            facts: RequestFacts::new(now, kind, num_prompt, request.cache_keys.tenant),
        });
        id
    }

    /// The sequence that a request begins with; takes its prompt and its sampling parameters.
    fn first_sequence(&self, id: RequestId, request: &mut Request) -> SequenceParts {
        let output = request.output;
        let prompt = std::mem::take(&mut request.prompt);
        let sampling = std::mem::take(&mut request.sampling);
        let priority = match self.config.scheduling.policy {
            SchedulingPolicy::Fcfs => 0,
            SchedulingPolicy::Priority => request.priority,
        };
        // The best are chosen by what they were drawn from.
        let by_mean = LogprobsParams {
            num_top: 0,
            kind: LogprobsKind::Processed,
        };
        SequenceParts {
            request: id,
            rank: Rank {
                urgency: Urgency::Normal,
                priority,
                request: id,
                sibling: 0,
            },
            stop: StopConditions::new(&request.stop, prompt.len(), &self.config),
            prompt,
            sampling: Arc::new(sampling),
            tables: self.blocks.new_tables(),
            chain: self.blocks.new_chain(&request.cache_keys),
            draws: first_draws(&output, self.config.vocab_size),
            prompt_scores: output.prompt_logprobs.map(|num_top| PromptScores {
                num_top,
                num_told: 0,
            }),
            verification: request.speculation.verification,
            logprobs: output
                .logprobs
                .or((!output.is_streamed()).then_some(by_mean)),
            is_logged: !output.is_streamed(),
        }
    }

    /// More of the prompt of a request that is parked for [`WaitReason::StreamingInput`].
    ///
    /// # Errors
    /// [`AdmissionError`] if it is not, or if the prompt gets too long: the request stays as it was.
    pub fn append_prompt(
        &mut self,
        request: RequestId,
        tokens: &[TokenId],
    ) -> Result<(), AdmissionError> {
        admission::in_vocabulary("prompt", tokens, self.config.vocab_size)?;
        let waiting = self.requests.find_mut(request);
        let Some(state) = waiting.filter(|r| r.waits_for == Some(WaitReason::StreamingInput))
        else {
            let what = "more of its prompt";
            return Err(AdmissionError::NotParked { request, what });
        };
        let sequence = self.sequences.get_mut(state.live[0]);
        let num_prompt = sequence.tokens.len() + tokens.len();
        admission::check_length(num_prompt, &self.config)?;
        let stop = StopConditions::new(&state.stop, num_prompt, &self.config);
        sequence.append_prompt(tokens, stop);
        state.usage.prompt_tokens = num_prompt;
        state.facts.set_prompt_tokens(num_prompt);
        Ok(())
    }

    /// What a parked request was waiting for has come, or failed to. It takes the place in the queue
    /// that its arrival gives it. A request that has ended meanwhile is left alone.
    ///
    /// # Errors
    /// [`AdmissionError::NotParked`] if it waits for something else.
    pub fn promote(
        &mut self,
        request: RequestId,
        promotion: Promotion,
        now: Timestamp,
    ) -> Result<(), AdmissionError> {
        let Some(state) = self.requests.find_mut(request) else {
            return Ok(());
        };
        let (waits_for, what) = match &promotion {
            Promotion::Grammar(_) => (Some(WaitReason::Grammar), "a grammar"),
            Promotion::RemoteKv => (Some(WaitReason::RemoteKv), "remote keys and values"),
            Promotion::InputComplete => (Some(WaitReason::StreamingInput), "its prompt"),
            Promotion::Failed(_) => (state.waits_for, "anything"),
        };
        if state.waits_for.is_none() || state.waits_for != waits_for {
            return Err(AdmissionError::NotParked { request, what });
        }
        match promotion {
            Promotion::Failed(cause) => {
                self.events.begin();
                self.end_request(request, &FinishReason::Error(cause));
                return Ok(());
            }
            Promotion::Grammar(grammar) => {
                state.facts.set_structured();
                self.sequences.get_mut(state.live[0]).grammar = Some(grammar);
            }
            Promotion::RemoteKv | Promotion::InputComplete => {}
        }
        state.waits_for = None;
        state.facts.promoted(now);
        let sequence = self.sequences.get_mut(state.live[0]);
        self.scheduler.queues.wait(sequence);
        Ok(())
    }
}

/// What the row after the prompt is for.
fn first_draws(output: &OutputParams, vocab_size: usize) -> Draws {
    match (output.beam, output.width()) {
        (Some(params), _) => {
            let num_top = output.logprobs.map_or(0, |logprobs| logprobs.num_top);
            Draws::Candidates(BeamSearch::num_candidates(params, num_top, vocab_size))
        }
        (None, 1) => Draws::One,
        (None, width) => Draws::Fork(width as u32),
    }
}
