//! Beam search on full logits, written from its documentation: every beam is a list of tokens, every
//! step sorts all continuations.
//!
//! Neighbours: part of `oracle.rs`.

use forerun_engine::{BeamParams, EngineConfig, FinishReason, TokenId};

use crate::fake_model::{Scores, log_softmax, scores};
use crate::job::{Job, SampleOutput};
use crate::oracle::{Ending, Walk};

#[derive(Clone)]
struct Beam<'a> {
    walk: Walk<'a>,
    ending: Ending<'a>,
    scores: Vec<Option<Scores>>,
    sum: f64,
}

struct Ended {
    output: SampleOutput,
    score: f64,
}

/// The hypotheses of a beam search, best first.
pub(crate) fn search(job: &Job, params: BeamParams, config: &EngineConfig) -> Vec<SampleOutput> {
    let width = params.width as usize;
    let num_prompt = job.request.prompt.len();
    let by_request = job
        .request
        .stop
        .max_tokens
        .map_or(usize::MAX, |n| n as usize);
    let num_generated_max = by_request.min(config.seq_len_max() - num_prompt);
    let mut beams = vec![Beam {
        walk: Walk::new(config, &job.request.prompt),
        ending: Ending::new(job, config),
        scores: Vec::new(),
        sum: 0.0,
    }];
    let mut ended: Vec<Ended> = Vec::new();
    let penalty = f64::from(params.length_penalty);
    let score = |sum: f64, len: usize| sum / (len as f64).powf(penalty);
    for num_generated in 1.. {
        let mut next: Vec<Beam<'_>> = Vec::new();
        let offers = match offers(job, &mut beams, width) {
            Ok(offers) => offers,
            Err(reason) => return failed(job, &reason),
        };
        for (beam, token, row, sum) in offers {
            if next.len() == width {
                break;
            }
            let mut beam = beams[beam].clone();
            beam.walk.push(token);
            beam.scores.push(Some(row));
            beam.sum = sum;
            match beam.ending.push(token, num_generated) {
                None => next.push(beam),
                Some(reason @ FinishReason::Error(_)) => return failed(job, &reason),
                Some(reason) => ended.push(Ended {
                    score: score(sum, num_generated),
                    output: output(beam, num_prompt, reason),
                }),
            }
        }
        ended.sort_by(|a, b| b.score.total_cmp(&a.score));
        ended.truncate(width);
        beams = next;
        let best_sum = beams.iter().map(|beam| beam.sum).fold(f64::MIN, f64::max);
        let is_full = ended.len() == width;
        let reachable = (num_generated + 1..=num_generated_max).map(|len| score(best_sum, len));
        let best_to_come = reachable.fold(f64::NEG_INFINITY, f64::max);
        if beams.is_empty()
            || is_full && (params.early_stopping || best_to_come < ended[width - 1].score)
        {
            break;
        }
    }
    ended.into_iter().map(|ended| ended.output).collect()
}

/// All continuations to be looked at, best first: beam, token, its row, the whole's log-probability.
fn offers(
    job: &Job,
    beams: &mut [Beam<'_>],
    width: usize,
) -> Result<Vec<(usize, TokenId, Scores, f64)>, FinishReason> {
    let num_top = job
        .request
        .output
        .logprobs
        .map_or(0, |asked| asked.num_top as usize);
    let mut offers = Vec::new();
    for (index, beam) in beams.iter_mut().enumerate() {
        let (_, logits) = beam.ending.process(&beam.walk)?;
        let logprobs = log_softmax(&logits);
        let mut order: Vec<_> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logprobs[b].total_cmp(&logprobs[a]));
        for (place, &token) in order.iter().take(2 * width).enumerate() {
            if logprobs[token] > f32::NEG_INFINITY {
                let token = TokenId(token as u32);
                let row = Scores {
                    rank: place as u32 + 1,
                    ..scores(&logits, token, num_top)
                };
                let sum = beam.sum + f64::from(row.chosen.logprob);
                offers.push((index, token, row, sum));
            }
        }
    }
    offers.sort_by(|a, b| b.3.total_cmp(&a.3));
    Ok(offers)
}

fn output(beam: Beam<'_>, num_prompt: usize, reason: FinishReason) -> SampleOutput {
    SampleOutput {
        tokens: beam.walk.tokens[num_prompt..].to_vec(),
        text: beam.ending.text,
        scores: beam.scores,
        reason: Some(reason),
    }
}

/// A failure of one beam is the whole request's.
fn failed(job: &Job, reason: &FinishReason) -> Vec<SampleOutput> {
    let sample = SampleOutput {
        reason: Some(reason.clone()),
        ..SampleOutput::default()
    };
    vec![sample; job.request.output.num_samples as usize]
}
