//! `rope`, `glu` and `gather_rows`.

use crate::parity::random::Random;
use crate::parity::step::StepPlan;
use crate::parity::{Case, Output};
use burn::tensor::{Device, Tensor, TensorData};
use forerun_kernels::gather_rows::gather_rows;
use forerun_kernels::glu::glu;
use forerun_kernels::rope::rope;
use forerun_kernels::step_inputs::SamplingRow;
use forerun_kernels::{Activation, RopePairing, RopeSpec};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = rope_cases();
    cases.extend(glu_cases());
    cases.extend(gather_cases());
    cases
}

fn matrix(rows: usize, columns: usize, seed: u64, device: &Device) -> Tensor<2> {
    let values = Random::new(seed).floats(rows * columns, 2.0);
    Tensor::from_data(TensorData::new(values, [rows, columns]), device)
}

/// Heads, rotated heads, head dim, rotary dim.
const ROPE_SHAPES: [(usize, usize, usize, usize); 4] = [
    (1, 1, 2, 2),
    (7, 5, 10, 6),
    (15, 12, 64, 64),
    (6, 5, 256, 256),
];

fn rope_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (num_heads, num_rotated, head_dim, rotary_dim) in ROPE_SHAPES {
        for (pairing, magnitude) in [(RopePairing::Halves, 1.0), (RopePairing::Interleaved, 1.3)] {
            let spec = RopeSpec {
                num_heads,
                num_rotated,
                head_dim,
                rotary_dim,
                pairing,
                magnitude,
            };
            let name =
                format!("heads={num_rotated}/{num_heads} D={rotary_dim}/{head_dim} {pairing:?}");
            cases.push(Case::against_native("rope", name, 1e-5, move |device| {
                let mut plan = StepPlan::tokens(7);
                plan.tokens_max = 9;
                plan.positions = Some(vec![0, 1, 2, 511, 8191, 65_537, 131_071]);
                let x = matrix(plan.tokens_max, num_heads * head_dim, 4, device);
                let rotary = rotary_dim as f32;
                let inv_freq: Vec<f32> = (0..rotary_dim / 2)
                    .map(|i| 10_000f32.powf(-2.0 * i as f32 / rotary))
                    .collect();
                let inv_freq = TensorData::new(inv_freq, [rotary_dim / 2]);
                let inv_freq = Tensor::from_data(inv_freq, device);
                Output::floats(rope(x, inv_freq, plan.upload(5, device), spec))
            }));
        }
    }
    cases
}

fn glu_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (num_tokens, d_ff) in [(1, 1), (5, 37), (3, 1536), (2, 2049)] {
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let name = format!("T={num_tokens} F={d_ff} {activation:?}");
            cases.push(Case::against_native("glu", name, 1e-5, move |device| {
                Output::floats(glu(matrix(num_tokens, 2 * d_ff, 6, device), activation))
            }));
        }
    }
    for activation in [Activation::Silu, Activation::GeluTanh] {
        let name = format!("gates from -200 to 200, {activation:?}");
        cases.push(Case::against_native("glu", name, 1e-5, move |device| {
            let gates = (-50..=50).map(|i| 4.0 * i as f32);
            let row: Vec<f32> = gates.chain((0..101).map(|_| 1.0)).collect();
            let x = Tensor::from_data(TensorData::new(row, [1, 202]), device);
            Output::floats(glu(x, activation))
        }));
    }
    cases
}

fn gather_cases() -> Vec<Case> {
    let shapes = [
        (1, 1, vec![0]),
        (9, 13, vec![8, 0, 3, 3]),
        (5, 577, vec![4, 2]),
    ];
    shapes
        .into_iter()
        .map(|(num_tokens, columns, rows)| {
            let name = format!("T={num_tokens} M={columns} rows={rows:?}");
            Case::against_native("gather_rows", name, 0.0, move |device| {
                let mut plan = StepPlan::tokens(num_tokens);
                plan.sampling = vec![SamplingRow::greedy(0); rows.len()];
                plan.logit_rows.clone_from(&rows);
                // The last two rows are padding.
                plan.rows_max = rows.len() + 2;
                let x = matrix(num_tokens, columns, 7, device);
                Output::bits(gather_rows(x, plan.upload(8, device), plan.rows_max))
            })
        })
        .collect()
}
