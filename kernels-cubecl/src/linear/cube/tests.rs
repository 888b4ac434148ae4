//! Both kernels against a product in f64 over every format, at sizes around the tiles' edges.

use super::testing::{Random, assert_close, devices, read, tensor, words};
use super::{FEW_ROWS_MAX, launch};
use crate::packed::dequantize::dequantize_row;
use crate::packed::device::pack;
use crate::packed::format::WeightFormat;
use crate::spec::{ActivationMode, MatrixSpec, PartSpec};
use cubecl::Device;

struct Weights {
    matrix: MatrixSpec,
    packed: Vec<Vec<u32>>,
    rows: Vec<Vec<f32>>,
}

fn weights(random: &mut Random, d_input: usize, parts: &[(WeightFormat, usize)]) -> Weights {
    let mut weights = Weights {
        matrix: MatrixSpec {
            d_input,
            d_output: 0,
            parts: Vec::new(),
            activations: ActivationMode::F32,
        },
        packed: Vec::new(),
        rows: Vec::new(),
    };
    for &(format, num_rows) in parts {
        let bytes = random.rows(format, d_input, num_rows);
        weights.packed.push(pack(format, d_input, num_rows, &bytes));
        for row in bytes.chunks_exact(format.row_bytes(d_input).unwrap()) {
            let mut values = vec![0.0; d_input];
            dequantize_row(format, row, &mut values);
            weights.rows.push(values);
        }
        let row_start = weights.matrix.d_output;
        weights.matrix.parts.push(PartSpec {
            format,
            row_start,
            num_rows,
        });
        weights.matrix.d_output += num_rows;
    }
    weights
}

fn check(device: &Device, what: &str, weights: &Weights, num_tokens: usize, with_bias: bool) {
    let mut random = Random(num_tokens as u64);
    let MatrixSpec {
        d_input, d_output, ..
    } = weights.matrix;
    let x = random.floats(num_tokens * d_input);
    let bias = with_bias.then(|| random.floats(d_output));
    let parts: Vec<_> = weights
        .packed
        .iter()
        .map(|part| words(device, part))
        .collect();
    let bias_tensor = bias.as_ref().map(|bias| tensor(device, bias, [d_output]));
    let x_tensor = tensor(device, &x, [num_tokens, d_input]);
    let output = launch(x_tensor, &parts, bias_tensor.as_ref(), &weights.matrix);
    let mut expected = Vec::new();
    for x in x.chunks_exact(d_input) {
        for (i, row) in weights.rows.iter().enumerate() {
            let product = |(&a, &b): (&f32, &f32)| f64::from(a) * f64::from(b);
            let sum: f64 = x.iter().zip(row).map(product).sum();
            expected.push(sum + bias.as_ref().map_or(0.0, |bias| f64::from(bias[i])));
        }
    }
    assert_close(
        &format!("{what}, {num_tokens} rows"),
        &read(&output),
        &expected,
        1.0e-5,
    );
}

#[test]
fn every_format_and_tile_agrees_with_the_definition() {
    let numbers = [1, 3, 4, 5, 8, 13, 17, FEW_ROWS_MAX, FEW_ROWS_MAX + 1, 65];
    for (name, device) in devices() {
        for format in WeightFormat::ALL {
            let mut random = Random(format.block_bytes() as u64);
            let d_input = if format.block_len() == 1 {
                77
            } else {
                3 * format.block_len()
            };
            let weights = weights(&mut random, d_input, &[(format, 67)]);
            for (i, num_tokens) in numbers.into_iter().enumerate() {
                check(
                    &device,
                    &format!("{name} {format}"),
                    &weights,
                    num_tokens,
                    i % 2 == 1,
                );
            }
        }
    }
}

#[test]
fn parts_of_different_formats_fill_their_own_columns() {
    use WeightFormat::{F16, F32, Q4_1, Q4K, Q6K, Q8_0};
    for (name, device) in devices() {
        let mut random = Random(7);
        for parts in [
            vec![(Q4K, 33), (Q4K, 1), (Q6K, 31)],
            vec![(Q8_0, 64), (F32, 5), (F16, 32), (Q4_1, 63)],
        ] {
            let weights = weights(&mut random, 512, &parts);
            for num_tokens in [1, 6, 40] {
                check(
                    &device,
                    &format!("{name} {parts:?}"),
                    &weights,
                    num_tokens,
                    true,
                );
            }
        }
    }
}

#[test]
fn tiny_and_odd_inputs_are_padded_with_zeros() {
    for (name, device) in devices() {
        for d_input in [1, 3, 24, 31, 32, 33, 64, 129, 2050] {
            for format in [WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16] {
                let mut random = Random(d_input as u64);
                let weights = weights(&mut random, d_input, &[(format, 9)]);
                for num_tokens in [2, 35] {
                    let what = format!("{name} {format} K {d_input}");
                    check(&device, &what, &weights, num_tokens, false);
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_whatever_the_number_of_rows_in_a_few() {
    for (name, device) in devices() {
        let mut random = Random(3);
        let weights = weights(&mut random, 1056, &[(WeightFormat::Q4_1, 40)]);
        let parts: Vec<_> = weights
            .packed
            .iter()
            .map(|part| words(&device, part))
            .collect();
        let x = random.floats(FEW_ROWS_MAX * 1056);
        let rows = |num: usize| {
            let x = tensor(&device, &x[..num * 1056], [num, 1056]);
            read(&launch(x, &parts, None, &weights.matrix))
        };
        let all = rows(FEW_ROWS_MAX);
        for num in [1, 2, 7, 12, 20] {
            assert_eq!(rows(num)[..], all[..num * 40], "{name}, {num} rows");
        }
    }
}
