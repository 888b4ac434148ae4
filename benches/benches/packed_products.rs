//! Products of activations and packed weights on a CPU: which format, how many rows, int8 or f32
//! activations.
//!
//! Each table row is a whole pass over enough distinct matrices of real shapes that the weights come
//! from memory, as in a model. Printed: the time of a pass of one row, the bytes of weights it reads
//! per second, and what passes of more rows cost in one-row passes. A pass is taken to last as long
//! as the fastest runs of its products together, since other work on the machine only adds time.
//!
//! `cargo bench -p forerun-benches --bench packed_products [-- THREADS [SECONDS_PER_CELL]]`

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use forerun_kernels::linear::flex::{InstructionSet, Weights, linear};
use forerun_kernels::packed::format::WeightFormat;
use forerun_kernels::packed::native::{Line, TileLayout};
use forerun_kernels::spec::{ActivationMode, MatrixSpec, PartSpec};
use forerun_kernels::threads::Threads;

const ROWS: [usize; 6] = [1, 2, 4, 5, 8, 16];
const PREFILL_ROWS: usize = 512;

fn main() {
    // Cargo passes `--bench`; only numbers are ours.
    let mut numbers = std::env::args().filter_map(|arg| arg.parse::<f64>().ok());
    let num_threads = numbers.next().map_or(2, |threads| threads as usize);
    let seconds = numbers.next().unwrap_or(0.3);
    let threads = Threads::new(NonZeroUsize::new(num_threads).unwrap_or(NonZeroUsize::MIN));
    let bench = Bench { threads, seconds };
    println!(
        "{num_threads} threads, {:?}, reads {:.1} GB/s of 100 MB, {:.1} GB/s of 1 GB",
        InstructionSet::detect(),
        bench.read_bandwidth(100 << 20),
        bench.read_bandwidth(1 << 30),
    );
    println!("a pass of N rows, in passes of one row; prefill of {PREFILL_ROWS} rows in rows/s");
    println!(
        "{:<16}{:>5}{:>7}{:>9}{:>7}{}{:>9}{:>9}",
        "weights",
        "x",
        "MB",
        "1 row ms",
        "GB/s",
        ROWS[1..]
            .iter()
            .fold(String::new(), |line, rows| format!("{line}{rows:>6}")),
        "rows/s",
        "GFLOP/s"
    );
    for set in weight_sets() {
        for activations in [ActivationMode::Int8, ActivationMode::F32] {
            if activations == ActivationMode::F32 || set.is_quantized() {
                bench.table_row(&set, activations);
            }
        }
    }
}

/// Matrices that one pass multiplies with, one after the other.
struct WeightSet {
    name: String,
    matrices: Vec<Matrix>,
}

struct Matrix {
    spec: MatrixSpec,
    lines: Vec<Line>,
}

impl Matrix {
    /// Random codes, and scales that keep values near one.
    fn random(format: WeightFormat, d_output: usize, d_input: usize) -> Self {
        let layout = TileLayout::new(format, d_input);
        let num_lines = layout.matrix_bytes(d_output) / size_of::<Line>();
        let mut state = 1u64;
        let lines = (0..num_lines).map(|_| {
            Line(std::array::from_fn(|i| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                // The exponent byte of floats, where a line holds such.
                if i % 2 == 1 {
                    0x20
                } else {
                    (state >> 56) as u8
                }
            }))
        });
        let part = PartSpec {
            format,
            row_start: 0,
            num_rows: d_output,
        };
        Self {
            spec: MatrixSpec {
                d_input,
                d_output,
                parts: vec![part],
                activations: ActivationMode::Int8,
            },
            lines: lines.collect(),
        }
    }

    fn num_bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }
}

impl WeightSet {
    fn is_quantized(&self) -> bool {
        self.matrices
            .iter()
            .any(|matrix| matrix.spec.parts[0].format.is_quantized())
    }

    fn num_bytes(&self) -> usize {
        self.matrices.iter().map(Matrix::num_bytes).sum()
    }

    /// The matrices that a pass of `num_rows` rows needs: a prefill needs the head for its last row
    /// only, so it is timed without.
    fn matrices(&self, num_rows: usize) -> impl Iterator<Item = &Matrix> {
        let d_output_max = if num_rows == PREFILL_ROWS {
            20_000
        } else {
            usize::MAX
        };
        self.matrices
            .iter()
            .filter(move |matrix| matrix.spec.d_output < d_output_max)
    }

    /// Multiply-adds of one row of a prefill.
    fn prefill_macs(&self) -> usize {
        let macs = |matrix: &Matrix| matrix.spec.d_input * matrix.spec.d_output;
        self.matrices(PREFILL_ROWS).map(macs).sum()
    }

    /// `layers` layers, each of the matrices `(format, d_output, d_input)`.
    fn new(name: &str, layers: usize, shapes: &[(WeightFormat, usize, usize)]) -> Self {
        let matrices = (0..layers)
            .flat_map(|_| shapes)
            .map(|&(format, d_output, d_input)| Matrix::random(format, d_output, d_input))
            .collect();
        Self {
            name: name.to_owned(),
            matrices,
        }
    }

    fn with_head(mut self, vocab_size: usize, d_model: usize) -> Self {
        self.matrices
            .push(Matrix::random(WeightFormat::Q8_0, vocab_size, d_model));
        self
    }
}

/// Both models whole, then about 100 MB of each format in a model's shapes.
fn weight_sets() -> impl Iterator<Item = WeightSet> {
    use WeightFormat as W;
    let smollm2 = |format| {
        [
            (format, 960, 576),
            (format, 576, 576),
            (format, 3072, 576),
            (format, 576, 1536),
        ]
    };
    let gemma3 = [
        (W::Q5_0, 1536, 640),
        (W::Q4K, 640, 1024),
        (W::Q5_0, 4096, 640),
        (W::Q6K, 640, 2048),
    ];
    // The k-quants' blocks of 256 do not divide SmolLM2's rows.
    let in_256 = |format| [(format, 640, 1024), (format, 640, 2048)];
    let models = [
        WeightSet::new("SmolLM2 Q4_1", 30, &smollm2(W::Q4_1)).with_head(49_152, 576),
        WeightSet::new("Gemma3 Q4_K_M", 18, &gemma3).with_head(262_144, 640),
    ];
    let small = [W::Q4_1, W::Q8_0, W::Q4_0, W::Q5_0, W::F16, W::Bf16, W::F32];
    let small = small.map(|format| {
        let layers = 800
            / format
                .row_bytes(320)
                .expect("whole blocks")
                .div_ceil(10)
                .max(1);
        (format, layers.clamp(8, 40))
    });
    models
        .into_iter()
        .chain(
            [W::Q4K, W::Q6K]
                .into_iter()
                .map(move |format| WeightSet::new(format.name(), 80, &in_256(format))),
        )
        .chain(
            small.into_iter().map(move |(format, layers)| {
                WeightSet::new(format.name(), layers, &smollm2(format))
            }),
        )
}

struct Bench {
    threads: Threads,
    seconds: f64,
}

impl Bench {
    fn table_row(&self, set: &WeightSet, activations: ActivationMode) {
        let one = self.pass_seconds(set, 1, activations);
        let ratios = ROWS[1..].iter().fold(String::new(), |line, &rows| {
            format!(
                "{line}{:>6.2}",
                self.pass_seconds(set, rows, activations) / one
            )
        });
        let prefill = self.pass_seconds(set, PREFILL_ROWS, activations) / PREFILL_ROWS as f64;
        println!(
            "{:<16}{:>5}{:>7.1}{:>9.3}{:>7.1}{ratios}{:>9.0}{:>9.0}",
            set.name,
            format!("{activations:?}").to_lowercase(),
            set.num_bytes() as f64 / 1e6,
            one * 1e3,
            set.num_bytes() as f64 / one / 1e9,
            1.0 / prefill,
            2.0 * set.prefill_macs() as f64 / prefill / 1e9,
        );
    }

    /// Seconds of a pass over the set with `num_rows` rows.
    fn pass_seconds(&self, set: &WeightSet, num_rows: usize, activations: ActivationMode) -> f64 {
        let matrices: Vec<&Matrix> = set.matrices(num_rows).collect();
        let d_input = matrices
            .iter()
            .map(|matrix| matrix.spec.d_input)
            .max()
            .unwrap_or(0);
        let d_output = matrices
            .iter()
            .map(|matrix| matrix.spec.d_output)
            .max()
            .unwrap_or(0);
        let x: Vec<f32> = (0..num_rows * d_input)
            .map(|i| (i % 17) as f32 - 8.0)
            .collect();
        let mut out = vec![0.0; num_rows * d_output];
        self.fastest(matrices.len(), |index| {
            let matrix = matrices[index];
            let MatrixSpec {
                d_input, d_output, ..
            } = matrix.spec;
            let spec = MatrixSpec {
                activations,
                ..matrix.spec.clone()
            };
            let parts = [bytemuck::cast_slice(&matrix.lines)];
            let weights = Weights {
                spec: &spec,
                parts: &parts,
            };
            let out = &mut out[..num_rows * d_output];
            linear(&self.threads, &x[..num_rows * d_input], &weights, None, out);
            black_box(out);
        })
    }

    /// GB/s at which all threads together read `num_bytes` of memory, in pieces of 2 MB.
    fn read_bandwidth(&self, num_bytes: usize) -> f64 {
        const PIECE: usize = 1 << 18;
        let words = vec![1u64; num_bytes / 8];
        let pieces: Vec<&[u64]> = words.chunks_exact(PIECE).collect();
        let seconds = self.fastest(pieces.len(), |index| {
            let piece = pieces[index];
            self.threads.run(8, |task| {
                let len = piece.len() / 8;
                black_box(read(&piece[task * len..(task + 1) * len]));
            });
        });
        num_bytes as f64 / seconds / 1e9
    }

    /// Seconds of a pass that does `work(0)`, `work(1)`, ..: the fastest of many runs of each.
    fn fastest(&self, num_pieces: usize, mut work: impl FnMut(usize)) -> f64 {
        let mut fastest = vec![f64::INFINITY; num_pieces];
        let begin = Instant::now();
        let mut passes = 0;
        while passes < 4 || begin.elapsed().as_secs_f64() < self.seconds {
            for (piece, fastest) in fastest.iter_mut().enumerate() {
                let start = Instant::now();
                work(piece);
                *fastest = fastest.min(start.elapsed().as_secs_f64());
            }
            passes += 1;
        }
        fastest.iter().sum()
    }
}

/// One bit of every word, so that none can be left unread.
fn read(words: &[u64]) -> [u64; 32] {
    let mut sums = [0; 32];
    for words in words.as_chunks::<32>().0 {
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum ^= word;
        }
    }
    sums
}
