//! What the prefix cache saves, and what shared blocks save.
//!
//! Neighbours: `measure.rs` runs the requests that `workload.rs` makes.

use anyhow::Result;
use forerun_engine::{BeamParams, EngineConfig, Executor, OutputParams, Request, TokenId};

use super::Bench;
use super::measure::{Meter, mean, ttft_ms};
use super::report::{Plot, Row, Section};
use super::workload::{Workload, request};
use crate::driver::Outcome;

/// Rounds of requests: each comes when the one before has been answered.
type Rounds = Vec<Vec<Turn>>;

/// Makes the rounds of a workload.
type Make<E> = fn(&mut Bench<'_, E>) -> Rounds;

/// A request of a round.
#[derive(Clone, Debug)]
struct Turn {
    /// New tokens of its prompt.
    tokens: Vec<TokenId>,
    /// Goes on after the prompt and the answer of this request of the round before.
    continues: Option<usize>,
    output_len: usize,
}

/// Both sections.
pub(super) fn run<E: Executor>(bench: &mut Bench<'_, E>) -> Result<Vec<Section>> {
    Ok(vec![prefixes(bench)?, shared_blocks(bench)?])
}

/// The same workloads without and with the prefix cache.
fn prefixes<E: Executor>(bench: &mut Bench<'_, E>) -> Result<Section> {
    let workloads: [(&str, Make<E>); 3] = [
        ("chat: turns of one conversation", chat),
        ("RAG: questions about one document", documents),
        ("template: one long instruction", template),
    ];
    let mut rows = Vec::new();
    for (label, make) in workloads {
        let rounds = make(bench);
        let (off, answers_off) = measure(bench, &rounds, false)?;
        let (on, answers_on) = measure(bench, &rounds, true)?;
        rows.push(Row {
            label: label.to_owned(),
            values: vec![
                Some(off.prefill_tokens),
                Some(on.prefill_tokens),
                Some(1.0 - on.prefill_tokens / off.prefill_tokens),
                off.ttft_ms,
                on.ttft_ms,
                ratio(off.ttft_ms, on.ttft_ms),
                ratio(Some(off.seconds), Some(on.seconds)),
                Some(equal_share(&answers_off, &answers_on)),
            ],
        });
    }
    Ok(Section {
        title: "Prefix cache off and on".to_owned(),
        note: "The same requests on two engines, one after the other. TTFT is the mean over requests; \
               answers are greedy, so the last column says how many came out the same."
            .to_owned(),
        columns: vec![
            "prefill tokens, off",
            "prefill tokens, on",
            "saved",
            "TTFT ms, off",
            "TTFT ms, on",
            "TTFT off/on",
            "time off/on",
            "same answers",
        ],
        rows,
        plot: Some(Plot::Bars {
            columns: vec![3, 4],
            unit: "ms to the first token",
        }),
    })
}

struct PrefixNumbers {
    prefill_tokens: f64,
    ttft_ms: Option<f64>,
    seconds: f64,
}

fn measure<E: Executor>(
    bench: &mut Bench<'_, E>,
    rounds: &Rounds,
    is_on: bool,
) -> Result<(PrefixNumbers, Vec<Vec<TokenId>>)> {
    let mut config = bench.config.clone();
    config.prefix_cache.enabled = is_on;
    let mut meter = Meter::new(config, &mut *bench.executor)?;
    let mut all: Vec<Outcome> = Vec::new();
    let mut histories: Vec<Vec<TokenId>> = Vec::new();
    for round in rounds {
        let prompts: Vec<Vec<TokenId>> = round
            .iter()
            .map(|turn| {
                let before = turn.continues.map(|index| histories[index].as_slice());
                [before.unwrap_or_default(), &turn.tokens].concat()
            })
            .collect();
        let requests = prompts.iter().zip(round);
        let requests = requests.map(|(prompt, turn)| request(prompt.clone(), turn.output_len));
        let outcomes = meter.run(requests.collect())?;
        histories = prompts
            .into_iter()
            .zip(&outcomes)
            .map(|(prompt, outcome)| [prompt, answer(outcome)].concat())
            .collect();
        all.extend(outcomes);
    }
    let computed = |outcome: &Outcome| outcome.usage.prompt_tokens - outcome.usage.cached_tokens;
    let numbers = PrefixNumbers {
        prefill_tokens: all.iter().map(computed).sum::<usize>() as f64,
        ttft_ms: mean(all.iter().filter_map(ttft_ms)),
        seconds: meter.seconds,
    };
    Ok((numbers, all.iter().map(answer).collect()))
}

fn answer(outcome: &Outcome) -> Vec<TokenId> {
    let samples = outcome.samples.iter().take(1);
    samples
        .flat_map(|sample| sample.tokens.iter().map(|token| token.token))
        .collect()
}

fn equal_share(left: &[Vec<TokenId>], right: &[Vec<TokenId>]) -> f64 {
    let num_equal = left.iter().zip(right).filter(|(a, b)| a == b).count();
    num_equal as f64 / left.len().max(1) as f64
}

/// A few conversations whose turns come in rounds, under one instruction.
fn chat<E: Executor>(bench: &mut Bench<'_, E>) -> Rounds {
    let (num_chats, num_turns) = (4, bench.scaled(4).max(2));
    let instruction = bench.workload.tokens(bench.tokens(64));
    let (said_len, output_len) = (bench.tokens(24), bench.tokens(16));
    let turn = |workload: &mut Workload, round: usize, chat: usize| {
        let said = workload.tokens(said_len);
        Turn {
            tokens: if round == 0 {
                [instruction.clone(), said].concat()
            } else {
                said
            },
            continues: (round > 0).then_some(chat),
            output_len,
        }
    };
    (0..num_turns)
        .map(|round| {
            (0..num_chats)
                .map(|chat| turn(&mut bench.workload, round, chat))
                .collect()
        })
        .collect()
}

/// A few documents, each asked about several times.
fn documents<E: Executor>(bench: &mut Bench<'_, E>) -> Rounds {
    let num_questions = bench.scaled(4).max(2);
    let documents: Vec<_> = (0..3)
        .map(|_| bench.workload.tokens(bench.tokens(256)))
        .collect();
    rounds_over(bench, num_questions, &documents)
}

/// One instruction with many inputs, a few at a time.
fn template<E: Executor>(bench: &mut Bench<'_, E>) -> Rounds {
    let num_rounds = bench.scaled(4).max(2);
    let instruction = bench.workload.tokens(bench.tokens(192));
    rounds_over(bench, num_rounds, &vec![instruction; 3])
}

fn rounds_over<E: Executor>(
    bench: &mut Bench<'_, E>,
    num_rounds: usize,
    beginnings: &[Vec<TokenId>],
) -> Rounds {
    let (own_len, output_len) = (bench.tokens(16), bench.tokens(8));
    let mut round = || {
        let turns = beginnings.iter().map(|beginning| Turn {
            tokens: [beginning.clone(), bench.workload.tokens(own_len)].concat(),
            continues: None,
            output_len,
        });
        turns.collect()
    };
    (0..num_rounds).map(|_| round()).collect()
}

/// Blocks of several samples and beams against those of as many separate requests.
fn shared_blocks<E: Executor>(bench: &mut Bench<'_, E>) -> Result<Section> {
    let (prompt_len, output_len) = (
        bench.tokens(bench.scaled(256)),
        bench.tokens(bench.scaled(24)),
    );
    let prompt = bench.workload.tokens(prompt_len);
    let mut config = bench.config.clone();
    config.prefix_cache.enabled = false;
    let mut rows = Vec::new();
    for width in [2_u32, 4, 8] {
        let one = request(prompt.clone(), output_len);
        let mut sampled = one.clone();
        sampled.sampling.temperature = 1.0;
        sampled.output.num_samples = width;
        let mut beams = one.clone();
        beams.output = OutputParams {
            beam: Some(BeamParams {
                width,
                length_penalty: 1.0,
                early_stopping: false,
            }),
            ..OutputParams::default()
        };
        let separate = blocks_peak(bench, &config, vec![one; width as usize])?;
        let sampled = blocks_peak(bench, &config, vec![sampled])?;
        let beams = blocks_peak(bench, &config, vec![beams])?;
        rows.push(Row {
            label: format!("{width}"),
            values: vec![
                Some(separate),
                Some(sampled),
                Some(beams),
                Some(1.0 - sampled / separate),
                Some(1.0 - beams / separate),
            ],
        });
    }
    Ok(Section {
        title: "Copy-on-write: KV blocks of samples and beams".to_owned(),
        note: format!(
            "Most blocks held at a time for a prompt of {prompt_len} tokens and answers of \
             {output_len}, as one request with so many samples or beams, and as separate requests. \
             The prefix cache is off."
        ),
        columns: vec![
            "separate requests",
            "samples",
            "beams",
            "saved by samples",
            "saved by beams",
        ],
        rows,
        plot: Some(Plot::Bars {
            columns: vec![0, 1, 2],
            unit: "KV blocks",
        }),
    })
}

fn blocks_peak<E: Executor>(
    bench: &mut Bench<'_, E>,
    config: &EngineConfig,
    requests: Vec<Request>,
) -> Result<f64> {
    let mut meter = Meter::new(config.clone(), &mut *bench.executor)?;
    meter.run(requests)?;
    Ok(meter.blocks_peak as f64)
}

fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    Some(above? / below?)
}
