//! The block manager and the prefix cache, per block: "item" is a block of 16 tokens.
//!
//! `cargo bench -p forerun-benches --bench block_manager`. One thread. The pool has 16,384 blocks,
//! more than fit the nearest caches.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use forerun_engine::{
    BlockManager, BlockTable, CacheKeys, EngineConfig, HashChain, KvGroupConfig, PrefixCacheConfig,
    SchedulingConfig, TokenId,
};

const BLOCK_SIZE: usize = 16;
const NUM_BLOCKS: usize = 16_384;
/// Blocks of the sequence that is measured.
const SEQUENCE_BLOCKS: usize = 256;
const SEQUENCE_TOKENS: usize = SEQUENCE_BLOCKS * BLOCK_SIZE;

fn main() {
    divan::main();
}

fn manager() -> BlockManager {
    BlockManager::new(&EngineConfig {
        block_size: BLOCK_SIZE,
        groups: vec![KvGroupConfig {
            num_blocks: NUM_BLOCKS,
            window: None,
        }],
        step_tokens_max: 2048,
        step_seqs_max: 256,
        max_seq_len: 1 << 17,
        vocab_size: 1 << 17,
        eos_token_ids: Vec::new(),
        prefix_cache: PrefixCacheConfig::default(),
        scheduling: SchedulingConfig::default(),
        speculation: forerun_engine::SpeculationConfig::default(),
    })
}

/// Tokens of sequence `number`, unlike those of any other.
fn tokens(number: u32) -> Vec<TokenId> {
    (0..SEQUENCE_TOKENS as u32)
        .map(|position| TokenId(number * 7919 + position * 31))
        .collect()
}

/// Computes and publishes `tokens`, and ends.
fn serve(blocks: &mut BlockManager, tables: &mut [BlockTable], tokens: &[TokenId]) {
    let mut chain = blocks.new_chain(&CacheKeys::default());
    reserve(blocks, tables, tokens.len());
    blocks.release_published(tables, &mut chain, tokens, tokens.len());
}

fn reserve(blocks: &mut BlockManager, tables: &mut [BlockTable], num_tokens: usize) {
    let reserved = blocks.reserve(tables, 0, num_tokens);
    reserved.expect("the pool is larger than a sequence");
}

/// A pool in which every block is cached: whatever is allocated evicts.
fn full_of_sequences() -> BlockManager {
    let mut blocks = manager();
    let mut tables = blocks.new_tables();
    for number in 0..=(NUM_BLOCKS / SEQUENCE_BLOCKS) as u32 {
        serve(&mut blocks, &mut tables, &tokens(number));
    }
    blocks
}

#[divan::bench]
fn allocate_and_free(bencher: Bencher) {
    let mut blocks = manager();
    let mut tables = blocks.new_tables();
    bencher
        .counter(ItemsCount::new(SEQUENCE_BLOCKS))
        .bench_local(|| {
            reserve(&mut blocks, &mut tables, SEQUENCE_TOKENS);
            blocks.release(&mut tables);
        });
}

/// With an eviction and a publication for each block, hashed anew.
#[divan::bench]
fn allocate_publish_and_free_in_a_full_pool(bencher: Bencher) {
    let mut blocks = full_of_sequences();
    let mut tables = blocks.new_tables();
    let mut number = 1000;
    bencher
        .counter(ItemsCount::new(SEQUENCE_BLOCKS))
        .with_inputs(|| {
            number += 1;
            tokens(number)
        })
        .bench_local_refs(|tokens| serve(&mut blocks, &mut tables, tokens));
}

/// Hashing included.
#[divan::bench]
fn lookup(bencher: Bencher) {
    let blocks = full_of_sequences();
    let tokens = tokens(20);
    bencher
        .counter(ItemsCount::new(SEQUENCE_BLOCKS))
        .with_inputs(|| chain(&blocks))
        .bench_local_refs(|chain| find(&blocks, chain, &tokens));
}

/// A request that waits is looked up again: its chain is known.
#[divan::bench]
fn lookup_again(bencher: Bencher) {
    let blocks = full_of_sequences();
    let tokens = tokens(20);
    let mut chain = chain(&blocks);
    bencher
        .counter(ItemsCount::new(SEQUENCE_BLOCKS))
        .bench_local(|| find(&blocks, &mut chain, &tokens));
}

fn chain(blocks: &BlockManager) -> HashChain {
    let mut chain = blocks.new_chain(&CacheKeys::default());
    chain.reserve(SEQUENCE_TOKENS);
    chain
}

fn find(blocks: &BlockManager, chain: &mut HashChain, tokens: &[TokenId]) {
    let hit = blocks.lookup(chain, black_box(tokens), SEQUENCE_TOKENS);
    assert_eq!(hit.num_tokens, SEQUENCE_TOKENS);
    black_box(hit);
}
