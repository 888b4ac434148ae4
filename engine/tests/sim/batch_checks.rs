//! What the arrays of a step promise, from their documentation.
//!
//! Neighbours: `fake_executor.rs` asks before it runs anything.

use std::collections::BTreeSet;
use std::ops::Range;

use forerun_engine::{EngineConfig, RowPurpose, StepBatch};

use crate::kv_pool::{KvPool, place_of};

/// Panics at the first promise that is broken.
pub(crate) fn check(config: &EngineConfig, pool: &KvPool, batch: &StepBatch) {
    check_tokens(config, batch);
    check_rows(config, batch);
    for group in 0..batch.groups.len() {
        check_slots(config, pool, batch, group);
        check_copies(config, batch, group);
    }
}

/// Panics at the first promise that a draft pass breaks. Its groups are those of `config`.
pub(crate) fn check_pass(config: &EngineConfig, pool: &KvPool, batch: &StepBatch) {
    assert!(batch.num_tokens() <= config.step_tokens_max);
    assert_eq!(batch.query_offsets.len(), batch.num_seqs() + 1);
    check_tails(batch);
    for (seq, context_len) in batch.context_lens.iter().enumerate() {
        let tokens = tokens_of(batch, seq);
        let end = batch.positions[tokens.end - 1] + 1;
        assert_eq!(*context_len, end);
        assert_eq!(batch.positions[tokens.start] + tokens.len() as u32, end);
    }
    for row in 0..batch.num_logit_rows() {
        let (token, seq) = (batch.logit_rows[row], batch.logit_seqs[row] as usize);
        assert_eq!(token + 1, batch.query_offsets[seq + 1], "the newest token");
        let next = batch.positions[token as usize] + 1;
        assert_eq!(batch.sampling[row].position, next);
    }
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
    let planned: BTreeSet<_> = batch.seqs.iter().map(|entry| entry.planned).collect();
    assert!((1..=config.step_seqs_max).contains(&planned.len()));
    assert!(batch.seqs.is_sorted_by_key(|entry| entry.planned));
    check_tails(batch);
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

/// A tail says where the path of an entry lies: behind the known tokens, parents first.
fn check_tails(batch: &StepBatch) {
    let num_seqs = batch.num_seqs();
    assert_eq!(batch.tail_bases.len(), num_seqs);
    assert_eq!(batch.tail_offsets.len(), num_seqs + 1);
    assert_eq!(batch.tail_offsets[num_seqs] as usize, batch.tails.len());
    for seq in 0..num_seqs {
        let (base, end) = (batch.tail_bases[seq], batch.context_lens[seq]);
        let tail = batch.tail_offsets[seq] as usize..batch.tail_offsets[seq + 1] as usize;
        assert_eq!(tail.len() as u32, end - base);
        let tail = &batch.tails[tail];
        assert!(tail.is_sorted() && tail.iter().all(|&place| place >= base));
        let is_first = seq == 0 || batch.seqs[seq].planned != batch.seqs[seq - 1].planned;
        assert!(is_first == tail.is_empty(), "branches have tails");
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
            RowPurpose::Sample { .. } if sampling.num_drafts > 0 => {
                let rows = row + 1..row + 1 + sampling.num_drafts as usize;
                let is_draft = |row| matches!(batch.purposes[row], RowPurpose::Draft { .. });
                assert!(rows.clone().all(is_draft));
                assert!(
                    rows.clone()
                        .all(|r| batch.logit_rows[r] == token + (r - row) as u32)
                );
            }
            RowPurpose::Sample { .. } | RowPurpose::Candidates => {
                assert!(sampling.target.is_none() && is_last);
            }
            RowPurpose::Draft { .. } => {
                let parent = sampling.parent_row.expect("a draft has a parent") as usize;
                assert!(parent < row);
                assert_eq!(batch.sampling[parent].position + 1, sampling.position);
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
        let own = place_of(batch, seq, batch.positions[token]);
        assert_eq!(
            slot,
            pool.slot(batch, group, seq, batch.positions[token]),
            "{own}"
        );
        assert!(slot >= block_size, "slot {slot} is in the null block");
        assert!(written.insert(slot), "slot {slot} is written twice");
        let block = (slot / block_size) as u32;
        let holders = (0..num_seqs).filter(|&other| {
            let num_held = (batch.context_lens[other] as usize).div_ceil(block_size);
            let row = &arrays.block_tables[other * width..other * width + num_held];
            row.contains(&block)
        });
        let owner = batch.seqs[seq].planned;
        let mut holders = holders.map(|other| batch.seqs[other].planned);
        assert!(
            holders.all(|holder| holder == owner),
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
