//! `embed` and `linear`: every format, parts of several formats, parts cut for small bindings.

use crate::parity::random::Random;
use crate::parity::step::StepPlan;
use crate::parity::{Case, Output};
use burn::tensor::{Device, Tensor, TensorData};
use forerun_kernels::embed::embed;
use forerun_kernels::linear::linear;
use forerun_kernels::packed::dequantize::dequantize_row;
use forerun_kernels::{ActivationMode, PackedMatrix, RawRows, WeightFormat};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = embed_cases();
    cases.extend(linear_cases());
    cases
}

/// A matrix as a file has it: runs of rows of one format each.
#[derive(Clone)]
struct FileMatrix {
    d_input: usize,
    runs: Vec<(WeightFormat, usize, Vec<u8>)>,
    /// Largest binding, to force several parts.
    binding_bytes_max: Option<u64>,
    /// How native products treat activations.
    activations: ActivationMode,
}

impl FileMatrix {
    fn new(d_input: usize, runs: &[(WeightFormat, usize)]) -> Self {
        let mut random = Random::new(13);
        let runs = runs
            .iter()
            .map(|&(format, num_rows)| (format, num_rows, random.rows(format, num_rows, d_input)))
            .collect();
        Self {
            d_input,
            runs,
            binding_bytes_max: None,
            activations: ActivationMode::Int8,
        }
    }

    fn with_f32_activations(mut self) -> Self {
        self.activations = ActivationMode::F32;
        self
    }

    fn pack(&self, device: &Device) -> PackedMatrix {
        let rows: Vec<RawRows<'_>> = self
            .runs
            .iter()
            .map(|&(format, num_rows, ref bytes)| RawRows {
                format,
                num_rows,
                bytes,
            })
            .collect();
        PackedMatrix::pack(&rows, self.d_input, device, self.binding_bytes_max)
            .expect("the rows are valid")
            .with_activations(self.activations)
    }

    /// The rows, decoded.
    fn decode(&self) -> Vec<Vec<f32>> {
        let mut rows = Vec::new();
        for (format, _, bytes) in &self.runs {
            let row_bytes = format
                .row_bytes(self.d_input)
                .expect("rows are whole blocks");
            for row in bytes.chunks_exact(row_bytes) {
                let mut values = vec![0.0; self.d_input];
                dequantize_row(*format, row, &mut values);
                rows.push(values);
            }
        }
        rows
    }

    fn num_rows(&self) -> usize {
        self.runs.iter().map(|run| run.1).sum()
    }

    fn name(&self) -> String {
        let formats: Vec<_> = self
            .runs
            .iter()
            .map(|run| format!("{}x{}", run.0, run.1))
            .collect();
        let cut = if self.binding_bytes_max.is_some() {
            " cut"
        } else {
            ""
        };
        let mode = if self.activations == ActivationMode::F32 {
            " f32 activations"
        } else {
            ""
        };
        format!("K={} {}{cut}{mode}", self.d_input, formats.join("+"))
    }
}

/// A length of rows that is awkward for the format.
fn d_input_of(format: WeightFormat) -> usize {
    match format.block_len() {
        1 => 77,
        32 => 96,
        _ => 768,
    }
}

fn embed_cases() -> Vec<Case> {
    let mut matrices: Vec<FileMatrix> = WeightFormat::ALL
        .into_iter()
        .map(|format| FileMatrix::new(d_input_of(format), &[(format, 50)]))
        .collect();
    let mixed = [(WeightFormat::Q8_0, 33), (WeightFormat::F16, 17)];
    matrices.push(FileMatrix::new(64, &mixed));
    let mut cut = FileMatrix::new(64, &[(WeightFormat::F32, 150)]);
    cut.binding_bytes_max = Some(64 * 4 * 64);
    matrices.push(cut);
    matrices
        .into_iter()
        .map(|matrix| {
            let name = matrix.name();
            Case::against_native("embed", name, 1e-6, move |device| {
                let mut plan = StepPlan::tokens(13);
                plan.vocab_size = matrix.num_rows();
                let table = matrix.pack(device);
                Output::floats(embed(&table, plan.upload(14, device), 13, 1.7))
            })
        })
        .collect()
}

fn linear_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for format in WeightFormat::ALL {
        let d_input = d_input_of(format);
        for (num_tokens, num_rows) in [(1, 33), (5, 70), (17, 31), (43, 67)] {
            let matrix = FileMatrix::new(d_input, &[(format, num_rows)]);
            cases.push(linear_case(matrix, num_tokens, num_tokens == 5));
        }
        let matrix = FileMatrix::new(d_input, &[(format, 35)]).with_f32_activations();
        cases.push(linear_case(matrix, 3, false));
    }
    // The shapes of a real layer.
    let qkv = [
        (WeightFormat::Q4_1, 576),
        (WeightFormat::Q4_1, 192),
        (WeightFormat::Q8_0, 192),
    ];
    cases.push(linear_case(FileMatrix::new(576, &qkv), 2, true));
    let mixed = [
        (WeightFormat::Q4K, 65),
        (WeightFormat::Q6K, 33),
        (WeightFormat::F32, 1),
    ];
    cases.push(linear_case(FileMatrix::new(512, &mixed), 9, true));
    let mut cut = FileMatrix::new(64, &[(WeightFormat::Bf16, 150)]);
    cut.binding_bytes_max = Some(64 * 2 * 64);
    cases.push(linear_case(cut, 3, false));
    cases
}

fn linear_case(matrix: FileMatrix, num_tokens: usize, with_bias: bool) -> Case {
    let d_input = matrix.d_input;
    let d_output = matrix.num_rows();
    let mut random = Random::new(15);
    let x = random.floats(num_tokens * d_input, 1.0);
    let bias = with_bias.then(|| random.floats(d_output, 1.0));
    let name = format!(
        "T={num_tokens} {}{}",
        matrix.name(),
        if with_bias { " bias" } else { "" }
    );
    let expected = {
        let (matrix, x, bias) = (matrix.clone(), x.clone(), bias.clone());
        move || Output::Floats(product(&matrix, &x, bias.as_deref()))
    };
    let int8 = matrix.activations == ActivationMode::Int8
        && matrix.runs.iter().any(|run| run.0.is_quantized());
    Case {
        op: "linear",
        name,
        tolerance: 1e-5,
        // Activations of 8 bits: steps of 1/127 of the largest of 32 values, and errors of many
        // values that partly cancel.
        native_tolerance: if int8 { 1e-2 } else { 1e-5 },
        expected: Box::new(expected),
        run: Box::new(move |device| {
            let x = TensorData::new(x.clone(), [num_tokens, d_input]);
            let x = Tensor::from_data(x, device);
            let bias = bias
                .clone()
                .map(|bias| Tensor::from_data(TensorData::new(bias, [d_output]), device));
            Output::floats(linear(x, &matrix.pack(device), bias))
        }),
    }
}

/// The definition, summed in f64.
fn product(matrix: &FileMatrix, x: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let rows = matrix.decode();
    let mut out = Vec::new();
    for x in x.chunks_exact(matrix.d_input) {
        for (index, row) in rows.iter().enumerate() {
            let terms = x
                .iter()
                .zip(row)
                .map(|(&x, &w)| f64::from(x) * f64::from(w));
            let bias = bias.map_or(0.0, |bias| f64::from(bias[index]));
            out.push((terms.sum::<f64>() + bias) as f32);
        }
    }
    out
}
