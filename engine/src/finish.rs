//! How sequences and requests end, and what is told of them.
//!
//! Neighbours: called from `commit.rs`, `beam_step.rs` and `engine.rs`; blocks go back to the pool,
//! offered to the prefix cache first.

use crate::output_log::OutputLog;
use crate::request_state::{EndedSample, RequestState};
use crate::scheduler::PlanContext;
use crate::sequence::{Draws, Sequence};
use crate::stop::StopConditions;
use crate::{Engine, Executor, FinishReason, RequestId, SeqId, StepPlan, Vocabulary};

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// Ends a sample. Samples among which the best are chosen wait for the others.
    pub(crate) fn finish(&mut self, seq: SeqId, reason: FinishReason) {
        let mut sequence = self.take(seq);
        let request = self.requests.get_mut(sequence.request);
        if let Some(log) = sequence.log.take() {
            request.ended.push(EndedSample {
                sample: sequence.sample,
                log,
                reason,
            });
        } else {
            request.usage.completion_tokens += sequence.output().len();
            sequence.finish_text(&mut self.events);
            let sample = (sequence.request, sequence.sample);
            self.events.push_sample_finished(sample, reason);
        }
        if request.live.is_empty() {
            self.close(sequence.request);
        }
    }

    /// Ends a request with everything it has: every sample that has not ended does, for `reason`.
    pub(crate) fn end_request(&mut self, id: RequestId, reason: &FinishReason) {
        let request = self.requests.get(id);
        let live = request.live.clone();
        let (num_samples, is_streamed) = (request.output.num_samples, request.output.is_streamed());
        for seq in live {
            let mut sequence = self.take(seq);
            if !is_streamed {
                continue;
            }
            let request = self.requests.get_mut(id);
            request.usage.completion_tokens += sequence.output().len();
            sequence.finish_text(&mut self.events);
            let samples = match sequence.draws {
                // It stands for all samples that have not split off.
                Draws::Fork(num_samples) => sequence.sample..num_samples,
                Draws::One | Draws::Candidates(_) => sequence.sample..sequence.sample + 1,
            };
            for sample in samples {
                self.events
                    .push_sample_finished((id, sample), reason.clone());
            }
        }
        let request = self.requests.get_mut(id);
        request.ended.clear();
        request.beam = None;
        if !is_streamed {
            for sample in 0..num_samples {
                self.events
                    .push_sample_finished((id, sample), reason.clone());
            }
        }
        self.close(id);
    }

    /// Tells the best samples, where they were kept, and the end of the request.
    fn close(&mut self, id: RequestId) {
        let mut request = self.requests.remove(id);
        let mut ended = std::mem::take(&mut request.ended);
        // Of equals the first sample, whichever ended first. Failed ones come last.
        ended.sort_by(|a, b| {
            let failed = |sample: &EndedSample| matches!(sample.reason, FinishReason::Error(_));
            let by_mean = || b.log.mean().total_cmp(&a.log.mean());
            let by_index = || a.sample.cmp(&b.sample);
            failed(a)
                .cmp(&failed(b))
                .then_with(by_mean)
                .then_with(by_index)
        });
        ended.truncate(request.output.num_samples as usize);
        for (sample, ended) in ended.into_iter().enumerate() {
            self.tell(&mut request, sample as u32, &ended.log, ended.reason);
        }
        self.end(&request);
    }

    /// Tells the hypotheses of a beam search, best first, and the end of the request.
    pub(crate) fn close_beams(&mut self, id: RequestId) {
        let mut request = self.requests.remove(id);
        let search = request.beam.take().expect("a beam request has a search");
        let num_samples = request.output.num_samples as usize;
        for (sample, hypothesis) in search.into_hypotheses().enumerate() {
            if sample < num_samples {
                let (log, reason) = hypothesis;
                self.tell(&mut request, sample as u32, &log, reason);
            }
        }
        self.end(&request);
    }

    fn end(&mut self, request: &RequestState) {
        self.events
            .push_finished(request.id, request.usage, request.spec_report.clone());
        let completion_tokens = request.usage.completion_tokens;
        self.statistics
            .record_finished(&request.facts, self.now, completion_tokens);
    }

    /// Tells a sample that was kept back, as if it came now.
    fn tell(
        &mut self,
        request: &mut RequestState,
        index: u32,
        log: &OutputLog,
        reason: FinishReason,
    ) {
        let num_prompt = request.usage.prompt_tokens;
        let mut stop = StopConditions::new(&request.stop, num_prompt, &self.config);
        let asked = request.output.logprobs;
        let num_top = asked.map_or(0, |asked| asked.num_top as usize);
        let sample = (request.id, index);
        let mut num_tokens = num_prompt;
        for (token, logprobs) in log.iter(num_top) {
            num_tokens += 1;
            stop.push(token, num_tokens, &self.vocabulary, self.events.text_mut());
            let logprobs = asked.map(|_| logprobs);
            self.events.push_token(sample, token, logprobs);
        }
        stop.finish(self.events.text_mut());
        self.events.push_sample_finished(sample, reason);
        request.usage.completion_tokens += num_tokens - num_prompt;
    }

    /// Takes a sequence out of the engine: its blocks go back, offered to the prefix cache.
    pub(crate) fn take(&mut self, seq: SeqId) -> Sequence {
        let mut sequence = self.sequences.remove(seq);
        self.scheduler.queues.forget(&sequence);
        let num_verified = sequence.num_trusted();
        self.blocks.release_published(
            &mut sequence.tables,
            &mut sequence.chain,
            &sequence.tokens,
            num_verified,
        );
        let request = self.requests.get_mut(sequence.request);
        request.live.retain(|&id| id != seq);
        let learnt = if sequence.is_distrusted {
            &[]
        } else {
            sequence.output()
        };
        self.speculator
            .forget(seq, request.tenant.as_deref(), learnt);
        sequence
    }

    /// Takes all blocks of a running sequence outside of planning.
    pub(crate) fn preempt(&mut self, seq: SeqId, plan: &mut StepPlan) {
        let mut context = PlanContext {
            sequences: &mut self.sequences,
            requests: &self.requests,
            blocks: &mut self.blocks,
            has_steps_in_flight: false,
        };
        self.scheduler.preempt(seq, &mut context, plan);
    }
}
