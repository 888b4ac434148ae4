//! `sample`.

use crate::parity::random::Random;
use crate::parity::step::StepPlan;
use crate::parity::{Case, Output};
use burn::tensor::{Device, Int, Tensor, TensorData};
use forerun_kernels::sample::sample;
use forerun_kernels::step_inputs::SamplingRow;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for vocab_size in [1, 2, 7, 255, 257, 5003, 49_152] {
        for temperature in [0.0, 0.7, 5.0] {
            let name = format!("V={vocab_size} temperature={temperature}");
            cases.push(Case::against_native("sample", name, 0.0, move |device| {
                let num_rows = 5;
                let mut logits = Random::new(18).floats(num_rows * vocab_size, 8.0);
                // Masked tokens, but for the last.
                for (i, logit) in logits.iter_mut().enumerate() {
                    if i % vocab_size % 11 == 3 && i % vocab_size + 1 != vocab_size {
                        *logit = f32::NEG_INFINITY;
                    }
                }
                draw(&logits, vocab_size, temperature, device)
            }));
        }
    }
    cases.push(Case::against_native(
        "sample",
        "ties go to the lowest id",
        0.0,
        |device| {
            let mut logits = vec![1.0; 3 * 600];
            logits[600 + 599] = 2.0;
            logits[600 + 300] = 2.0;
            draw(&logits, 600, 0.0, device)
        },
    ));
    cases.push(Case::against_native(
        "sample",
        "bad rows are reported",
        0.0,
        |device| {
            let vocab_size = 300;
            let mut logits = Random::new(19).floats(5 * vocab_size, 1.0);
            logits[17] = f32::NAN;
            logits[vocab_size + 299] = f32::INFINITY;
            logits[2 * vocab_size..3 * vocab_size].fill(f32::NEG_INFINITY);
            logits[3 * vocab_size + 5] = f32::NEG_INFINITY;
            draw(&logits, vocab_size, 1.0, device)
        },
    ));
    cases
}

/// Samples rows, with two rows of padding after them.
fn draw(logits: &[f32], vocab_size: usize, temperature: f32, device: &Device) -> Output {
    let num_rows = logits.len() / vocab_size;
    let mut plan = StepPlan::tokens(num_rows);
    plan.rows_max = num_rows + 2;
    plan.logit_rows = (0..num_rows as u32).collect();
    plan.sampling = (0..num_rows as u32)
        .map(|row| {
            let seed = 0x0123_4567_89ab_cdef ^ u64::from(row) << 33;
            SamplingRow::plain(temperature, seed, 1000 + 77 * row)
        })
        .collect();
    let mut padded = logits.to_vec();
    padded.resize(plan.rows_max * vocab_size, f32::NAN);
    let logits = TensorData::new(padded, [plan.rows_max, vocab_size]);
    let verdicts: Tensor<2, Int> =
        sample(Tensor::from_data(logits, device), plan.upload(20, device));
    let data = verdicts.into_data();
    Output::Words(data.as_slice::<u32>().expect("verdicts are u32").to_vec())
}
