//! Sequences in a pool, for the tests: some tokens of some of them run as a step would run them.

use std::num::NonZeroUsize;

use super::{Inputs, paged_attention_on, reference};
use crate::simd::{Isa, sample_values};
use crate::spec::AttentionSpec;
use crate::step_inputs::{
    GroupArrays, SamplingRow, StepArrays, StepCapacity, StepInputs, StepView,
};
use crate::threads::Threads;

/// Sequences in one pool, each with its own shuffled blocks; q, k and v of a token depend on the
/// sequence and position alone.
pub(super) struct World {
    spec: AttentionSpec,
    /// Tokens of each sequence.
    lens: Vec<usize>,
    pub(super) tables: Vec<Vec<u32>>,
    num_blocks: usize,
    pub(super) pool: Vec<f32>,
    /// Per sequence: where its last positions lie, from a base on.
    tails: Vec<(usize, Vec<u32>)>,
}

const GREEDY: SamplingRow = SamplingRow::greedy(0);

/// Tokens of a sequence that one call computes.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    pub(super) seq: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Positions `start..end` of a sequence.
pub(super) fn chunk(seq: usize, start: usize, end: usize) -> Chunk {
    Chunk { seq, start, end }
}

impl World {
    pub(super) fn new(spec: AttentionSpec, lens: &[usize], seed: u64) -> Self {
        let kv = spec.kv;
        let blocks: Vec<usize> = lens.iter().map(|len| len.div_ceil(kv.block_size)).collect();
        let num_blocks = blocks.iter().sum::<usize>() + 3;
        let mut ids: Vec<u32> = (1..num_blocks as u32).collect();
        // Shuffled.
        for (i, value) in sample_values(seed, ids.len())
            .into_iter()
            .enumerate()
            .skip(1)
        {
            ids.swap(i, (value.abs() * (i + 1) as f32) as usize % (i + 1));
        }
        let mut ids = ids.into_iter();
        let tables: Vec<Vec<u32>> = blocks
            .iter()
            .map(|&count| ids.by_ref().take(count).collect())
            .collect();
        // What no row sees is NaN: reading it into a result would show.
        let len = num_blocks * 2 * kv.num_kv_heads * kv.block_size * kv.head_dim;
        let mut world = Self {
            spec,
            lens: lens.to_vec(),
            tables,
            num_blocks,
            pool: vec![f32::NAN; len],
            tails: lens.iter().map(|&len| (len, Vec::new())).collect(),
        };
        for (seq, &len) in lens.iter().enumerate() {
            for position in 0..len {
                world.write(seq, position);
            }
        }
        world
    }

    /// Moves K and V of the positions from `base` on to other places, as if they were the nodes of a
    /// branch among others: the last comes first, and what lies between is not seen.
    pub(super) fn scatter(&mut self, seq: usize, base: usize) {
        let kv = self.spec.kv;
        let len = self.lens[seq];
        let before = self.pool.clone();
        let d = kv.head_dim;
        let places: Vec<usize> = (base..len).rev().collect();
        for (position, &place) in (base..len).zip(&places) {
            for k_or_v in 0..2 {
                for head in 0..kv.num_kv_heads {
                    let slot = |place: usize| {
                        let block = self.tables[seq][place / kv.block_size] as usize;
                        let head = (2 * block + k_or_v) * kv.num_kv_heads + head;
                        (head * kv.block_size + place % kv.block_size) * d
                    };
                    let (from, to) = (slot(position), slot(place));
                    self.pool[to..to + d].copy_from_slice(&before[from..from + d]);
                }
            }
        }
        let places = places.into_iter().map(|place| place as u32);
        self.tails[seq] = (base, places.collect());
    }

    fn qkv(&self, seq: usize, position: usize) -> Vec<f32> {
        let kv = self.spec.kv;
        let heads = kv.num_heads + 2 * kv.num_kv_heads;
        let mut row = sample_values((seq * 1_000_003 + position) as u64, heads * kv.head_dim);
        for value in &mut row {
            *value *= 2.0;
        }
        row
    }

    fn write(&mut self, seq: usize, position: usize) {
        let kv = self.spec.kv;
        let (d, g) = (kv.head_dim, kv.num_kv_heads);
        let row = self.qkv(seq, position);
        let block = self.tables[seq][position / kv.block_size] as usize;
        for k_or_v in 0..2 {
            for head in 0..g {
                let from = &row[(kv.num_heads + k_or_v * g + head) * d..][..d];
                let slot =
                    ((2 * block + k_or_v) * g + head) * kv.block_size + position % kv.block_size;
                self.pool[slot * d..(slot + 1) * d].copy_from_slice(from);
            }
        }
    }

    /// The block table of a sequence when a chunk of it runs.
    fn table(&self, c: &Chunk, row_len: usize) -> Vec<u32> {
        let mut row = self.tables[c.seq].clone();
        if let Some(window) = self.spec.window {
            // Blocks before every window of the chunk have been given back, those of drafts aside.
            let first = (c.start + 1)
                .saturating_sub(window)
                .min(self.tails[c.seq].0);
            row[..first / self.spec.kv.block_size].fill(0);
        }
        row.resize(row_len, 0);
        row
    }

    /// The step's tails: bases, offsets, places.
    fn tails_of(&self, chunks: &[Chunk]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        let (mut bases, mut offsets, mut tails) = (Vec::new(), vec![0], Vec::new());
        for c in chunks {
            let (base, places) = &self.tails[c.seq];
            let base = (*base).min(c.end);
            bases.push(base as u32);
            tails.extend_from_slice(&places[..c.end - base]);
            offsets.push(tails.len() as u32);
        }
        (bases, offsets, tails)
    }

    /// Runs the chunks in one call; for each the output rows.
    fn attend(&self, chunks: &[Chunk], run: impl Fn(Inputs<'_>, &mut [f32])) -> Vec<Vec<f32>> {
        let kv = self.spec.kv;
        let tokens: Vec<(usize, usize, usize)> = chunks
            .iter()
            .enumerate()
            .flat_map(|(i, c)| (c.start..c.end).map(move |p| (i, c.seq, p)))
            .collect();
        let qkv: Vec<f32> = tokens
            .iter()
            .flat_map(|&(_, seq, p)| self.qkv(seq, p))
            .collect();
        let num_tokens = tokens.len();
        let mut offsets = vec![0];
        for c in chunks {
            offsets.push(offsets[offsets.len() - 1] + (c.end - c.start) as u32);
        }
        let row_len = self.tables.iter().map(Vec::len).max().unwrap() + 1;
        let tables: Vec<u32> = chunks.iter().flat_map(|c| self.table(c, row_len)).collect();
        let (tail_bases, tail_offsets, tails) = self.tails_of(chunks);
        let capacity = StepCapacity {
            tails: tails.len() + 3,
            tokens: num_tokens + 2,
            seqs: chunks.len() + 1,
            logit_rows: 1,
            blocks_per_seq: vec![row_len, row_len + 1],
            copies: vec![0; 2],
            ..StepCapacity::default()
        };
        let group = |slots, tables, blocks_per_seq| GroupArrays {
            slot_mapping: slots,
            block_tables: tables,
            blocks_per_seq,
            num_blocks: self.num_blocks,
            block_size: kv.block_size,
            block_copies: &[],
        };
        let other_tables = vec![0; tables.len()];
        let zeros = vec![0; num_tokens.max(chunks.len())];
        let mut step = StepInputs::new(capacity);
        let arrays = StepArrays {
            token_ids: &zeros[..num_tokens],
            positions: &tokens.iter().map(|t| t.2 as u32).collect::<Vec<_>>(),
            seq_of_token: &tokens.iter().map(|t| t.0 as u32).collect::<Vec<_>>(),
            query_offsets: &offsets,
            context_lens: &chunks.iter().map(|c| c.end as u32).collect::<Vec<_>>(),
            logit_rows: &[0],
            sampling: &[GREEDY],
            tail_bases: &tail_bases,
            tail_offsets: &tail_offsets,
            tails: &tails,
            // The other group's tables lead to the null block, which is NaN.
            groups: &[
                group(&zeros[..num_tokens], &other_tables, row_len),
                group(&zeros[..num_tokens], &tables, row_len),
            ],
            ..StepArrays::default()
        };
        step.fill(&arrays, 1).unwrap();
        let mut out = vec![f32::NAN; num_tokens * kv.num_heads * kv.head_dim];
        let inputs = Inputs {
            qkv: &qkv,
            kv_pool: &self.pool,
            step: StepView::new(step.words()),
            spec: &self.spec,
        };
        run(inputs, &mut out);
        let row_len = kv.num_heads * kv.head_dim;
        offsets
            .windows(2)
            .map(|pair| out[pair[0] as usize * row_len..pair[1] as usize * row_len].to_vec())
            .collect()
    }

    pub(super) fn fast(&self, isa: Isa, num_threads: usize, chunks: &[Chunk]) -> Vec<Vec<f32>> {
        let threads = Threads::new(NonZeroUsize::new(num_threads).unwrap());
        self.attend(chunks, |inputs, out| {
            paged_attention_on(isa, &threads, inputs, out);
        })
    }

    pub(super) fn slow(&self, chunks: &[Chunk]) -> Vec<Vec<f32>> {
        self.attend(chunks, |inputs, out| {
            reference::paged_attention(inputs.qkv, inputs.kv_pool, inputs.step, inputs.spec, out);
        })
    }

    pub(super) fn whole(&self) -> Vec<Chunk> {
        self.lens
            .iter()
            .enumerate()
            .map(|(seq, &len)| chunk(seq, 0, len))
            .collect()
    }
}
