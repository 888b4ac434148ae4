//! What surrounds `sample`: `advance`, `logits_process` and `logprobs`.

use crate::parity::random::Random;
use crate::parity::step::StepPlan;
use crate::parity::{Case, Output};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use forerun_kernels::advance::advance;
use forerun_kernels::logits_process::logits_process;
use forerun_kernels::logprobs::logprobs;
use forerun_kernels::sample::sample;
use forerun_kernels::step_inputs::{
    CarriedToken, LogprobsKind, LogprobsRow, SamplingRow, TokenCount, mask_row_words,
};

/// Around the numbers of units and of bits in a word.
const VOCABULARIES: [usize; 7] = [1, 2, 31, 33, 319, 1000, 49_152];
/// Stands for a masked token, because infinities have no difference.
const MASKED: f32 = -50.0;
/// Stands for what a row of padding holds, which is not a number and stays.
const PADDING: f32 = 60.0;
/// Rows of the step before.
const PREVIOUS_ROWS: usize = 3;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![Case::against_native(
        "advance",
        "3 of 9 tokens",
        0.0,
        |device| {
            let plan = batch(50, &parameters());
            let step = advance(plan.upload(3, device), previous(50, device));
            Output::Words(words(step))
        },
    )];
    for vocab_size in VOCABULARIES {
        for (name, rows) in [("plain", parameters()), ("edges", edges(vocab_size))] {
            let process = move |device: &Device| {
                let plan = batch(vocab_size, &rows);
                let step = advance(plan.upload(3, device), previous(vocab_size, device));
                let logits = upload(&logits(&plan), vocab_size, device);
                let data = logits_process(logits, step).into_data();
                let values: &[f32] = data.as_slice().expect("logits are f32");
                let shown = values.iter().map(|&x| match x {
                    x if x.is_nan() => PADDING,
                    x => x.max(MASKED),
                });
                Output::Floats(shown.collect())
            };
            let name = format!("V={vocab_size} {name}");
            cases.push(Case::against_native("logits_process", name, 1e-6, process));
        }
        let name = format!("V={vocab_size} tokens and ranks");
        cases.push(Case::against_native("logprobs", name, 0.0, move |device| {
            let words = scored(vocab_size, device);
            let integers = words.iter().enumerate();
            let integers = integers.filter(|(i, _)| !is_logprob(i % row_words(vocab_size)));
            Output::Words(integers.map(|(_, &word)| word).collect())
        }));
        let name = format!("V={vocab_size} logprobs");
        cases.push(Case::against_native(
            "logprobs",
            name,
            2e-6,
            move |device| {
                let words = scored(vocab_size, device);
                let floats = words.iter().enumerate();
                let floats = floats.filter(|(i, _)| is_logprob(i % row_words(vocab_size)));
                let shown = floats.map(|(_, &bits)| f32::from_bits(bits).max(MASKED));
                Output::Floats(shown.collect())
            },
        ));
    }
    cases.push(Case::against_native(
        "logits_process",
        "rows that cannot be sampled stay",
        0.0,
        |device| {
            let plan = batch(
                300,
                &[SamplingRow {
                    top_k: 4,
                    ..SamplingRow::plain(1.0, 0, 0)
                }; 4],
            );
            let mut logits = logits(&plan);
            logits[17] = f32::NAN;
            logits[300 + 299] = f32::INFINITY;
            logits[600..900].fill(f32::NEG_INFINITY);
            let step = advance(plan.upload(3, device), previous(300, device));
            Output::bits(logits_process(upload(&logits, 300, device), step))
        },
    ));
    cases
}

/// Every filter and penalty, alone and together.
fn parameters() -> Vec<SamplingRow> {
    let base = SamplingRow::plain(0.8, 1, 2);
    let penalties = SamplingRow {
        repetition_penalty: 1.3,
        presence_penalty: 0.4,
        frequency_penalty: -0.2,
        ..base
    };
    vec![
        SamplingRow::greedy(3),
        base,
        penalties,
        SamplingRow { top_k: 10, ..base },
        SamplingRow { top_p: 0.9, ..base },
        SamplingRow {
            typical_p: 0.7,
            ..base
        },
        SamplingRow {
            min_p: 0.05,
            ..base
        },
        SamplingRow {
            top_k: 40,
            top_p: 0.8,
            typical_p: 0.9,
            min_p: 0.1,
            ..penalties
        },
        SamplingRow {
            temperature: 0.0,
            ..penalties
        },
    ]
}

/// Parameters at the ends of their ranges.
fn edges(vocab_size: usize) -> Vec<SamplingRow> {
    let base = SamplingRow::plain(1.0, 1, 2);
    let v = vocab_size as u32;
    let mut rows: Vec<SamplingRow> = [1, v - 1, v, 9_999_999]
        .into_iter()
        .map(|top_k| SamplingRow { top_k, ..base })
        .collect();
    for temperature in [1e-8, 1e-5, 100.0, f32::INFINITY] {
        let row = SamplingRow {
            temperature,
            ..base
        };
        rows.push(SamplingRow { top_p: 0.6, ..row });
        rows.push(SamplingRow {
            top_p: 0.0,
            typical_p: 0.0,
            min_p: 1.0,
            ..row
        });
    }
    rows
}

/// A step with these rows; histories, biases, masks and carried tokens come and go from row to row.
fn batch(vocab_size: usize, rows: &[SamplingRow]) -> StepPlan {
    let v = vocab_size as u32;
    let mut plan = StepPlan::tokens(rows.len());
    plan.vocab_size = vocab_size;
    plan.logit_rows = (0..rows.len() as u32).collect();
    // The last row is padding.
    plan.rows_max = rows.len() + 1;
    let mut random = Random::new(31);
    plan.masks = (0..2 * mask_row_words(vocab_size))
        .map(|_| random.word() as u32 | 1)
        .collect();
    plan.history = (0..v.min(40))
        .map(|i| TokenCount {
            token: (u64::from(i) * u64::from(v) / u64::from(v.min(40))) as u32,
            output_count: i % 4,
            in_prompt: i % 3 == 0,
        })
        .collect();
    plan.bias = vec![(v - 1, f32::NEG_INFINITY), (v / 2, 1.5)];
    plan.bias.truncate(vocab_size.min(3) - 1);
    plan.previous_rows = PREVIOUS_ROWS;
    let last = plan.num_tokens() as u32 - 1;
    plan.carried = [(0, 2), (last, 0)]
        .map(|(token, row)| CarriedToken { token, row })
        .to_vec();
    let (num_history, num_biases) = (plan.history.len() as u32, plan.bias.len() as u32);
    plan.sampling = rows
        .iter()
        .enumerate()
        .map(|(i, &row)| SamplingRow {
            history: (i as u32 % 2 * num_history / 2, num_history),
            bias: if i % 3 == 0 { (0, num_biases) } else { (0, 0) },
            mask: (i % 4 == 3).then_some(i as u32 / 4 % 2),
            carried_row: (i % 2 == 0).then_some((i / 2 % PREVIOUS_ROWS) as u32),
            ..row
        })
        .collect();
    plan
}

/// Logits of a batch, with ties and masked tokens; those of padding are bad.
fn logits(plan: &StepPlan) -> Vec<f32> {
    let vocab_size = plan.vocab_size;
    let mut random = Random::new(18);
    let mut logits = random.floats(plan.sampling.len() * vocab_size, 8.0);
    for (i, logit) in logits.iter_mut().enumerate() {
        let token = i % vocab_size;
        if i / vocab_size % 3 == 1 {
            *logit = (*logit * 8.0).round() / 8.0;
        }
        if token % 11 == 3 && token + 1 != vocab_size {
            *logit = f32::NEG_INFINITY;
        }
    }
    logits.resize(plan.rows_max * vocab_size, f32::NAN);
    logits
}

fn upload(logits: &[f32], vocab_size: usize, device: &Device) -> Tensor<2> {
    let shape = [logits.len() / vocab_size, vocab_size];
    Tensor::from_data(TensorData::new(logits.to_vec(), shape), device)
}

/// Verdicts of the step before.
fn previous(vocab_size: usize, device: &Device) -> Tensor<2, Int> {
    let token = |i: usize| (i * vocab_size / PREVIOUS_ROWS) as u32;
    let verdicts: Vec<u32> = (0..PREVIOUS_ROWS).flat_map(|i| [token(i), 0]).collect();
    let data = TensorData::new(verdicts, [PREVIOUS_ROWS, 2]);
    Tensor::from_data(data, (device, DType::U32))
}

fn num_top(vocab_size: usize) -> usize {
    vocab_size.min(256)
}

fn row_words(vocab_size: usize) -> usize {
    4 + 2 * num_top(vocab_size)
}

fn is_logprob(word: usize) -> bool {
    word == 2 || word > 4 && word % 2 == 1
}

/// Logprobs of rows of both kinds, with few and many tokens, with and without a target.
fn scored(vocab_size: usize, device: &Device) -> Vec<u32> {
    let mut rows = parameters();
    for (i, row) in rows.iter_mut().enumerate() {
        let kind = if i % 2 == 0 {
            LogprobsKind::Raw
        } else {
            LogprobsKind::Processed
        };
        let num_top = [num_top(vocab_size), 0, 1, num_top(vocab_size) / 2][i % 4] as u32;
        row.logprobs = (i != 5).then_some(LogprobsRow { num_top, kind });
        row.target = (i % 3 == 2).then_some((i * 7 % vocab_size) as u32);
    }
    let plan = batch(vocab_size, &rows);
    let step = advance(plan.upload(3, device), previous(vocab_size, device));
    let mut logits = logits(&plan);
    logits[2 * vocab_size] = f32::NAN;
    let raw = upload(&logits, vocab_size, device);
    let processed = logits_process(raw.clone(), step.clone());
    let verdicts = sample(processed.clone(), step.clone());
    words(logprobs(
        raw,
        processed,
        verdicts,
        step,
        num_top(vocab_size),
    ))
}

fn words<const D: usize>(tensor: Tensor<D, Int>) -> Vec<u32> {
    let data = tensor.into_data();
    data.as_slice::<u32>().expect("these are words").to_vec()
}
