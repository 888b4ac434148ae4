use std::num::NonZeroUsize;

use super::*;
use crate::simd::sample_values;
use crate::step_inputs::{StepArrays, StepCapacity, StepInputs};

fn packed(rows: &[SamplingRow], vocab_size: usize) -> StepInputs {
    let mut inputs = StepInputs::new(StepCapacity {
        tokens: 1,
        seqs: 1,
        logit_rows: rows.len(),
        ..StepCapacity::default()
    });
    let step = StepArrays {
        token_ids: &[0],
        positions: &[0],
        seq_of_token: &[0],
        query_offsets: &[0, 1],
        context_lens: &[1],
        logit_rows: &vec![0; rows.len()],
        sampling: rows,
        ..StepArrays::default()
    };
    inputs.fill(&step, vocab_size).unwrap();
    inputs
}

fn run(
    isa: Isa,
    [raw, processed]: [&[f32]; 2],
    verdicts: &[u32],
    rows: &[SamplingRow],
    num_top: usize,
) -> Vec<u32> {
    let vocab_size = raw.len() / rows.len();
    let step = packed(rows, vocab_size);
    let row_words = ROW_WORDS + 2 * num_top;
    let mut out = vec![0; rows.len() * row_words];
    let inputs = Inputs {
        raw,
        processed,
        verdicts,
        vocab_size,
        step: StepView::new(step.words()),
    };
    let threads = Threads::new(NonZeroUsize::new(3).unwrap());
    logprobs_on(isa, &threads, &inputs, row_words, &mut out);
    out
}

fn wanting(num_top: u32, kind: LogprobsKind, row: SamplingRow) -> SamplingRow {
    SamplingRow {
        logprobs: Some(LogprobsRow { num_top, kind }),
        ..row
    }
}

fn close(found: u32, expected: f64) {
    let found = f64::from(f32::from_bits(found));
    let error = (found - expected).abs();
    assert!(
        found.to_bits() == expected.to_bits() || error <= 2e-6_f64.max(1e-6 * expected.abs()),
        "{found} {expected}"
    );
}

#[test]
fn logprobs_ranks_and_order_are_those_of_the_definition() {
    for vocab_size in [1, 2, 31, 33, 319, 1000, 49_152] {
        let mut raw = sample_values(7 + vocab_size as u64, 3 * vocab_size);
        // Quarters, so that there are ties.
        for x in &mut raw {
            *x = (*x * 40.0).round() / 4.0;
        }
        let mut processed = raw.clone();
        for (i, x) in processed.iter_mut().enumerate() {
            if i % 3 == 1 && i % vocab_size != 0 {
                *x = f32::NEG_INFINITY;
            }
        }
        let num_top = 256.min(vocab_size);
        let last = vocab_size as u32 - 1;
        let rows = [
            wanting(
                num_top as u32,
                LogprobsKind::Raw,
                SamplingRow::plain(0.3, 0, 0),
            ),
            wanting(
                num_top as u32 / 2,
                LogprobsKind::Processed,
                SamplingRow::plain(0.3, 0, 0),
            ),
            SamplingRow {
                target: Some(last),
                ..wanting(1, LogprobsKind::Processed, SamplingRow::greedy(0))
            },
        ];
        let verdicts = [last / 2, 0, last, 0, 0, 0];
        for isa in Isa::all() {
            let out = run(isa, [&raw, &processed], &verdicts, &rows, num_top);
            let row_words = ROW_WORDS + 2 * num_top;
            for (i, out) in out.chunks_exact(row_words).enumerate() {
                let from = if i == 0 { &raw } else { &processed };
                let logits = &from[i * vocab_size..][..vocab_size];
                let expected = reference::log_softmax(logits, if i == 1 { 0.3 } else { 1.0 });
                let order = reference::order(logits);
                assert_eq!(out[..2], verdicts[2 * i..2 * i + 2]);
                let chosen = if i == 2 { last } else { out[0] };
                close(out[2], expected[chosen as usize]);
                assert_eq!(order[out[3] as usize - 1], chosen);
                let wanted = rows[i].logprobs.unwrap().num_top as usize;
                let pairs: Vec<&[u32]> = out[ROW_WORDS..].chunks_exact(2).collect();
                for (pair, &token) in pairs[..wanted].iter().zip(&order) {
                    assert_eq!(pair[0], token);
                    close(pair[1], expected[token as usize]);
                }
                assert!(pairs[wanted..].concat().iter().all(|&word| word == 0));
            }
        }
    }
}

#[test]
fn rows_that_ask_for_nothing_or_have_no_token_have_zeros_after_their_verdict() {
    let raw = sample_values(3, 40);
    let mut bad = raw.clone();
    bad[25] = f32::NAN;
    let rows = [
        SamplingRow::greedy(1),
        wanting(3, LogprobsKind::Raw, SamplingRow::greedy(1)),
    ];
    let out = run(Isa::detect(), [&bad, &bad], &[7, 0, 0, 1], &rows, 3);
    assert_eq!(out[..10], [7, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(out[10..], [0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}
