//! Compares what came of requests with what they give alone.
//!
//! Neighbours: `oracle.rs` answers; `world.rs` has what came.

use forerun_engine::{EngineConfig, FailureCause, FinishReason, RequestId, TokenId, Vocabulary};

use crate::fake_model::FakeVocabulary;
use crate::job::{Job, Progress, SampleOutput};
use crate::oracle::{self, Answer};
use crate::world::World;

impl World {
    /// `id` ended exactly as it does alone.
    pub(crate) fn assert_oracle(&self, id: RequestId) {
        let (job, progress) = (&self.jobs[&id], &self.progress[&id]);
        let answer = oracle::answer(job, self.engine.config());
        assert_exact(id, job, progress, &answer);
    }

    /// Every request ended exactly as it does alone.
    pub(crate) fn assert_all_oracle(&self) {
        for &id in self.jobs.keys() {
            self.assert_oracle(id);
        }
    }

    /// `id` was stopped from outside: it has the beginning of its answer, and no text is lost.
    pub(crate) fn assert_cut_short(&self, id: RequestId) {
        let (job, progress) = (&self.jobs[&id], &self.progress[&id]);
        let answer = oracle::answer(job, self.engine.config());
        assert_beginning(id, job, progress, &answer);
    }

    /// Every request ended as it does alone, or was stopped from outside.
    pub(crate) fn assert_all_sound(&self, has_faults: bool) {
        for (&id, job) in &self.jobs {
            let progress = &self.progress[&id];
            let answer = oracle::answer(job, self.engine.config());
            check_prompt(id, job, progress, self.engine.config());
            let is_cut = |s: &SampleOutput| is_cut(s, job, &answer, has_faults);
            // A fault may have ended the sample that would have been the best.
            let is_chosen = !job.request.output.is_streamed() && has_faults;
            if is_chosen || progress.samples.iter().any(is_cut) {
                assert_beginning(id, job, progress, &answer);
            } else {
                assert_exact(id, job, progress, &answer);
            }
        }
    }
}

fn check_prompt(id: RequestId, job: &Job, progress: &Progress, config: &EngineConfig) {
    let usage = progress.usage.expect("it has ended");
    let num_later: usize = job.pieces.iter().map(Vec::len).sum();
    let num_prompt = job.request.prompt.len() - num_later;
    assert_eq!(usage.prompt_tokens, num_prompt, "{id}");
    for sample in &progress.samples {
        assert!(num_prompt + sample.tokens.len() <= config.seq_len_max());
    }
}

fn is_by_grammar(sample: &SampleOutput) -> bool {
    matches!(
        sample.reason,
        Some(FinishReason::Error(FailureCause::Grammar(_)))
    )
}

/// Whether something other than its own answer ended a sample.
fn is_cut(sample: &SampleOutput, job: &Job, answer: &Answer, has_faults: bool) -> bool {
    let Some(reason) = &sample.reason else {
        return false;
    };
    match reason {
        FinishReason::Aborted
        | FinishReason::Error(FailureCause::Executor(_) | FailureCause::Outside(_)) => true,
        FinishReason::Error(
            FailureCause::NotFinite { .. } | FailureCause::TokenOutOfVocabulary { .. },
        ) => has_faults,
        // One sample whose grammar is lost ends the others wherever they are.
        FinishReason::Error(FailureCause::Grammar(_)) => {
            job.request.output.width() > 1 && answer.drawn.iter().any(is_by_grammar)
        }
        _ => false,
    }
}

fn assert_exact(id: RequestId, job: &Job, progress: &Progress, answer: &Answer) {
    if answer.drawn.iter().any(is_by_grammar) {
        // It is asked for a mask before the scores of the same step have come.
        let told = &progress.prompt_scores;
        assert!(answer.prompt_scores.starts_with(told), "{id}: {job:?}");
    } else {
        assert_eq!(
            progress.prompt_scores, answer.prompt_scores,
            "{id}: {job:?}"
        );
    }
    if job.request.output.beam.is_some() && has_failed(&answer.samples) {
        // Which beam fails first depends on the batches.
        assert!(has_failed(&progress.samples), "{id}: {job:?}");
        return;
    }
    let num_answers = answer.samples.len();
    for (place, sample) in progress.samples.iter().enumerate() {
        if place < num_answers {
            assert_eq!(
                sample, &answer.samples[place],
                "{id}, sample {place}: {job:?}"
            );
        } else {
            assert_eq!(sample, &SampleOutput::default(), "there are no more beams");
        }
    }
}

fn has_failed(samples: &[SampleOutput]) -> bool {
    let failed = |s: &SampleOutput| matches!(s.reason, Some(FinishReason::Error(_)));
    !samples.is_empty() && samples.iter().all(failed)
}

fn assert_beginning(id: RequestId, job: &Job, progress: &Progress, answer: &Answer) {
    let told = &progress.prompt_scores;
    assert!(answer.prompt_scores.starts_with(told), "{id}: {job:?}");
    for (place, sample) in progress.samples.iter().enumerate() {
        let is_whole = |other: &SampleOutput| sample == other;
        let is_beginning = |other: &SampleOutput| {
            other.tokens.starts_with(&sample.tokens) && other.scores.starts_with(&sample.scores)
        };
        let candidates = if job.request.output.is_streamed() {
            &answer.samples[place..=place]
        } else {
            answer.drawn.as_slice()
        };
        let has_ended = !matches!(
            sample.reason,
            None | Some(FinishReason::Aborted | FinishReason::Error(_))
        );
        if has_ended {
            assert!(
                candidates.iter().any(is_whole),
                "{id}: {sample:?} of {job:?}"
            );
        } else {
            let is_known = sample.tokens.is_empty() || candidates.iter().any(is_beginning);
            assert!(is_known, "{id}: {sample:?} of {job:?}");
            let bytes = |&token: &TokenId| FakeVocabulary.token_bytes(token).iter();
            let text = sample.tokens.iter().flat_map(bytes);
            assert!(text.eq(&sample.text), "{id}: text and tokens end apart");
        }
    }
}
