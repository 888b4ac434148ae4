//! `rms_norm` and `add_rms_norm`.

use crate::parity::random::Random;
use crate::parity::{Case, Output};
use burn::tensor::{Device, Tensor, TensorData};
use forerun_kernels::RmsNormSpec;
use forerun_kernels::rms_norm::{add_rms_norm, rms_norm};

/// Tokens, groups, normalised groups, values in a group.
const SHAPES: [(usize, usize, usize, usize); 9] = [
    (1, 1, 1, 1),
    (3, 1, 1, 37),
    (7, 5, 3, 33),
    (2, 1, 1, 576),
    (5, 1, 1, 640),
    (4, 9, 6, 64),
    (2, 6, 5, 256),
    (1, 1, 1, 1031),
    // More cubes than one axis of the grid takes.
    (21_850, 3, 2, 5),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (num_tokens, num_groups, num_normed, group_len) in SHAPES {
        let spec = RmsNormSpec {
            num_groups,
            num_normed,
            group_len,
            epsilon: 1e-5,
        };
        let name = format!("T={num_tokens} groups={num_normed}/{num_groups} len={group_len}");
        cases.push(Case::against_native(
            "rms_norm",
            name.clone(),
            1e-5,
            move |device| {
                let (x, gamma) = inputs(num_tokens, &spec, 1, device);
                Output::floats(rms_norm(x, gamma, spec))
            },
        ));
        cases.push(Case::against_native(
            "add_rms_norm",
            name,
            1e-5,
            move |device| {
                let (x, gamma) = inputs(num_tokens, &spec, 2, device);
                let (residual, _) = inputs(num_tokens, &spec, 3, device);
                let (sum, normed) = add_rms_norm(residual, x, gamma, spec);
                Output::floats(sum).and(Output::floats(normed))
            },
        ));
    }
    cases
}

fn inputs(
    num_tokens: usize,
    spec: &RmsNormSpec,
    seed: u64,
    device: &Device,
) -> (Tensor<2>, Tensor<1>) {
    let mut random = Random::new(seed);
    let row_len = spec.num_groups * spec.group_len;
    let gamma_len = spec.num_normed * spec.group_len;
    let x = TensorData::new(
        random.floats(num_tokens * row_len, 3.0),
        [num_tokens, row_len],
    );
    let gamma = TensorData::new(random.floats(gamma_len, 2.0), [gamma_len]);
    (
        Tensor::from_data(x, device),
        Tensor::from_data(gamma, device),
    )
}
