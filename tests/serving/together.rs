//! 32 requests in one batch give exactly the tokens each gives alone: with an ample pool, with one so
//! small that requests are preempted, without prefix cache, with another chunk size.

use std::path::Path;

use forerun_engine::{EngineConfig, Request};
use forerun_models::devices::DeviceChoice;
use forerun_models::model::LoadedModel;
use forerun_tests::real_models;

use crate::models::{load, tiny};
use crate::run::{Output, Run, run};
use crate::workload::mixed;

/// Each request in an engine of its own: nothing cached, one step in flight.
fn alone(loaded: &mut LoadedModel, requests: &[Request]) -> Vec<Output> {
    let mut config = loaded.engine_config(512, 16);
    config.prefix_cache.enabled = false;
    config.scheduling.steps_in_flight_max = 1;
    let one = |request| {
        let mut run = run(&mut loaded.runner, &config, std::slice::from_ref(request));
        run.outputs.remove(0)
    };
    requests.iter().map(one).collect()
}

fn together(loaded: &mut LoadedModel, config: &EngineConfig, requests: &[Request]) -> Run {
    run(&mut loaded.runner, config, requests)
}

fn assert_same(found: &Run, expected: &[Output], what: &str) {
    for (index, (found, expected)) in found.outputs.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "{what}: request {index}");
    }
}

/// Blocks that the longest of these requests needs, and some more.
fn small_pool(config: &EngineConfig, requests: &[Request]) -> EngineConfig {
    let longest = requests
        .iter()
        .map(|r| r.prompt.len() + r.stop.max_tokens.unwrap_or(0) as usize)
        .max()
        .unwrap_or(0);
    let mut config = config.clone();
    for group in &mut config.groups {
        group.num_blocks = 2 + 2 * longest.div_ceil(config.block_size);
    }
    config
}

fn check(path: &Path, num_tokens: u32) {
    let mut loaded = load(path, DeviceChoice::Cpu);
    let requests = mixed(loaded.config.vocab_size, num_tokens);
    let expected = alone(&mut loaded, &requests);

    let config = loaded.engine_config(64, 16);
    let ample = together(&mut loaded, &config, &requests);
    assert_same(&ample, &expected, "ample pool");
    let hits: usize = ample.usages.iter().map(|usage| usage.cached_tokens).sum();
    assert!(hits > 0, "no prefix was shared");

    let small = small_pool(&config, &requests);
    let tight = together(&mut loaded, &small, &requests);
    assert_same(&tight, &expected, "small pool");
    let num_preemptions = tight.statistics.engine.num_preemptions;
    assert!(num_preemptions > 0, "the pool is too large to preempt");

    let mut uncached = config.clone();
    uncached.prefix_cache.enabled = false;
    assert_same(
        &together(&mut loaded, &uncached, &requests),
        &expected,
        "no prefix cache",
    );

    let mut chunked = loaded.engine_config(19, 11);
    chunked.scheduling.prefill_tokens_max = Some(7);
    assert_same(
        &together(&mut loaded, &chunked, &requests),
        &expected,
        "chunks of 7",
    );
}

#[test]
fn tiny_models_give_each_request_what_it_gives_alone() {
    // One KV group; two, of which one has windows of 8 tokens.
    for name in ["llama", "gemma3"] {
        check(&tiny(name), 30);
    }
}

#[test]
fn smollm2_gives_each_request_what_it_gives_alone() {
    check(&real_models::path(real_models::SMOLLM2), 24);
}
