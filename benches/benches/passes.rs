//! Whole models on the CPU: decode and prefill speed, the share of memory bandwidth that decode
//! reaches, and what a pass of several rows costs in passes of one row, which decides whether
//! checking drafts pays.
//!
//! `cargo bench -p forerun-benches --bench passes -- MODEL.gguf ..`
//!
//! A pass of m rows appends m tokens to one sequence and asks for logits after each, as verifying
//! m - 1 drafts does. Its cost is the median of many, all taken in turns.

#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use forerun_engine::{
    BatchSeq, Executor, Generation, GroupBatch, RequestId, SamplingParams, SamplingRow, SeqId,
    StepBatch, StepOutput,
};
use forerun_models::devices::{self, DeviceChoice};
use forerun_models::model::{LoadOptions, LoadedModel, ModelFiles};

/// Tokens before those that are measured.
const DEPTH: usize = 128;
const DECODE_TOKENS: usize = 128;
const PREFILL_TOKENS: usize = 512;
const PASS_ROWS: [usize; 6] = [1, 2, 4, 5, 8, 16];
const ROUNDS: usize = 40;
const BLOCK_SIZE: usize = 16;

fn main() {
    let models: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    if models.is_empty() {
        eprintln!("usage: cargo bench -p forerun-benches --bench passes -- MODEL.gguf ..");
        return;
    }
    println!(
        "reads of 1 GiB by all threads: {:.1} GB/s",
        read_bandwidth() / 1e9
    );
    for model in &models {
        measure(Path::new(model));
    }
}

fn measure(path: &Path) {
    let entry = devices::open(DeviceChoice::Cpu).expect("there is always a CPU");
    let files = ModelFiles::open(path).unwrap_or_else(|error| panic!("{error}"));
    let options = LoadOptions::new(entry.device().clone());
    let started = Instant::now();
    let mut model = files
        .load(&options)
        .unwrap_or_else(|error| panic!("{error}"));
    println!(
        "{}: loaded in {:.2} s, {}",
        files.name(),
        started.elapsed().as_secs_f64(),
        model.plan
    );

    let prefill = median(5, || run(&mut model, 0, PREFILL_TOKENS, Rows::Last));
    println!(
        "  prefill {PREFILL_TOKENS}: {:.0} tokens/s",
        PREFILL_TOKENS as f64 / prefill
    );

    run(&mut model, 0, DEPTH, Rows::Last);
    let decode = median(3, || {
        (DEPTH..DEPTH + DECODE_TOKENS)
            .map(|start| run(&mut model, start, 1, Rows::Last))
            .sum()
    });
    let tokens_per_s = DECODE_TOKENS as f64 / decode;
    let bytes = model.runner.decoder().weight_bytes() as f64;
    println!(
        "  decode {DECODE_TOKENS} after {DEPTH}: {tokens_per_s:.1} tokens/s, {:.1} GB/s of weights",
        bytes * tokens_per_s / 1e9
    );
    passes(&mut model);
}

fn passes(model: &mut LoadedModel) {
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); PASS_ROWS.len()];
    for _ in 0..ROUNDS {
        for (rows, seconds) in PASS_ROWS.iter().zip(&mut seconds) {
            seconds.push(run(model, DEPTH, *rows, Rows::All));
        }
    }
    let medians: Vec<f64> = seconds.iter_mut().map(|seconds| middle(seconds)).collect();
    print!(
        "  a pass of one row {:.2} ms; in such passes:",
        medians[0] * 1e3
    );
    for (rows, median) in PASS_ROWS.iter().zip(&medians).skip(1) {
        print!("  {rows} rows {:.2}", median / medians[0]);
    }
    println!();
}

/// Which rows get logits.
#[derive(Clone, Copy, PartialEq)]
enum Rows {
    Last,
    All,
}

/// Seconds of one step that appends `num_tokens` tokens at position `start`.
fn run(model: &mut LoadedModel, start: usize, num_tokens: usize, rows: Rows) -> f64 {
    let mut batch = batch(start, num_tokens, rows);
    // Every KV group has the same tables here: windows keep all their blocks.
    batch.groups = vec![batch.groups[0].clone(); model.plan.groups.len()];
    let mut output = StepOutput::default();
    let started = Instant::now();
    let runner = &mut model.runner;
    runner
        .submit(&batch)
        .and_then(|()| runner.collect(&mut output))
        .unwrap_or_else(|error| panic!("{error}"));
    black_box(output.verdicts());
    started.elapsed().as_secs_f64()
}

fn batch(start: usize, num_tokens: usize, rows: Rows) -> StepBatch {
    let positions = start as u32..(start + num_tokens) as u32;
    let first_row = if rows == Rows::All { 0 } else { num_tokens - 1 };
    let logit_rows: Vec<u32> = (first_row as u32..num_tokens as u32).collect();
    let blocks_per_seq = (start + num_tokens).div_ceil(BLOCK_SIZE);
    let sampling = |row: &u32| SamplingRow::new(&SamplingParams::default(), start as u32 + row + 1);
    StepBatch {
        seqs: vec![BatchSeq {
            seq: SeqId(0),
            generation: Generation(0),
            request: RequestId(0),
            planned: 0,
        }],
        token_ids: positions
            .clone()
            .map(|position| 1000 + position * 7 % 4096)
            .collect(),
        seq_of_token: vec![0; num_tokens],
        query_offsets: vec![0, num_tokens as u32],
        context_lens: vec![positions.end],
        logit_seqs: vec![0; logit_rows.len()],
        sampling: logit_rows.iter().map(sampling).collect(),
        groups: vec![GroupBatch {
            // Block 0 is the null block.
            slot_mapping: positions.clone().map(|p| p + BLOCK_SIZE as u32).collect(),
            block_tables: (1..=blocks_per_seq as u32).collect(),
            blocks_per_seq,
            block_copies: Vec::new(),
        }],
        positions: positions.collect(),
        logit_rows,
        ..StepBatch::default()
    }
}

fn median(num_runs: usize, mut seconds: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..num_runs).map(|_| seconds()).collect();
    middle(&mut all)
}

fn middle(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Bytes per second that all threads read together from memory that no cache holds.
fn read_bandwidth() -> f64 {
    const WORDS: usize = (1 << 30) / 8;
    let words = vec![1u64; WORDS];
    let threads = forerun_kernels::threads::process();
    let num_pieces = threads.num_threads();
    let seconds = median(7, || {
        let started = Instant::now();
        threads.run(num_pieces, |piece| {
            let len = WORDS / num_pieces;
            black_box(sum(&words[piece * len..(piece + 1) * len]));
        });
        started.elapsed().as_secs_f64()
    });
    (WORDS * 8) as f64 / seconds
}

fn sum(words: &[u64]) -> [u64; 64] {
    let mut sums = [0u64; 64];
    for words in words.as_chunks::<64>().0 {
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums
}
