//! `linear` against a sum in f64, for every format and every instruction set of this CPU.

use std::num::NonZeroUsize;

use super::activations::Run;
use super::*;
use crate::packed::dequantize::RUN_LEN;
use crate::packed::dequantize::dequantize_row;
use crate::packed::format::WeightFormat;
use crate::packed::native::{Line, pack};
use crate::packed::testing::Random;

fn threads(num_threads: usize) -> Threads {
    Threads::new(NonZeroUsize::new(num_threads).unwrap())
}

/// A matrix packed and, for reference, decoded.
struct Matrix {
    spec: MatrixSpec,
    packed: Vec<Vec<Line>>,
    /// `[d_output, d_input]`.
    values: Vec<f32>,
}

impl Matrix {
    fn random(random: &mut Random, d_input: usize, parts: &[(WeightFormat, usize)]) -> Self {
        let threads = threads(1);
        let (mut specs, mut packed, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut row_start = 0;
        for &(format, num_rows) in parts {
            let file = random.matrix(format, d_input, num_rows);
            packed.push(pack(format, d_input, num_rows, &file, &threads).unwrap());
            for bytes in file.chunks_exact(format.row_bytes(d_input).unwrap()) {
                let mut row = vec![0.0; d_input];
                dequantize_row(format, bytes, &mut row);
                values.extend(row);
            }
            specs.push(PartSpec {
                format,
                row_start,
                num_rows,
            });
            row_start += num_rows;
        }
        let activations = ActivationMode::F32;
        let spec = MatrixSpec {
            d_input,
            d_output: row_start,
            parts: specs,
            activations,
        };
        Self {
            spec,
            packed,
            values,
        }
    }

    fn linear(
        &self,
        instructions: InstructionSet,
        threads: &Threads,
        x: &[f32],
        bias: Option<&[f32]>,
    ) -> Vec<f32> {
        let parts: Vec<&[u8]> = self
            .packed
            .iter()
            .map(|part| bytemuck::cast_slice(part.as_slice()))
            .collect();
        let weights = Weights {
            spec: &self.spec,
            parts: &parts,
        };
        let mut out = vec![f32::NAN; x.len() / self.spec.d_input * self.spec.d_output];
        linear_with(instructions, threads, x, &weights, bias, &mut out);
        out
    }

    /// Checks `linear` for every instruction set against f64, within 1e-5 of the sum of magnitudes.
    fn check(&self, x: &[f32], x_as_used: &[f32], bias: Option<&[f32]>) {
        let MatrixSpec {
            d_input, d_output, ..
        } = self.spec;
        for instructions in available() {
            let out = self.linear(instructions, &threads(2), x, bias);
            for (row, out) in out.chunks_exact(d_output).enumerate() {
                let x = &x_as_used[row * d_input..(row + 1) * d_input];
                for (column, &found) in out.iter().enumerate() {
                    let w = &self.values[column * d_input..(column + 1) * d_input];
                    let products = || x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
                    let bias = bias.map_or(0.0, |bias| f64::from(bias[column]));
                    let expected = bias + products().sum::<f64>();
                    let tolerance = 1e-5 * (bias.abs() + products().map(f64::abs).sum::<f64>());
                    assert!(
                        (f64::from(found) - expected).abs() <= tolerance,
                        "{:?} {instructions:?} [{row}, {column}]: {found}, expected {expected}",
                        self.spec
                    );
                }
            }
        }
    }
}

fn available() -> impl Iterator<Item = InstructionSet> {
    InstructionSet::ALL
        .into_iter()
        .filter(|set| set.is_available())
}

/// What int8 activations are worth.
fn through_int8(x: &[f32]) -> Vec<f32> {
    let mut runs = vec![Run::ZERO; x.len() / RUN_LEN];
    InstructionSet::Portable.quantize(x, &mut runs);
    runs.iter()
        .flat_map(|run| {
            let codes = run.codes.iter().flat_map(|word| word.to_le_bytes());
            codes.map(|code| f32::from(code as i8) * run.scale)
        })
        .collect()
}

#[test]
fn f32_activations_match_a_sum_in_f64_for_every_format() {
    let mut random = Random(1);
    for format in WeightFormat::ALL {
        for (d_output, blocks, rows) in [(1, 1, 3), (16, 2, 1), (37, 3, 9), (15, 1, 17), (56, 1, 2)]
        {
            // Plain floats have no blocks: lengths around a run of 32.
            let d_input = if format.is_quantized() {
                blocks * format.block_len()
            } else {
                blocks * 33
            };
            let matrix = Matrix::random(&mut random, d_input, &[(format, d_output)]);
            let x = random.floats(rows * d_input);
            matrix.check(&x, &x, None);
        }
    }
}

#[test]
fn int8_activations_match_a_sum_in_f64_of_the_quantised_values() {
    let mut random = Random(2);
    for format in WeightFormat::ALL
        .into_iter()
        .filter(|format| format.is_quantized())
    {
        for (d_output, blocks, rows) in [(1, 1, 3), (16, 2, 1), (37, 3, 9), (15, 1, 17), (56, 1, 2)]
        {
            let d_input = blocks * format.block_len();
            let mut matrix = Matrix::random(&mut random, d_input, &[(format, d_output)]);
            matrix.spec.activations = ActivationMode::Int8;
            let x = random.floats(rows * d_input);
            matrix.check(&x, &through_int8(&x), None);
        }
    }
}

#[test]
fn parts_of_several_formats_and_a_bias_make_one_output() {
    use WeightFormat as W;
    let mut random = Random(3);
    let parts = [
        (W::Q4K, 33),
        (W::Q6K, 7),
        (W::F32, 18),
        (W::Q8_0, 1),
        (W::Q5_0, 16),
    ];
    let mut matrix = Matrix::random(&mut random, 512, &parts);
    let x = random.floats(5 * 512);
    let bias = random.floats(75);
    matrix.check(&x, &x, Some(&bias));
    // The same in int8: values that survive quantisation, so that the dense part agrees too.
    let x = through_int8(&x);
    matrix.spec.activations = ActivationMode::Int8;
    matrix.check(&x, &x, Some(&bias));
}

#[test]
fn bits_of_a_row_depend_on_neither_its_batch_nor_the_threads() {
    let mut random = Random(4);
    for activations in [ActivationMode::Int8, ActivationMode::F32] {
        for format in WeightFormat::ALL {
            let d_input = 2 * format.block_len().max(17);
            let mut matrix = Matrix::random(&mut random, d_input, &[(format, 41)]);
            matrix.spec.activations = activations;
            let x = random.floats(40 * d_input);
            for instructions in available() {
                let alone: Vec<f32> = x
                    .chunks_exact(d_input)
                    .flat_map(|row| matrix.linear(instructions, &threads(1), row, None))
                    .collect();
                for num_threads in 1..=3 {
                    let threads = threads(num_threads);
                    for rows in 1..=40 {
                        // The last rows of x, so that a row also changes its place.
                        let skipped = 40 - rows;
                        let x = &x[skipped * d_input..];
                        let together = matrix.linear(instructions, &threads, x, None);
                        let same = together
                            .iter()
                            .zip(&alone[skipped * 41..])
                            .all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(
                            same,
                            "{format} {instructions:?} {num_threads} threads, {rows} rows"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn instruction_sets_with_fused_sums_agree_bit_for_bit() {
    let mut random = Random(5);
    for activations in [ActivationMode::Int8, ActivationMode::F32] {
        for format in WeightFormat::ALL {
            let d_input = 2 * format.block_len().max(16);
            let mut matrix = Matrix::random(&mut random, d_input, &[(format, 19)]);
            matrix.spec.activations = activations;
            let x = random.floats(6 * d_input);
            let outs: Vec<_> = available()
                .filter(|&set| set != InstructionSet::Portable)
                .map(|set| matrix.linear(set, &threads(1), &x, None))
                .collect();
            assert!(
                outs.windows(2).all(|pair| pair[0] == pair[1]),
                "{format} {activations:?}"
            );
        }
    }
}

#[test]
fn a_value_is_off_by_at_most_half_a_step_of_its_run() {
    let mut random = Random(6);
    let x: Vec<f32> = random
        .floats(32 * 50)
        .iter()
        .map(|x| x.powi(5) * 1e3)
        .collect();
    for (x, quantized) in x
        .chunks_exact(RUN_LEN)
        .zip(through_int8(&x).chunks_exact(RUN_LEN))
    {
        let largest = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        for (x, quantized) in x.iter().zip(quantized) {
            assert!(
                (x - quantized).abs() <= largest / 253.9,
                "{x} became {quantized}"
            );
        }
    }
}

#[test]
fn every_instruction_set_quantises_alike_and_keeps_what_is_not_finite() {
    let mut random = Random(8);
    let mut x = random.floats(RUN_LEN * 6);
    x[RUN_LEN..2 * RUN_LEN].fill(0.0);
    x[2 * RUN_LEN..3 * RUN_LEN].fill(1e-42);
    x[3 * RUN_LEN + 5] = f32::NAN;
    x[4 * RUN_LEN + 31] = f32::NEG_INFINITY;
    let quantize = |set: InstructionSet| {
        let mut runs = vec![Run::ZERO; 6];
        set.quantize(&x, &mut runs);
        runs
    };
    let expected = quantize(InstructionSet::Portable);
    for index in [0, 1, 2, 5] {
        for set in available() {
            let run = quantize(set)[index];
            assert_eq!(run.codes, expected[index].codes, "{set:?} run {index}");
            assert_eq!(
                run.scale.to_bits(),
                expected[index].scale.to_bits(),
                "{set:?}"
            );
            assert_eq!(run.starts, expected[index].starts, "{set:?}");
        }
    }
    assert!(expected[3].scale.is_nan() && !expected[4].scale.is_finite());
}

#[test]
fn a_row_that_is_not_finite_stays_so_and_spoils_no_other() {
    let mut random = Random(9);
    let mut matrix = Matrix::random(&mut random, 64, &[(WeightFormat::Q4_1, 5)]);
    matrix.spec.activations = ActivationMode::Int8;
    let mut x = random.floats(3 * 64);
    x[64 + 40] = f32::INFINITY;
    for set in available() {
        let out = matrix.linear(set, &threads(1), &x, None);
        assert!(
            out[..5].iter().chain(&out[10..]).all(|y| y.is_finite()),
            "{set:?}"
        );
        assert!(out[5..10].iter().all(|y| !y.is_finite()), "{set:?}");
    }
}

#[test]
fn nothing_grows_after_the_largest_step() {
    let mut random = Random(10);
    let mut matrix = Matrix::random(
        &mut random,
        96,
        &[(WeightFormat::Q8_0, 20), (WeightFormat::F32, 3)],
    );
    matrix.spec.activations = ActivationMode::Int8;
    let x = random.floats(9 * 96);
    let threads = threads(2);
    let capacity =
        || SCRATCH.with_borrow(|s| (s.int8.as_ptr(), s.int8.capacity(), s.floats.capacity()));
    matrix.linear(InstructionSet::detect(), &threads, &x, None);
    let before = capacity();
    for rows in 1..9 {
        matrix.linear(InstructionSet::detect(), &threads, &x[..rows * 96], None);
    }
    assert_eq!(capacity(), before);
}

#[test]
fn an_embedded_row_is_the_decoded_row_times_the_scale() {
    let mut random = Random(11);
    let parts = [
        (WeightFormat::Q8_0, 19),
        (WeightFormat::Q6K, 34),
        (WeightFormat::Bf16, 3),
    ];
    let matrix = Matrix::random(&mut random, 256, &parts);
    let bytes: Vec<&[u8]> = matrix
        .packed
        .iter()
        .map(|part| bytemuck::cast_slice(part.as_slice()))
        .collect();
    let table = Weights {
        spec: &matrix.spec,
        parts: &bytes,
    };
    let ids = [55, 0, 18, 19, 52, 53, 19];
    let mut out = vec![0.0; ids.len() * 256];
    crate::embed::flex::embed(&table, &ids, 1.75, &mut out);
    for (&id, out) in ids.iter().zip(out.chunks_exact(256)) {
        let row = &matrix.values[id as usize * 256..(id as usize + 1) * 256];
        assert!(
            out.iter()
                .zip(row)
                .all(|(y, w)| y.to_bits() == (w * 1.75).to_bits()),
            "row {id}"
        );
    }
}
