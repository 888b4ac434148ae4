//! The flat arrays of one step, in the form in which kernels read them.
//!
//! Neighbours: built from the plan of `scheduler.rs`; read by the executor, which uploads them as
//! one buffer.

use crate::scheduler::StepPlan;
use crate::sequence::Sequence;
use crate::sequence_store::SequenceStore;
use crate::{BlockId, Generation, Position, RequestId, SeqId, TokenId};

/// One ragged batch: T tokens of S sequences, R of which get logits. Reused from step to step, so
/// that building it does not allocate once it has grown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepBatch {
    /// `[S]`: whose tokens these are.
    pub seqs: Vec<BatchSeq>,
    /// `[T]`.
    pub token_ids: Vec<u32>,
    /// `[T]`.
    pub positions: Vec<u32>,
    /// `[T]`: index of the token's sequence, below S.
    pub seq_of_token: Vec<u32>,
    /// `[S + 1]`: prefix sums of the scheduled tokens; tokens `[query_offsets[s],
    /// query_offsets[s + 1])` are those of sequence s.
    pub query_offsets: Vec<u32>,
    /// `[S]`: computed + scheduled tokens.
    pub context_lens: Vec<u32>,
    /// `[R]`: indices below T of the tokens whose logits are wanted, ascending.
    pub logit_rows: Vec<u32>,
    /// `[R]`: index of the row's sequence, below S.
    pub logit_seqs: Vec<u32>,
    /// `[R]`.
    pub sampling: Vec<SamplingRow>,
    /// Blocks to copy before anything is written, as source and destination. Empty until sequences
    /// fork (issue 3).
    pub block_copies: Vec<(BlockId, BlockId)>,
    /// One per KV group.
    pub groups: Vec<GroupBatch>,
}

/// Who a sequence of the batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSeq {
    /// The sequence.
    pub seq: SeqId,
    /// Its generation when the step was planned.
    pub generation: Generation,
    /// The request it belongs to.
    pub request: RequestId,
}

/// One KV group's part of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupBatch {
    /// `[T]`: slots that take the tokens' keys and values.
    pub slot_mapping: Vec<u32>,
    /// `[S, blocks_per_seq]`, row-major: block ids in order of position. Entries past a sequence's
    /// context and those a window has let go are the null block.
    pub block_tables: Vec<u32>,
    /// Row length of `block_tables`: what the longest context of the batch needs.
    pub blocks_per_seq: usize,
}

/// How one logit row is sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingRow {
    /// 0 is greedy.
    pub temperature: f32,
    /// Seed of the request's noise.
    pub seed: u64,
    /// Position that the sampled token will take: with the seed it selects the noise.
    pub position: u32,
}

impl StepBatch {
    /// An empty batch over `num_groups` KV groups.
    pub fn new(num_groups: usize) -> Self {
        Self {
            groups: vec![GroupBatch::default(); num_groups],
            ..Self::default()
        }
    }

    /// T.
    pub fn num_tokens(&self) -> usize {
        self.token_ids.len()
    }

    /// S.
    pub fn num_seqs(&self) -> usize {
        self.seqs.len()
    }

    /// R.
    pub fn num_logit_rows(&self) -> usize {
        self.logit_rows.len()
    }

    /// Fills the batch from a plan: the same plan and sequences give the same arrays.
    pub(crate) fn build(&mut self, plan: &StepPlan, sequences: &SequenceStore, block_size: usize) {
        self.clear();
        for (index, scheduled) in plan.scheduled.iter().enumerate() {
            let sequence = sequences.get(scheduled.seq);
            self.push_tokens(index as u32, sequence, scheduled.num_scheduled);
            if sequence.is_sampled_after(scheduled.num_scheduled) {
                self.push_logit_row(index as u32, sequence);
            }
        }
        let context_len_max = self.context_lens.iter().copied().max().unwrap_or(0) as usize;
        let blocks_per_seq = context_len_max.div_ceil(block_size);
        for scheduled in &plan.scheduled {
            self.push_block_tables(sequences.get(scheduled.seq), blocks_per_seq);
        }
        for group in &mut self.groups {
            group.blocks_per_seq = blocks_per_seq;
        }
    }

    fn clear(&mut self) {
        self.seqs.clear();
        self.token_ids.clear();
        self.positions.clear();
        self.seq_of_token.clear();
        self.query_offsets.clear();
        self.query_offsets.push(0);
        self.context_lens.clear();
        self.logit_rows.clear();
        self.logit_seqs.clear();
        self.sampling.clear();
        self.block_copies.clear();
        for group in &mut self.groups {
            group.slot_mapping.clear();
            group.block_tables.clear();
        }
    }

    fn push_tokens(&mut self, index: u32, sequence: &Sequence, num_scheduled: usize) {
        let start = sequence.num_computed;
        let end = start + num_scheduled;
        let Sequence {
            id: seq,
            generation,
            request,
            ..
        } = *sequence;
        self.seqs.push(BatchSeq {
            seq,
            generation,
            request,
        });
        self.token_ids
            .extend(sequence.tokens[start..end].iter().map(|&TokenId(id)| id));
        self.positions.extend(start as u32..end as u32);
        self.seq_of_token
            .extend(std::iter::repeat_n(index, num_scheduled));
        self.query_offsets.push(self.token_ids.len() as u32);
        self.context_lens.push(end as u32);
        for (group, table) in self.groups.iter_mut().zip(&sequence.tables) {
            let slots = (start as u32..end as u32).map(|p| table.slot_of(Position(p)).0);
            group.slot_mapping.extend(slots);
        }
    }

    fn push_logit_row(&mut self, index: u32, sequence: &Sequence) {
        self.logit_rows.push(self.token_ids.len() as u32 - 1);
        self.logit_seqs.push(index);
        self.sampling.push(SamplingRow {
            temperature: sequence.sampling.temperature,
            seed: sequence.sampling.seed,
            position: sequence.tokens.len() as u32,
        });
    }

    /// One row per group. A table may be longer than the context: surplus blocks stay with a
    /// sequence after an aborted step, and are of no concern to kernels.
    fn push_block_tables(&mut self, sequence: &Sequence, blocks_per_seq: usize) {
        for (group, table) in self.groups.iter_mut().zip(&sequence.tables) {
            let blocks = table.blocks();
            let row_end = group.block_tables.len() + blocks_per_seq;
            let num_read = blocks.len().min(blocks_per_seq);
            group
                .block_tables
                .extend(blocks[..num_read].iter().map(|block| block.0));
            group.block_tables.resize(row_end, BlockId::NULL.0);
        }
    }
}

#[cfg(test)]
mod tests {
    //! A batch is a function of its plan.

    use proptest::prelude::*;

    use super::*;
    use crate::block_manager::BlockManager;
    use crate::scheduler::ScheduledSeq;
    use crate::{EngineConfig, KvGroupConfig, Request, SamplingParams, StopParams};

    const BLOCK_SIZE: usize = 4;

    fn config() -> EngineConfig {
        EngineConfig {
            block_size: BLOCK_SIZE,
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
            eos_token_ids: vec![],
            prefix_cache: crate::PrefixCacheConfig::default(),
        }
    }

    /// Sequences of `(num_tokens, num_computed, num_scheduled)` with slots for what they run.
    fn planned(sizes: &[(usize, usize, usize)]) -> (SequenceStore, StepPlan) {
        let mut blocks = BlockManager::new(&config());
        let mut sequences = SequenceStore::default();
        let mut plan = StepPlan::default();
        for (index, &(num_tokens, num_computed, num_scheduled)) in sizes.iter().enumerate() {
            let request = Request {
                prompt: (0..num_tokens)
                    .map(|i| TokenId((100 * index + i) as u32))
                    .collect(),
                sampling: SamplingParams {
                    temperature: index as f32,
                    seed: 7 + index as u64,
                },
                stop: StopParams::default(),
            };
            let tables = blocks.new_tables();
            let name = sequences.insert(|name| Sequence::new(name, request, tables, &config()));
            let sequence = sequences.get_mut(name.id);
            sequence.num_computed = num_computed;
            blocks
                .reserve(
                    &mut sequence.tables,
                    num_computed,
                    num_computed + num_scheduled,
                )
                .unwrap();
            let generation = name.generation;
            plan.scheduled.push(ScheduledSeq {
                seq: name.id,
                generation,
                num_scheduled,
            });
            plan.num_tokens += num_scheduled;
        }
        (sequences, plan)
    }

    #[test]
    fn a_prefill_chunk_a_decode_and_a_last_chunk_make_one_ragged_batch() {
        // Tables: blocks 1 and 2, then 3 and 4, then 5.
        let (sequences, plan) = planned(&[(9, 2, 3), (6, 5, 1), (3, 0, 3)]);
        let mut batch = StepBatch::new(2);
        batch.build(&plan, &sequences, BLOCK_SIZE);
        assert_eq!(batch.token_ids, [2, 3, 4, 105, 200, 201, 202]);
        assert_eq!(batch.positions, [2, 3, 4, 5, 0, 1, 2]);
        assert_eq!(batch.seq_of_token, [0, 0, 0, 1, 2, 2, 2]);
        assert_eq!(batch.query_offsets, [0, 3, 4, 7]);
        assert_eq!(batch.context_lens, [5, 6, 3]);
        assert_eq!(
            batch.logit_rows,
            [3, 6],
            "the first has more of its prompt to run"
        );
        assert_eq!(batch.logit_seqs, [1, 2]);
        let rows: Vec<_> = batch
            .sampling
            .iter()
            .map(|row| (row.seed, row.position))
            .collect();
        assert_eq!(rows, [(8, 6), (9, 3)]);
        for group in &batch.groups {
            assert_eq!(group.slot_mapping, [6, 7, 8, 17, 20, 21, 22]);
            assert_eq!(group.block_tables, [1, 2, 3, 4, 5, 0]);
            assert_eq!(group.blocks_per_seq, 2);
        }
    }

    /// Sizes of a sequence that runs at least one token.
    fn sizes() -> impl Strategy<Value = (usize, usize, usize)> {
        (0..20_usize, 1..12_usize, 0..9_usize).prop_map(|(computed, scheduled, rest)| {
            (computed + scheduled + rest, computed, scheduled)
        })
    }

    proptest! {
        #[test]
        fn building_depends_on_the_plan_alone_and_offsets_are_prefix_sums(
            before in prop::collection::vec(sizes(), 0..6),
            sizes in prop::collection::vec(sizes(), 1..6),
        ) {
            let (sequences, plan) = planned(&sizes);
            let mut fresh = StepBatch::new(2);
            fresh.build(&plan, &sequences, BLOCK_SIZE);
            let mut reused = StepBatch::new(2);
            let (other_sequences, other_plan) = planned(&before);
            reused.build(&other_plan, &other_sequences, BLOCK_SIZE);
            reused.build(&plan, &sequences, BLOCK_SIZE);
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
}
