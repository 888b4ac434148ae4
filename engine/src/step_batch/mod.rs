//! The flat arrays of one step, in the form in which kernels read them.
//!
//! Neighbours: built from the plan of `scheduler.rs`; sampling rows by `sampling_rows.rs`; read by
//! the executor, which uploads them as one buffer.

use crate::block_manager::BlockManager;
use crate::sampling_rows::{RowPurpose, SamplingRow, TokenBias};
use crate::scheduler::{ScheduledSeq, StepPlan};
use crate::sequence::Sequence;
use crate::sequence_store::SequenceStore;
use crate::token_counts::TokenCount;
use crate::{BlockId, BlockTable, Generation, GrammarError, Position, RequestId, SeqId, TokenId};

/// One ragged batch: T tokens of S sequences, R of which get logits. Reused from step to step, so
/// that building it does not allocate once it has grown.
///
/// A sequence with a draft tree has an entry per branch: the first holds its known tokens and the
/// first branch, each other a run of nodes that follow their parents. Entries of one sequence are
/// neighbours and share its blocks; what differs is the tail, which says where the entry's drafts lie.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepBatch {
    /// `[S]`: whose tokens these are.
    pub seqs: Vec<BatchSeq>,
    /// `[T]`. Where `carried` has an entry the id is 0 and means nothing.
    pub token_ids: Vec<u32>,
    /// Tokens that the step submitted before this one decides.
    pub carried: Vec<CarriedToken>,
    /// `[T]`.
    pub positions: Vec<u32>,
    /// `[T]`: index of the token's sequence, below S.
    pub seq_of_token: Vec<u32>,
    /// `[S + 1]`: prefix sums of the scheduled tokens; tokens `[query_offsets[s],
    /// query_offsets[s + 1])` are those of sequence s.
    pub query_offsets: Vec<u32>,
    /// `[S]`: computed + scheduled tokens.
    pub context_lens: Vec<u32>,
    /// `[S]`: positions from here on lie where the tail says; those before, and all without a tail,
    /// lie in order. At most `context_lens`, equal without a tail.
    pub tail_bases: Vec<u32>,
    /// `[S + 1]`: prefix sums of tail lengths: the tail of entry s is `tails[tail_offsets[s],
    /// tail_offsets[s + 1])`, `context_lens - tail_bases` long.
    pub tail_offsets: Vec<u32>,
    /// For each position of a tail, the place in the sequence's blocks that holds it: token place
    /// `p` lies in slot `block_tables[p / B] * B + p % B`.
    pub tails: Vec<u32>,
    /// `[R]`: indices below T of the tokens whose logits are wanted, ascending. Several rows may
    /// read one token.
    pub logit_rows: Vec<u32>,
    /// `[R]`: index of the row's sequence, below S.
    pub logit_seqs: Vec<u32>,
    /// `[R]`: what comes of the row. Of no concern to executors.
    pub purposes: Vec<RowPurpose>,
    /// `[R]`.
    pub sampling: Vec<SamplingRow>,
    /// Distinct earlier tokens of rows with penalties; each row has a range.
    pub history: Vec<TokenCount>,
    /// Biases of rows that have some; each row has a range.
    pub bias: Vec<TokenBias>,
    /// Grammar masks, `mask_words` words a row: bit t is set if token t may come.
    pub masks: Vec<u32>,
    /// `ceil(V / 32)`.
    pub mask_words: usize,
    /// One per KV group.
    pub groups: Vec<GroupBatch>,
    /// Rows of drafts behind which the grammar cannot go on: whoever reaches one ends there.
    pub dead_ends: Vec<(u32, GrammarError)>,
    /// In a draft pass: the executor keeps the distributions of its rows until the step is verified.
    pub keeps_distributions: bool,
}

/// A token whose id the previous step decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedToken {
    /// Index below T.
    pub token: u32,
    /// Logit row of the step submitted before.
    pub row: u32,
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
    /// Index of its entry in the plan: branches of one draft share it.
    pub planned: u32,
}

/// One KV group's part of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupBatch {
    /// `[T]`: slots that take the tokens' keys and values.
    pub slot_mapping: Vec<u32>,
    /// `[S, blocks_per_seq]`, row-major: block ids in order of position. Entries past a sequence's
    /// last block and those a window has let go are the null block.
    pub block_tables: Vec<u32>,
    /// Row length of `block_tables`: what the longest context of the batch needs.
    pub blocks_per_seq: usize,
    /// Blocks to copy before anything is written, as source and destination. Destinations are
    /// distinct and no source is a destination.
    pub block_copies: Vec<(BlockId, BlockId)>,
}

/// A request one of whose grammars gave no mask.
#[derive(Clone, Debug)]
pub(crate) struct MaskFailure {
    pub(crate) request: RequestId,
    pub(crate) error: GrammarError,
}

impl StepBatch {
    /// An empty batch over `num_groups` KV groups and a vocabulary of `vocab_size` tokens.
    pub fn new(num_groups: usize, vocab_size: usize) -> Self {
        Self {
            groups: vec![GroupBatch::default(); num_groups],
            mask_words: vocab_size.div_ceil(u32::BITS as usize),
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

    /// Fills the batch from a plan: the same plan and sequences give the same arrays. Sequences
    /// whose grammar cannot go on get an unmasked row and an entry in `failures`.
    pub(crate) fn build(
        &mut self,
        plan: &StepPlan,
        sequences: &mut SequenceStore,
        blocks: &BlockManager,
        failures: &mut Vec<MaskFailure>,
    ) {
        self.clear();
        for (planned, scheduled) in plan.scheduled.iter().enumerate() {
            let index = self.seqs.len() as u32;
            let sequence = sequences.get_mut(scheduled.seq);
            self.push_tokens(planned as u32, sequence, scheduled);
            self.push_rows(index, sequence, scheduled.num_scheduled, failures);
        }
        let block_size = blocks.block_size();
        let num_places =
            |scheduled: &ScheduledSeq| scheduled.num_computed + scheduled.num_scheduled;
        let num_places_max = plan.scheduled.iter().map(num_places).max().unwrap_or(0);
        let blocks_per_seq = num_places_max.div_ceil(block_size);
        for index in 0..self.seqs.len() {
            let sequence = sequences.get(self.seqs[index].seq);
            self.push_block_tables(&sequence.tables, blocks_per_seq);
        }
        for (index, group) in self.groups.iter_mut().enumerate() {
            group.blocks_per_seq = blocks_per_seq;
            group.block_copies.extend_from_slice(blocks.copies(index));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.seqs.clear();
        self.token_ids.clear();
        self.carried.clear();
        self.positions.clear();
        self.seq_of_token.clear();
        self.query_offsets.clear();
        self.query_offsets.push(0);
        self.context_lens.clear();
        self.tail_bases.clear();
        self.tail_offsets.clear();
        self.tail_offsets.push(0);
        self.tails.clear();
        self.dead_ends.clear();
        self.keeps_distributions = false;
        self.logit_rows.clear();
        self.logit_seqs.clear();
        self.purposes.clear();
        self.sampling.clear();
        self.history.clear();
        self.bias.clear();
        self.masks.clear();
        for group in &mut self.groups {
            group.slot_mapping.clear();
            group.block_tables.clear();
            group.block_copies.clear();
        }
    }

    /// The known tokens of a sequence and its draft, branch by branch.
    fn push_tokens(&mut self, planned: u32, sequence: &Sequence, scheduled: &ScheduledSeq) {
        let start = sequence.num_computed;
        let end = start + scheduled.num_scheduled - scheduled.num_drafts;
        let num_known = end.min(sequence.tokens.len());
        let known = sequence.tokens.get(start..num_known).unwrap_or_default();
        self.token_ids.extend(known.iter().map(|&TokenId(id)| id));
        if end > sequence.tokens.len() {
            assert!(
                end == sequence.tokens.len() + 1,
                "at most one token is in flight"
            );
            let row = sequence
                .placeholder_row
                .expect("a placeholder comes from a row of the step in flight");
            let token = self.token_ids.len() as u32;
            self.carried.push(CarriedToken { token, row });
            self.token_ids.push(0);
        }
        self.positions.extend(start as u32..end as u32);
        let nodes = sequence.draft.nodes();
        let mut branch_start = 0;
        loop {
            let is_apart = |&node: &usize| nodes[node].parent != Some(node as u32 - 1);
            let branch_end = (branch_start + 1..nodes.len()).find(is_apart);
            let branch_end = branch_end.unwrap_or(nodes.len());
            self.token_ids.extend(
                nodes[branch_start..branch_end]
                    .iter()
                    .map(|node| node.token.0),
            );
            self.end_branch(planned, sequence, end, branch_start..branch_end);
            if branch_end == nodes.len() {
                break;
            }
            branch_start = branch_end;
        }
        for (group, table) in self.groups.iter_mut().zip(&sequence.tables) {
            let places = start as u32..(start + scheduled.num_scheduled) as u32;
            let slots = places.map(|place| table.slot_of(Position(place)).0);
            group.slot_mapping.extend(slots);
        }
    }

    /// Closes an entry whose last tokens are the nodes `branch`, behind `base` known tokens.
    fn end_branch(
        &mut self,
        planned: u32,
        sequence: &Sequence,
        base: usize,
        branch: std::ops::Range<usize>,
    ) {
        let draft = &sequence.draft;
        let depth = |node: usize| draft.depth(node as u32);
        let positions = branch.clone().map(|node| (base + depth(node)) as u32 - 1);
        self.positions.extend(positions);
        let context_len = base + branch.clone().last().map_or(0, depth);
        self.seqs.push(BatchSeq {
            seq: sequence.id,
            generation: sequence.generation,
            request: sequence.request,
            planned,
        });
        let index = self.seqs.len() as u32 - 1;
        self.seq_of_token.resize(self.token_ids.len(), index);
        self.query_offsets.push(self.token_ids.len() as u32);
        self.context_lens.push(context_len as u32);
        // The first branch lies in order.
        if branch.start == 0 {
            self.tail_bases.push(context_len as u32);
        } else {
            self.tail_bases.push(base as u32);
            let first = self.tails.len();
            let path = draft.path(branch.end as u32 - 1);
            self.tails.extend(path.map(|node| base as u32 + node));
            self.tails[first..].reverse();
        }
        self.tail_offsets.push(self.tails.len() as u32);
    }

    /// One row per group. A table may be longer than the context: surplus blocks stay with a
    /// sequence after an aborted step, and are of no concern to kernels.
    pub(crate) fn push_block_tables(&mut self, tables: &[BlockTable], blocks_per_seq: usize) {
        for (group, table) in self.groups.iter_mut().zip(tables) {
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
mod tests;
