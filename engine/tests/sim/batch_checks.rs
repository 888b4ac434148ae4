//! What the arrays of a step promise, from their documentation.
//!
//! Neighbours: `fake_executor.rs` asks before it runs anything.

use std::collections::BTreeSet;
use std::ops::Range;

use forerun_engine::{EngineConfig, RowPurpose, StepBatch};

use crate::kv_pool::KvPool;

/// Panics at the first promise that is broken.
pub(crate) fn check(config: &EngineConfig, pool: &KvPool, batch: &StepBatch) {
    check_tokens(config, batch);
    check_rows(config, batch);
    for group in 0..batch.groups.len() {
        check_slots(config, pool, batch, group);
        check_copies(config, batch, group);
    }
}

/// Tokens of sequence `seq`.
pub(crate) fn tokens_of(batch: &StepBatch, seq: usize) -> Range<usize> {
    batch.query_offsets[seq] as usize..batch.query_offsets[seq + 1] as usize
}

fn check_tokens(config: &EngineConfig, batch: &StepBatch) {
    let (num_tokens, num_seqs) = (batch.num_tokens(), batch.num_seqs());
    assert!((1..=config.step_tokens_max).contains(&num_tokens));
    assert!((1..=config.step_seqs_max).contains(&num_seqs));
    assert_eq!(batch.query_offsets.len(), num_seqs + 1);
    assert_eq!(batch.query_offsets[0], 0);
    assert_eq!(batch.query_offsets[num_seqs] as usize, num_tokens);
    assert_eq!(batch.positions.len(), num_tokens);
    assert_eq!(batch.seq_of_token.len(), num_tokens);
    let prefill_max = config.scheduling.prefill_tokens_max.unwrap_or(usize::MAX);
    for seq in 0..num_seqs {
        let tokens = tokens_of(batch, seq);
        assert!(!tokens.is_empty(), "sequence {seq} runs nothing");
        assert!(tokens.len() <= prefill_max, "more than a prompt's share");
        let first = batch.positions[tokens.start];
        for (offset, token) in tokens.clone().enumerate() {
            assert_eq!(batch.positions[token], first + offset as u32);
            assert_eq!(batch.seq_of_token[token], seq as u32);
        }
        assert_eq!(batch.context_lens[seq], first + tokens.len() as u32);
        assert!(batch.context_lens[seq] as usize <= config.seq_len_max());
    }
    let vocab_size = config.vocab_size as u32;
    assert!(batch.token_ids.iter().all(|&token| token < vocab_size));
    let carried: BTreeSet<_> = batch.carried.iter().map(|carried| carried.token).collect();
    assert_eq!(carried.len(), batch.carried.len(), "one origin each");
    for &token in &carried {
        let seq = batch.seq_of_token[token as usize] as usize;
        assert_eq!(token + 1, batch.query_offsets[seq + 1], "the newest token");
        assert_eq!(batch.token_ids[token as usize], 0, "not known yet");
    }
}

fn check_rows(config: &EngineConfig, batch: &StepBatch) {
    let num_rows = batch.num_logit_rows();
    let lens = [
        batch.sampling.len(),
        batch.logit_seqs.len(),
        batch.purposes.len(),
    ];
    assert_eq!(lens, [num_rows; 3]);
    assert!(batch.logit_rows.is_sorted());
    for row in 0..num_rows {
        let (token, seq) = (batch.logit_rows[row], batch.logit_seqs[row]);
        assert_eq!(batch.seq_of_token[token as usize], seq);
        let sampling = &batch.sampling[row];
        let next = batch.positions[token as usize] + 1;
        assert_eq!(sampling.position, next, "a row draws what comes next");
        let is_last = token + 1 == batch.query_offsets[seq as usize + 1];
        match batch.purposes[row] {
            RowPurpose::PromptScore { position } => {
                assert!(sampling.target.is_some() && position == next);
            }
            RowPurpose::Sample { .. } | RowPurpose::Candidates => {
                assert!(sampling.target.is_none() && is_last);
            }
        }
        let history = sampling.history.0 as usize..sampling.history.1 as usize;
        let history = &batch.history[history];
        assert!(history.is_sorted_by(|a, b| a.token < b.token), "distinct");
        let bias = &batch.bias[sampling.bias.0 as usize..sampling.bias.1 as usize];
        let biased: BTreeSet<_> = bias.iter().map(|bias| bias.token).collect();
        assert_eq!(biased.len(), bias.len(), "one bias for each token");
        if let Some(mask) = sampling.mask {
            assert_eq!(batch.mask_words, config.vocab_size.div_ceil(32));
            assert!((mask as usize + 1) * batch.mask_words <= batch.masks.len());
        }
    }
}

fn check_slots(config: &EngineConfig, pool: &KvPool, batch: &StepBatch, group: usize) {
    let arrays = &batch.groups[group];
    let (num_seqs, width) = (batch.num_seqs(), arrays.blocks_per_seq);
    assert_eq!(arrays.block_tables.len(), num_seqs * width);
    let block_size = config.block_size;
    let num_blocks = config.groups[group].num_blocks as u32;
    assert!(arrays.block_tables.iter().all(|&block| block < num_blocks));
    let mut written = BTreeSet::new();
    for (token, &slot) in arrays.slot_mapping.iter().enumerate() {
        let seq = batch.seq_of_token[token] as usize;
        let slot = slot as usize;
        assert_eq!(slot, pool.slot(batch, group, seq, batch.positions[token]));
        assert!(slot >= block_size, "slot {slot} is in the null block");
        assert!(written.insert(slot), "slot {slot} is written twice");
        let block = (slot / block_size) as u32;
        let holders = (0..num_seqs).filter(|&other| {
            let num_held = (batch.context_lens[other] as usize).div_ceil(block_size);
            let row = &arrays.block_tables[other * width..other * width + num_held];
            row.contains(&block)
        });
        assert_eq!(
            holders.collect::<Vec<_>>(),
            [seq],
            "block {block} is shared"
        );
    }
    assert_eq!(written.len(), batch.num_tokens());
}

fn check_copies(config: &EngineConfig, batch: &StepBatch, group: usize) {
    let copies = &batch.groups[group].block_copies;
    let num_blocks = config.groups[group].num_blocks;
    let destinations: BTreeSet<_> = copies.iter().map(|&(_, to)| to).collect();
    assert_eq!(destinations.len(), copies.len(), "one source each");
    for &(source, destination) in copies {
        assert!(
            !destinations.contains(&source),
            "copies depend on each other"
        );
        let ends = [source.index(), destination.index()];
        assert!(ends.iter().all(|end| (1..num_blocks).contains(end)));
    }
}
