//! What scheduling does: continuous against static batches, chunk sizes, wasted slots.
//!
//! Neighbours: `measure.rs` runs the requests that `workload.rs` makes.

use anyhow::Result;
use forerun_engine::{
    Executor, ExecutorError, KvGroupConfig, Request, StepBatch, StepOutput, TokenId, Verdict,
};

use super::Bench;
use super::measure::{Arrival, Meter, intervals_ms, latency_ms, mean, quantile, ttft_ms};
use super::report::{Plot, Row, Section};
use super::workload::request;
use crate::driver::Outcome;

/// Token budgets of a step that are compared.
const CHUNKS: [usize; 5] = [32, 64, 128, 256, 512];

/// All three sections.
pub(super) fn run<E: Executor>(bench: &mut Bench<'_, E>) -> Result<Vec<Section>> {
    Ok(vec![batching(bench)?, chunks(bench)?, waste(bench)?])
}

/// Answers of spread lengths: a static batch waits for its longest before it takes others.
fn batching<E: Executor>(bench: &mut Bench<'_, E>) -> Result<Section> {
    let num_requests = bench.scaled(32).max(12);
    let prompt_len = bench.tokens(32);
    let (shortest, longest) = (bench.tokens(4), bench.tokens(64));
    let requests: Vec<Request> = (0..num_requests)
        .map(|_| {
            let output_len = bench.workload.spread_len(shortest, longest);
            request(bench.workload.tokens(prompt_len), output_len)
        })
        .collect();
    let num_tokens: u32 = requests.iter().filter_map(|r| r.stop.max_tokens).sum();
    let width = bench.config.step_seqs_max;

    let mut fixed = Meter::new(bench.config.clone(), &mut *bench.executor)?;
    let mut fixed_outcomes = Vec::new();
    let mut fixed_latencies = Vec::new();
    for batch in requests.chunks(width) {
        // Requests of later batches wait from the beginning.
        let waited_ms = fixed.seconds * 1000.0;
        let outcomes = fixed.run(batch.to_vec())?;
        fixed_latencies.extend(
            outcomes
                .iter()
                .filter_map(latency_ms)
                .map(|ms| ms + waited_ms),
        );
        fixed_outcomes.extend(outcomes);
    }
    let (fixed_seconds, fixed_steps) = (fixed.seconds, fixed.statistics().engine.num_steps);

    let mut continuous = Meter::new(bench.config.clone(), &mut *bench.executor)?;
    let outcomes = continuous.run(requests)?;
    let latencies: Vec<f64> = outcomes.iter().filter_map(latency_ms).collect();
    let steps = continuous.statistics().engine.num_steps;
    let row = |label: &str, seconds: f64, steps: u64, latencies: &[f64]| Row {
        label: label.to_owned(),
        values: vec![
            Some(seconds),
            Some(f64::from(num_tokens) / seconds),
            Some(steps as f64),
            mean(latencies.iter().copied()),
            quantile(latencies.iter().copied(), 0.95),
            Some(fixed_seconds / seconds),
        ],
    };
    Ok(Section {
        title: "Continuous and static batches".to_owned(),
        note: format!(
            "{num_requests} requests of {prompt_len} prompt tokens and {shortest} to {longest} \
             generated, up to {width} at once."
        ),
        columns: vec![
            "time s",
            "generated tokens/s",
            "steps",
            "mean latency ms",
            "P95 latency ms",
            "speed-up",
        ],
        rows: vec![
            row("static", fixed_seconds, fixed_steps, &fixed_latencies),
            row("continuous", continuous.seconds, steps, &latencies),
        ],
        plot: Some(Plot::Bars {
            columns: vec![1],
            unit: "generated tokens/s",
        }),
    })
}

/// Long prompts that come while others decode: with large chunks the first token of the new ones
/// comes sooner, with small ones those that run wait less.
fn chunks<E: Executor>(bench: &mut Bench<'_, E>) -> Result<Section> {
    let (num_decoding, num_long) = (3, bench.scaled(4).max(2));
    let (long_len, output_len) = (
        bench.tokens(bench.scaled(512).max(192)),
        bench.tokens(bench.scaled(64).max(24)),
    );
    let decoding: Vec<_> = (0..num_decoding)
        .map(|_| bench.workload.tokens(bench.tokens(16)))
        .collect();
    let long: Vec<_> = (0..num_long)
        .map(|_| bench.workload.tokens(long_len))
        .collect();
    let mut rows = Vec::new();
    for chunk in CHUNKS {
        let mut config = bench.config.clone();
        config.prefix_cache.enabled = false;
        config.step_tokens_max = chunk;
        let mut arrivals: Vec<Arrival> = decoding
            .iter()
            .map(|prompt| Arrival {
                after_steps: 0,
                request: request(prompt.clone(), output_len),
            })
            .collect();
        arrivals.extend(long.iter().map(|prompt| Arrival {
            after_steps: 4,
            request: request(prompt.clone(), 2),
        }));
        let mut meter = Meter::new(config, &mut *bench.executor)?;
        let outcomes = meter.run_arrivals(arrivals)?;
        let (running, new) = outcomes.split_at(num_decoding);
        let intervals: Vec<f64> = running.iter().flat_map(intervals_ms).collect();
        rows.push(Row {
            label: chunk.to_string(),
            values: vec![
                mean(new.iter().filter_map(ttft_ms)),
                quantile(intervals.iter().copied(), 0.5),
                quantile(intervals.iter().copied(), 0.95),
                quantile(intervals.iter().copied(), 1.0),
                Some(generated(&outcomes) / meter.seconds),
            ],
        });
    }
    Ok(Section {
        title: "Chunk size: time to the first token and between tokens".to_owned(),
        note: format!(
            "{num_decoding} requests decode {output_len} tokens; {num_long} prompts of {long_len} \
             tokens come after a few of them. By --max-num-batched-tokens."
        ),
        columns: vec![
            "TTFT ms of the long",
            "between tokens ms, P50",
            "P95",
            "longest",
            "generated tokens/s",
        ],
        rows,
        plot: Some(Plot::Lines {
            columns: vec![0, 3],
            unit: "ms by tokens per step",
        }),
    })
}

fn generated(outcomes: &[Outcome]) -> f64 {
    let tokens = outcomes
        .iter()
        .map(|outcome| outcome.usage.completion_tokens);
    tokens.sum::<usize>() as f64
}

/// Requests of a waste bench, as the promise about waste counts them.
const NUM_WASTE_REQUESTS: usize = 64;

/// Slots that are allocated and not used. Needs no model: only lengths count.
fn waste<E: Executor>(bench: &mut Bench<'_, E>) -> Result<Section> {
    let requests: Vec<Request> = (0..NUM_WASTE_REQUESTS)
        .map(|_| {
            let (prompt_len, output_len) = bench.workload.sharegpt_lens();
            request(bench.workload.tokens(prompt_len), output_len)
        })
        .collect();
    let lens: Vec<usize> = requests
        .iter()
        .map(|r| r.prompt.len() + r.stop.max_tokens.unwrap_or(0) as usize)
        .collect();
    let longest = lens.iter().copied().max().unwrap_or(0);
    let mut rows = Vec::new();
    for block_size in [1_usize, 8, 16, 32, 64, 128] {
        let mut config = bench.config.clone();
        config.block_size = block_size;
        config.prefix_cache.enabled = false;
        config.max_seq_len = config.max_seq_len.max(longest + 1);
        config.step_seqs_max = NUM_WASTE_REQUESTS;
        config.step_tokens_max = config.step_tokens_max.max(NUM_WASTE_REQUESTS);
        let num_blocks = NUM_WASTE_REQUESTS * longest.div_ceil(block_size) + 1;
        config.groups = vec![KvGroupConfig {
            num_blocks,
            window: None,
        }];
        let mut meter = Meter::new(config, LengthsOnly::default())?;
        meter.run(requests.clone())?;
        let share = meter.statistics().engine.kv_waste_share;
        rows.push(Row {
            label: block_size.to_string(),
            values: vec![
                share.map(|share| 100.0 * share.mean),
                share.map(|share| 100.0 * share.max),
            ],
        });
    }
    let mean_len = lens.iter().sum::<usize>() as f64 / lens.len() as f64;
    Ok(Section {
        title: "Wasted KV slots".to_owned(),
        note: format!(
            "Slots of held blocks without a token, over the steps of {NUM_WASTE_REQUESTS} requests \
             with ShareGPT-like lengths (mean {mean_len:.0} tokens), by block size. To reserve the \
             longest sequence for each would waste {:.0} % at the end. Lengths only, no model.",
            100.0 * (1.0 - mean_len / longest as f64)
        ),
        columns: vec!["waste %, mean over steps", "waste %, most"],
        rows,
        plot: Some(Plot::Lines {
            columns: vec![0],
            unit: "% wasted by block size",
        }),
    })
}

/// Answers every row with the same token.
#[derive(Debug, Default)]
pub(super) struct LengthsOnly {
    num_rows: Vec<usize>,
}

impl Executor for LengthsOnly {
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError> {
        self.num_rows.push(batch.logit_rows.len());
        Ok(())
    }

    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        for _ in 0..self.num_rows.pop().unwrap_or(0) {
            output.push(Verdict::Token(TokenId(0)));
        }
        Ok(())
    }
}
