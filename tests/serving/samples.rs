//! Parallel samples share the blocks of their prompt.

use forerun_engine::{OutputParams, Request, SamplingParams, StopParams};
use forerun_models::devices::DeviceChoice;

use crate::models::{load, tiny};
use crate::run::run;
use crate::workload::tokens;

fn request(num_samples: u32, seed: u64, vocab_size: usize) -> Request {
    Request {
        // 10 whole blocks of 8 and 3 tokens.
        prompt: tokens(3, 83, vocab_size),
        sampling: SamplingParams {
            temperature: 1.0,
            seed,
            ..SamplingParams::default()
        },
        stop: StopParams {
            max_tokens: Some(20),
            ignore_eos: true,
            ..StopParams::default()
        },
        output: OutputParams {
            num_samples,
            ..OutputParams::default()
        },
        ..Request::default()
    }
}

#[test]
fn samples_share_their_prompts_blocks_and_equal_single_requests_with_the_next_seeds() {
    let mut loaded = load(&tiny("llama"), DeviceChoice::Cpu);
    let vocab_size = loaded.config.vocab_size;
    let mut config = loaded.engine_config(512, 8);
    config.prefix_cache.enabled = false;
    let forked = run(&mut loaded.runner, &config, &[request(4, 50, vocab_size)]);
    let single: Vec<_> = (50..54).map(|seed| request(1, seed, vocab_size)).collect();
    let apart = run(&mut loaded.runner, &config, &single);
    for (sample, output) in apart.outputs.iter().enumerate() {
        let forked = &forked.outputs[0].samples[&(sample as u32)];
        assert_eq!(forked.tokens, output.samples[&0].tokens, "sample {sample}");
    }
    // 83 + 19 computed tokens: 13 blocks. Ten are shared, the rest of each sample is its own.
    assert_eq!(apart.num_blocks_max, 4 * 13);
    assert_eq!(forked.num_blocks_max, 10 + 4 * 3);
}
