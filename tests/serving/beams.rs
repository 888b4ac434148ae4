//! Beam search equals a search written down naively over the logits of whole sequences.

use forerun_engine::{
    BeamParams, EngineConfig, LogprobsKind, LogprobsParams, OutputParams, Request, SamplingParams,
    StopParams, TokenId,
};
use forerun_models::devices::DeviceChoice;
use forerun_models::model::LoadedModel;

use crate::models::{load, tiny};
use crate::run::run;
use crate::workload::tokens;

/// Log-probabilities of every next token, computed for the whole text from scratch.
fn next_logprobs(loaded: &mut LoadedModel, config: &EngineConfig, text: &[TokenId]) -> Vec<f32> {
    let vocab_size = loaded.config.vocab_size;
    // More than a row brings down in one go, so banned tokens make room.
    let mut logprobs = vec![f32::NEG_INFINITY; vocab_size];
    let num_top = config.logprobs_max() as u32;
    let request = |logit_bias: Vec<(TokenId, f32)>| Request {
        prompt: text.to_vec(),
        sampling: SamplingParams {
            logit_bias,
            ..SamplingParams::default()
        },
        stop: StopParams {
            max_tokens: Some(1),
            ..StopParams::default()
        },
        output: OutputParams {
            logprobs: Some(LogprobsParams {
                num_top,
                kind: LogprobsKind::Raw,
            }),
            ..OutputParams::default()
        },
        ..Request::default()
    };
    let output = run(&mut loaded.runner, config, &[request(Vec::new())]);
    for &(token, bits) in &output.outputs[0].samples[&0].logprobs[0][1..] {
        logprobs[token as usize] = f32::from_bits(bits);
    }
    logprobs
}

struct Beam {
    text: Vec<TokenId>,
    sum: f64,
}

/// Breadth-first: all continuations of all beams, the best `width` go on.
fn naive(
    loaded: &mut LoadedModel,
    config: &EngineConfig,
    prompt: &[TokenId],
    width: usize,
    depth: usize,
) -> Vec<Vec<u32>> {
    let mut beams = vec![Beam {
        text: prompt.to_vec(),
        sum: 0.0,
    }];
    for _ in 0..depth {
        let mut all = Vec::new();
        for beam in &beams {
            let logprobs = next_logprobs(loaded, config, &beam.text);
            let mut order: Vec<usize> = (0..logprobs.len()).collect();
            order.sort_by(|&a, &b| logprobs[b].total_cmp(&logprobs[a]));
            for token in order.into_iter().take(2 * width) {
                let mut text = beam.text.clone();
                text.push(TokenId(token as u32));
                let sum = beam.sum + f64::from(logprobs[token]);
                all.push(Beam { text, sum });
            }
        }
        all.sort_by(|a, b| b.sum.total_cmp(&a.sum));
        all.truncate(width);
        beams = all;
    }
    let generated = |beam: &Beam| beam.text[prompt.len()..].iter().map(|t| t.0).collect();
    beams.iter().map(generated).collect()
}

#[test]
fn beams_equal_a_naive_search_over_whole_sequences() {
    let mut loaded = load(&tiny("llama"), DeviceChoice::Cpu);
    let mut config = loaded.engine_config(512, 16);
    config.prefix_cache.enabled = false;
    for (salt, width, depth) in [(1, 2, 9), (2, 5, 7), (3, 4, 12)] {
        let prompt = tokens(salt, 11 + salt as usize, loaded.config.vocab_size);
        let request = Request {
            prompt: prompt.clone(),
            stop: StopParams {
                max_tokens: Some(depth as u32),
                ignore_eos: true,
                ..StopParams::default()
            },
            output: OutputParams {
                num_samples: width as u32,
                beam: Some(BeamParams {
                    width: width as u32,
                    length_penalty: 1.0,
                    early_stopping: false,
                }),
                ..OutputParams::default()
            },
            ..Request::default()
        };
        let found = run(&mut loaded.runner, &config, &[request]);
        let found: Vec<_> = found.outputs[0]
            .samples
            .values()
            .map(|s| s.tokens.clone())
            .collect();
        let expected = naive(&mut loaded, &config, &prompt, width, depth);
        assert_eq!(found, expected, "width {width}, depth {depth}");
    }
}
