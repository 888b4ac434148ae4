//! Small steps with awkward contents: shuffled blocks, room to spare, padding.

use super::random::Random;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use forerun_kernels::step_inputs::{
    CarriedToken, GroupArrays, SamplingRow, StepArrays, StepCapacity, StepInputs, TokenCount,
};

/// A sequence of a step: how much of its context is in the cache already, how much runs now.
#[derive(Clone, Copy, Debug)]
pub struct Seq {
    /// Tokens in the cache.
    pub num_computed: usize,
    /// Tokens of this step.
    pub num_scheduled: usize,
}

/// What a step is made of.
#[derive(Clone, Debug)]
pub struct StepPlan {
    /// Sequences.
    pub seqs: Vec<Seq>,
    /// Blocks in the pool.
    pub num_blocks: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Tokens the buffer has room for; those past the live ones are padding.
    pub tokens_max: usize,
    /// Exclusive limit of token ids.
    pub vocab_size: usize,
    /// Which tokens' logits are wanted.
    pub logit_rows: Vec<u32>,
    /// Rows the buffer has room for.
    pub rows_max: usize,
    /// How those rows are sampled.
    pub sampling: Vec<SamplingRow>,
    /// What the rows' sequences hold.
    pub history: Vec<TokenCount>,
    /// Biases of the rows.
    pub bias: Vec<(u32, f32)>,
    /// Masks of the rows.
    pub masks: Vec<u32>,
    /// Tokens of the previous step.
    pub carried: Vec<CarriedToken>,
    /// Rows of its verdicts.
    pub previous_rows: usize,
    /// Block copies.
    pub copies: Vec<(u32, u32)>,
    /// The KV group they are of; those before it have none.
    pub group: usize,
    /// The tokens of this step lie in reverse order behind those in the cache, as drafts might.
    pub has_tails: bool,
    /// Token ids, instead of random ones.
    pub token_ids: Option<Vec<u32>>,
    /// Positions start here instead of at `num_computed`, to reach far without a long context.
    pub positions: Option<Vec<u32>>,
}

impl StepPlan {
    /// A step of `seqs` over a pool that holds them with some blocks to spare.
    pub fn of(seqs: &[Seq], block_size: usize) -> Self {
        let blocks = |seq: &Seq| (seq.num_computed + seq.num_scheduled).div_ceil(block_size);
        let num_tokens = seqs.iter().map(|seq| seq.num_scheduled).sum();
        Self {
            seqs: seqs.to_vec(),
            num_blocks: seqs.iter().map(blocks).sum::<usize>() + 4,
            block_size,
            tokens_max: num_tokens,
            vocab_size: 50,
            logit_rows: Vec::new(),
            rows_max: 0,
            sampling: Vec::new(),
            history: Vec::new(),
            bias: Vec::new(),
            masks: Vec::new(),
            carried: Vec::new(),
            previous_rows: 0,
            copies: Vec::new(),
            group: 0,
            has_tails: false,
            token_ids: None,
            positions: None,
        }
    }

    /// A step of one sequence of `num_tokens` tokens.
    pub fn tokens(num_tokens: usize) -> Self {
        Self::of(
            &[Seq {
                num_computed: 0,
                num_scheduled: num_tokens,
            }],
            4,
        )
    }

    /// Live tokens.
    pub fn num_tokens(&self) -> usize {
        self.seqs.iter().map(|seq| seq.num_scheduled).sum()
    }

    /// The buffer, on `device`. Block ids depend on `seed`.
    pub fn upload(&self, seed: u64, device: &Device) -> Tensor<1, Int> {
        let words = self.words(seed);
        let len = words.len();
        Tensor::from_data(TensorData::new(words, [len]), (device, DType::U32))
    }

    /// The words of the buffer.
    pub fn words(&self, seed: u64) -> Vec<u32> {
        let mut random = Random::new(seed);
        let context = |seq: &Seq| seq.num_computed + seq.num_scheduled;
        let blocks_per_seq = self
            .seqs
            .iter()
            .map(|seq| context(seq).div_ceil(self.block_size))
            .max()
            .unwrap_or(1);
        // Block 0 is the null block.
        let mut free = random
            .permutation(self.num_blocks - 1)
            .into_iter()
            .map(|id| id as u32 + 1);
        let mut arrays = Arrays {
            query_offsets: vec![0],
            tail_offsets: vec![0],
            ..Arrays::default()
        };
        for (index, seq) in self.seqs.iter().enumerate() {
            let mut table = vec![0; blocks_per_seq];
            for entry in &mut table[..context(seq).div_ceil(self.block_size)] {
                *entry = free.next().expect("the pool holds every sequence");
            }
            for position in seq.num_computed..context(seq) {
                let block = table[position / self.block_size] as usize;
                arrays.token_ids.push(random.below(self.vocab_size) as u32);
                arrays.positions.push(position as u32);
                arrays.seq_of_token.push(index as u32);
                let slot = block * self.block_size + position % self.block_size;
                arrays.slot_mapping.push(slot as u32);
            }
            arrays.block_tables.extend(table);
            arrays.context_lens.push(context(seq) as u32);
            let base = if self.has_tails {
                seq.num_computed
            } else {
                context(seq)
            };
            arrays.tail_bases.push(base as u32);
            arrays
                .tails
                .extend((base as u32..context(seq) as u32).rev());
            arrays.tail_offsets.push(arrays.tails.len() as u32);
            arrays.query_offsets.push(arrays.token_ids.len() as u32);
        }
        if let Some(token_ids) = &self.token_ids {
            arrays.token_ids.copy_from_slice(token_ids);
        }
        self.pack(&arrays, blocks_per_seq)
    }

    fn pack(&self, arrays: &Arrays, blocks_per_seq: usize) -> Vec<u32> {
        // Room to spare, so that no section begins where it would with tight capacities.
        let capacity = StepCapacity {
            tokens: self.tokens_max + 3,
            seqs: self.seqs.len() + 2,
            logit_rows: self.rows_max + 1,
            history: self.history.len() + 1,
            bias: self.bias.len() + 3,
            mask_words: self.masks.len() + 5,
            carried: self.carried.len() + 1,
            tails: arrays.tails.len() + 2,
            blocks_per_seq: vec![blocks_per_seq + 1; self.group + 1],
            copies: vec![self.copies.len() + 1; self.group + 1],
        };
        let mut inputs = StepInputs::new(capacity);
        let group = GroupArrays {
            slot_mapping: &arrays.slot_mapping,
            block_tables: &arrays.block_tables,
            blocks_per_seq,
            num_blocks: self.num_blocks,
            block_size: self.block_size,
            block_copies: &self.copies,
        };
        // Groups before the one that counts say nothing.
        let mut groups = vec![
            GroupArrays {
                block_copies: &[],
                ..group
            };
            self.group
        ];
        groups.push(group);
        let step = StepArrays {
            token_ids: &arrays.token_ids,
            positions: &arrays.positions,
            seq_of_token: &arrays.seq_of_token,
            query_offsets: &arrays.query_offsets,
            context_lens: &arrays.context_lens,
            logit_rows: &self.logit_rows,
            sampling: &self.sampling,
            history: &self.history,
            bias: &self.bias,
            masks: &self.masks,
            carried: &self.carried,
            previous_rows: self.previous_rows,
            tail_bases: &arrays.tail_bases,
            tail_offsets: &arrays.tail_offsets,
            tails: &arrays.tails,
            groups: &groups,
        };
        inputs
            .fill(&step, self.vocab_size)
            .expect("the plan is a valid step");
        let mut words = inputs.words().to_vec();
        if let Some(positions) = &self.positions {
            let start = words[forerun_kernels::step_inputs::header::POSITIONS] as usize;
            words[start..start + positions.len()].copy_from_slice(positions);
        }
        words
    }
}

#[derive(Default)]
struct Arrays {
    token_ids: Vec<u32>,
    positions: Vec<u32>,
    seq_of_token: Vec<u32>,
    slot_mapping: Vec<u32>,
    query_offsets: Vec<u32>,
    context_lens: Vec<u32>,
    block_tables: Vec<u32>,
    tail_bases: Vec<u32>,
    tail_offsets: Vec<u32>,
    tails: Vec<u32>,
}
