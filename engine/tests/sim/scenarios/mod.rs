//! Situations by name, most of them such as went wrong in other engines.
//!
//! Neighbours: `../world.rs` runs them; the random workloads of `../simulate.rs` cover what nobody
//! thought of.

mod admission;
mod asynchronous;
mod beams;
mod drafts;
mod failures;
mod limits;
mod prefixes;
mod samples;
mod scheduling;

use forerun_engine::{
    EngineConfig, KvGroupConfig, OutputParams, Request, SamplingParams, StopParams, TokenId,
};

use crate::fake_model::mix;

pub(crate) const VOCAB_SIZE: u32 = 40;
/// End tokens of the scenarios' model.
pub(crate) const EOS: [TokenId; 2] = [TokenId(38), TokenId(39)];
/// What `nan_token` gives for this vocabulary.
pub(crate) const NAN_TOKEN: u32 = 37;

/// One group of `num_blocks` usable blocks, all else ample.
pub(crate) fn config(block_size: usize, num_blocks: usize) -> EngineConfig {
    EngineConfig {
        block_size,
        groups: vec![KvGroupConfig {
            num_blocks: num_blocks + 1,
            window: None,
        }],
        step_tokens_max: 512,
        step_seqs_max: 16,
        max_seq_len: 512,
        vocab_size: VOCAB_SIZE as usize,
        eos_token_ids: EOS.to_vec(),
        prefix_cache: forerun_engine::PrefixCacheConfig::default(),
        scheduling: forerun_engine::SchedulingConfig::default(),
        speculation: forerun_engine::SpeculationConfig::default(),
    }
}

/// A greedy request whose prompt depends on `salt`, which goes on past end tokens.
pub(crate) fn request(salt: u64, num_prompt: usize, max_tokens: u32) -> Request {
    let token = |i| TokenId((mix(salt, i as u64) % u64::from(NAN_TOKEN)) as u32);
    Request {
        prompt: (0..num_prompt).map(token).collect(),
        sampling: SamplingParams {
            seed: salt,
            ..SamplingParams::default()
        },
        stop: StopParams {
            max_tokens: Some(max_tokens),
            ignore_eos: true,
            ..StopParams::default()
        },
        ..Request::default()
    }
}

/// The same, drawn with temperature, `num_samples` times.
pub(crate) fn sampled(salt: u64, num_prompt: usize, max_tokens: u32, num_samples: u32) -> Request {
    let mut request = request(salt, num_prompt, max_tokens);
    request.sampling.temperature = 1.0;
    request.output = OutputParams {
        num_samples,
        ..OutputParams::default()
    };
    request
}
