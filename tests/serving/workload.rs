//! Requests of every kind: lengths, shared beginnings, seeds, samplers, samples and beams.

use forerun_engine::{
    BeamParams, LogprobsKind, LogprobsParams, OutputParams, Request, SamplingParams, StopParams,
    TokenId,
};

/// A step of SplitMix64: numbers that only have to differ.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `len` tokens below `vocab_size`.
pub(crate) fn tokens(salt: u64, len: usize, vocab_size: usize) -> Vec<TokenId> {
    (0..len as u64)
        .map(|i| TokenId((mix(salt * 1000 + i) % vocab_size as u64) as u32))
        .collect()
}

/// 32 requests. Every third begins like the first, one repeats another whole.
pub(crate) fn mixed(vocab_size: usize, num_tokens: u32) -> Vec<Request> {
    let shared = tokens(7, 45, vocab_size);
    let mut requests: Vec<Request> = (0..31_u64)
        .map(|i| {
            let mut prompt = if i % 3 == 0 {
                shared[..20 + i as usize % 26].to_vec()
            } else {
                Vec::new()
            };
            prompt.extend(tokens(100 + i, 1 + (i as usize * 7) % 40, vocab_size));
            Request {
                prompt,
                sampling: sampling(i),
                stop: StopParams {
                    max_tokens: Some(1 + (i as u32 * 5) % num_tokens),
                    min_tokens: u32::from(i % 4 == 1),
                    ignore_eos: i % 2 == 0,
                    ..StopParams::default()
                },
                output: output(i),
                ..Request::default()
            }
        })
        .collect();
    requests.push(requests[9].clone());
    requests
}

fn sampling(i: u64) -> SamplingParams {
    let drawn = SamplingParams {
        temperature: 0.9,
        seed: 40 + i,
        ..SamplingParams::default()
    };
    match i % 8 {
        0 | 5 => SamplingParams::default(),
        1 => drawn,
        2 => SamplingParams { top_k: 9, ..drawn },
        3 => SamplingParams {
            top_p: 0.8,
            ..drawn
        },
        4 => SamplingParams {
            min_p: 0.02,
            temperature: 1.4,
            typical_p: 0.9,
            ..drawn
        },
        6 => SamplingParams {
            repetition_penalty: 1.3,
            presence_penalty: 0.4,
            frequency_penalty: 0.2,
            ..drawn
        },
        _ => SamplingParams {
            logit_bias: vec![(TokenId(3), 4.0), (TokenId(5), f32::NEG_INFINITY)],
            repetition_penalty: 0.8,
            ..SamplingParams::default()
        },
    }
}

fn output(i: u64) -> OutputParams {
    let logprobs = Some(LogprobsParams {
        num_top: 4,
        kind: if i.is_multiple_of(2) {
            LogprobsKind::Raw
        } else {
            LogprobsKind::Processed
        },
    });
    let one = OutputParams::default();
    match i % 10 {
        1 => OutputParams {
            num_samples: 3,
            ..one
        },
        4 => OutputParams { logprobs, ..one },
        6 => OutputParams {
            num_samples: 2,
            best_of: Some(4),
            logprobs,
            ..one
        },
        7 => OutputParams {
            beam: Some(BeamParams {
                width: 3,
                length_penalty: 1.0,
                early_stopping: false,
            }),
            num_samples: 2,
            ..one
        },
        9 => OutputParams {
            prompt_logprobs: Some(2),
            ..one
        },
        _ => one,
    }
}
