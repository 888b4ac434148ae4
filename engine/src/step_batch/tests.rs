//! A batch is a function of its plan.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::rank::{Rank, Urgency};
use crate::scheduler::ScheduledSeq;
use crate::sequence::{Draws, SequenceParts};
use crate::stop::StopConditions;
use crate::{CacheKeys, EngineConfig, KvGroupConfig, SamplingParams, StopParams};

fn config() -> EngineConfig {
    EngineConfig {
        block_size: 4,
        groups: [90, 70]
            .map(|num_blocks| KvGroupConfig {
                num_blocks,
                window: None,
            })
            .to_vec(),
        step_tokens_max: 500,
        step_seqs_max: 8,
        max_seq_len: 200,
        vocab_size: 1000,
        eos_token_ids: vec![TokenId(900)],
        prefix_cache: crate::PrefixCacheConfig::default(),
        scheduling: crate::SchedulingConfig::default(),
        speculation: crate::SpeculationConfig::default(),
    }
}

/// What a batch is built from.
struct Planned {
    sequences: SequenceStore,
    blocks: BlockManager,
    plan: StepPlan,
}

impl Planned {
    fn build(&mut self, batch: &mut StepBatch) {
        let mut failures = Vec::new();
        batch.build(&self.plan, &mut self.sequences, &self.blocks, &mut failures);
        assert!(failures.is_empty());
    }
}

fn parts(index: usize, num_tokens: usize, blocks: &BlockManager) -> SequenceParts {
    let request = RequestId(index as u64);
    let stop = StopParams {
        min_tokens: 3,
        ..StopParams::default()
    };
    let token = |i| TokenId((100 * index + i) as u32);
    SequenceParts {
        request,
        rank: Rank {
            urgency: Urgency::Normal,
            priority: 0,
            request,
            sibling: 0,
        },
        prompt: (0..num_tokens).map(token).collect(),
        sampling: Arc::new(SamplingParams {
            temperature: index as f32,
            seed: 7 + index as u64,
            frequency_penalty: if index == 1 { 0.5 } else { 0.0 },
            ..SamplingParams::default()
        }),
        stop: StopConditions::new(&stop, num_tokens, &config()),
        tables: blocks.new_tables(),
        chain: blocks.new_chain(&CacheKeys::default()),
        draws: if index == 2 {
            Draws::Fork(2)
        } else {
            Draws::One
        },
        prompt_scores: None,
        logprobs: None,
        is_logged: false,
        verification: crate::Verification::SharedNoise,
    }
}

/// Sequences of `(num_tokens, num_computed, num_scheduled)` with slots for what they run. The second
/// has a penalty, the third forks into two samples.
fn planned(sizes: &[(usize, usize, usize)]) -> Planned {
    let mut blocks = BlockManager::new(&config());
    let mut sequences = SequenceStore::default();
    let mut plan = StepPlan::default();
    for (index, &(num_tokens, num_computed, num_scheduled)) in sizes.iter().enumerate() {
        let parts = parts(index, num_tokens, &blocks);
        let sequence = sequences.insert(|name| Sequence::new(name, parts));
        sequence.num_computed = num_computed;
        let num_slots = num_computed + num_scheduled;
        blocks
            .reserve(&mut sequence.tables, num_computed, num_slots)
            .unwrap();
        plan.scheduled.push(ScheduledSeq {
            seq: sequence.id,
            generation: sequence.generation,
            num_computed,
            num_scheduled,
            num_drafts: 0,
            has_copies: false,
        });
        plan.num_tokens += num_scheduled;
    }
    Planned {
        sequences,
        blocks,
        plan,
    }
}

#[test]
fn a_prefill_chunk_a_decode_and_a_last_chunk_make_one_ragged_batch() {
    // Tables: blocks 1 and 2, then 3 and 4, then 5.
    let mut planned = planned(&[(9, 2, 3), (6, 5, 1), (3, 0, 3)]);
    let mut batch = StepBatch::new(2, 1000);
    planned.build(&mut batch);
    assert_eq!(batch.token_ids, [2, 3, 4, 105, 200, 201, 202]);
    assert_eq!(batch.positions, [2, 3, 4, 5, 0, 1, 2]);
    assert_eq!(batch.seq_of_token, [0, 0, 0, 1, 2, 2, 2]);
    assert_eq!(batch.query_offsets, [0, 3, 4, 7]);
    assert_eq!(batch.context_lens, [5, 6, 3]);
    let rows = [3, 6, 6];
    assert_eq!(batch.logit_rows, rows, "the first has more prompt to run");
    assert_eq!(batch.logit_seqs, [1, 2, 2]);
    let sample = |sample| RowPurpose::Sample { sample };
    assert_eq!(batch.purposes, [sample(0), sample(0), sample(1)]);
    let rows: Vec<_> = batch.sampling.iter().collect();
    let noise: Vec<_> = rows.iter().map(|row| (row.seed, row.position)).collect();
    assert_eq!(noise, [(8, 6), (9, 3), (10, 3)]);
    let histories: Vec<_> = rows.iter().map(|row| row.history).collect();
    assert_eq!(histories, [(0, 6), (6, 6), (6, 6)]);
    assert!(batch.history.iter().all(|count| count.is_in_prompt));
    let bans: Vec<_> = batch.bias.iter().map(|ban| ban.token.0).collect();
    assert_eq!(bans, [900, 900], "both are shorter than their least");
    let biases: Vec<_> = rows.iter().map(|row| row.bias).collect();
    assert_eq!(biases, [(0, 1), (1, 2), (1, 2)]);
    for group in &batch.groups {
        assert_eq!(group.slot_mapping, [6, 7, 8, 17, 20, 21, 22]);
        assert_eq!(group.block_tables, [1, 2, 3, 4, 5, 0]);
        assert_eq!(group.blocks_per_seq, 2);
    }
}

#[test]
fn a_token_on_its_way_is_carried_and_its_row_knows_that_the_history_lacks_it() {
    let mut planned = planned(&[(9, 2, 3), (6, 6, 1)]);
    let sequence = planned.sequences.get_mut(crate::SeqId(1));
    sequence.num_placeholders = 1;
    sequence.placeholder_row = Some(4);
    let mut batch = StepBatch::new(2, 1000);
    planned.build(&mut batch);
    assert_eq!(batch.token_ids, [2, 3, 4, 0]);
    assert_eq!(batch.carried, [CarriedToken { token: 3, row: 4 }]);
    assert_eq!(batch.positions[3], 6);
    assert_eq!(batch.sampling[0].position, 7);
    assert_eq!(batch.sampling[0].carried_row, Some(4));
    assert_eq!(batch.history.len(), 6);
}

/// Sizes of a sequence that runs at least one token.
fn sizes() -> impl Strategy<Value = (usize, usize, usize)> {
    (0..20_usize, 1..12_usize, 0..9_usize)
        .prop_map(|(computed, scheduled, rest)| (computed + scheduled + rest, computed, scheduled))
}

proptest! {
    #[test]
    fn building_depends_on_the_plan_alone_and_offsets_are_prefix_sums(
        before in prop::collection::vec(sizes(), 0..6),
        sizes in prop::collection::vec(sizes(), 1..6),
    ) {
        let mut planned_now = planned(&sizes);
        let mut fresh = StepBatch::new(2, 1000);
        planned_now.build(&mut fresh);
        let mut reused = StepBatch::new(2, 1000);
        planned(&before).build(&mut reused);
        planned_now.build(&mut reused);
        prop_assert_eq!(&fresh, &reused);

        let mut sum = 0;
        for (seq, &(num_tokens, num_computed, num_scheduled)) in sizes.iter().enumerate() {
            prop_assert_eq!(fresh.query_offsets[seq], sum);
            sum += num_scheduled as u32;
            let has_row = fresh.logit_seqs.contains(&(seq as u32));
            prop_assert_eq!(has_row, num_computed + num_scheduled == num_tokens);
        }
        prop_assert_eq!(fresh.query_offsets.last(), Some(&sum));
        prop_assert_eq!(fresh.num_tokens() as u32, sum);
    }
}
