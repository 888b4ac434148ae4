//! What a step says of its rows: verdicts that follow drafts, damaged where a fault is planted.

use forerun_engine::{SamplingParams, SamplingRow, StepBatch, StepOutput, TokenId, Verdict};

use crate::fake_model::{Scores, mix};
use crate::faults::Fault;

/// A verdict with the log-probabilities asked for.
pub(super) type Row = (Verdict, Option<Scores>);

/// Follows the verdicts along each draft. Rows that are not on the way become unreached. Returns the
/// tokens of each anchor and of the accepted drafts behind it.
pub(super) fn walk_drafts(batch: &StepBatch, rows: &mut [Row]) -> Vec<(usize, Vec<usize>)> {
    let mut accepted = Vec::new();
    for anchor in 0..rows.len() {
        let drafts = anchor + 1..anchor + 1 + batch.sampling[anchor].num_drafts as usize;
        let mut path = vec![anchor];
        for row in drafts.clone() {
            let last = path[path.len() - 1];
            let token = TokenId(batch.token_ids[batch.logit_rows[row] as usize]);
            let is_behind = batch.sampling[row].parent_row == Some(last as u32);
            if is_behind && rows[last].0 == Verdict::Token(token) {
                path.push(row);
            }
        }
        for row in drafts {
            if !path.contains(&row) {
                rows[row] = (Verdict::Unreached, None);
            }
        }
        let token = |row: &usize| batch.logit_rows[*row] as usize;
        accepted.push((token(&anchor), path[1..].iter().map(token).collect()));
    }
    accepted
}

/// The numbers of a row, as the model's chain takes them.
pub(super) fn params_of(row: &SamplingRow) -> SamplingParams {
    SamplingParams {
        temperature: row.temperature,
        seed: row.seed,
        top_k: row.top_k,
        top_p: row.top_p,
        min_p: row.min_p,
        typical_p: row.typical_p,
        repetition_penalty: row.repetition_penalty,
        presence_penalty: row.presence_penalty,
        frequency_penalty: row.frequency_penalty,
        logit_bias: Vec::new(),
    }
}

/// A verdict with the fault of its step. All rows of a sequence share one.
pub(super) fn damaged(verdict: Row, batch: &StepBatch, row: usize, fault: Option<&Fault>) -> Row {
    let seq = u64::from(batch.logit_seqs[row]);
    let is_hit = |seed: &u64| mix(*seed, seq).is_multiple_of(3);
    match fault {
        Some(Fault::NotFinite(seed)) if is_hit(seed) => (Verdict::NotFinite, None),
        Some(Fault::NoSuchToken(seed)) if is_hit(seed) && batch.sampling[row].target.is_none() => {
            (Verdict::Token(TokenId(1 << 20)), verdict.1)
        }
        _ => verdict,
    }
}

pub(super) fn push(output: &mut StepOutput, (verdict, scores): Row) {
    match scores {
        Some(scores) => {
            output.push_with_logprobs(verdict, scores.chosen, scores.rank, scores.top);
        }
        None => output.push(verdict),
    }
}
