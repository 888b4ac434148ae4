//! The kernels against attention in f64 over each sequence's keys in order.

use super::{RUN_TILES_MIN, TILE, launch};
use crate::linear::cube::testing::{Random, assert_close, devices, read, tensor, words};
use crate::spec::{AttentionSpec, KvSpec};
use crate::step_inputs::{GroupArrays, StepArrays, StepCapacity, StepInputs};
use cubecl::Device;

/// Sequences as (tokens of this step, length of the context with them).
struct Batch {
    seqs: Vec<(usize, usize)>,
    num_padding: usize,
    words: Vec<u32>,
    block_tables: Vec<u32>,
    blocks_per_seq: usize,
    num_blocks: usize,
}

impl Batch {
    /// Blocks are dealt in shuffled order; entries before the first visible block are null.
    fn new(random: &mut Random, spec: &AttentionSpec, seqs: &[(usize, usize)]) -> Self {
        let block_size = spec.kv.block_size;
        let longest = seqs
            .iter()
            .map(|&(_, len)| len.div_ceil(block_size))
            .max()
            .unwrap();
        let blocks_per_seq = longest + 1;
        let num_blocks = 2 + seqs
            .iter()
            .map(|&(_, len)| len.div_ceil(block_size))
            .sum::<usize>();
        let mut free: Vec<u32> = (1..num_blocks as u32).collect();
        let mut block_tables = vec![0; seqs.len() * blocks_per_seq];
        for (seq, &(num_tokens, len)) in seqs.iter().enumerate() {
            let first_position = len - num_tokens;
            let seen = spec
                .window
                .map_or(0, |window| (first_position + 1).saturating_sub(window));
            for i in seen / block_size..len.div_ceil(block_size) {
                let block = free.swap_remove(random.bits() as usize % free.len());
                block_tables[seq * blocks_per_seq + i] = block;
            }
        }
        let num_padding = 3;
        let group = spec.kv.group;
        let mut batch = Self {
            seqs: seqs.to_vec(),
            num_padding,
            words: Vec::new(),
            block_tables,
            blocks_per_seq,
            num_blocks,
        };
        batch.fill(group, block_size);
        batch
    }

    fn num_tokens(&self) -> usize {
        self.seqs.iter().map(|&(num_tokens, _)| num_tokens).sum()
    }

    fn positions(&self) -> Vec<(usize, usize)> {
        let all = self.seqs.iter().enumerate();
        all.flat_map(|(seq, &(num, len))| (len - num..len).map(move |at| (seq, at)))
            .collect()
    }

    fn fill(&mut self, group: usize, block_size: usize) {
        let num_tokens = self.num_tokens();
        let positions: Vec<u32> = self.positions().iter().map(|&(_, at)| at as u32).collect();
        let seq_of_token: Vec<u32> = self
            .positions()
            .iter()
            .map(|&(seq, _)| seq as u32)
            .collect();
        let context_lens: Vec<u32> = self.seqs.iter().map(|&(_, len)| len as u32).collect();
        let mut query_offsets = vec![0];
        for &(num, _) in &self.seqs {
            query_offsets.push(query_offsets[query_offsets.len() - 1] + num as u32);
        }
        let arrays = GroupArrays {
            slot_mapping: &vec![0; num_tokens],
            block_tables: &self.block_tables,
            blocks_per_seq: self.blocks_per_seq,
            num_blocks: self.num_blocks,
            block_size,
            block_copies: &[],
        };
        let mut inputs = StepInputs::new(StepCapacity {
            tokens: num_tokens + self.num_padding,
            seqs: self.seqs.len() + 1,
            logit_rows: 1,
            blocks_per_seq: vec![self.blocks_per_seq + 2; group + 1],
            copies: vec![1; group + 1],
            ..StepCapacity::default()
        });
        let step = StepArrays {
            token_ids: &vec![0; num_tokens],
            positions: &positions,
            seq_of_token: &seq_of_token,
            query_offsets: &query_offsets,
            context_lens: &context_lens,
            groups: &vec![arrays; group + 1],
            ..StepArrays::default()
        };
        inputs.fill(&step, 1).unwrap();
        self.words = inputs.words().to_vec();
    }
}

fn reference(batch: &Batch, spec: &AttentionSpec, qkv: &[f32], pool: &[f32]) -> Vec<f64> {
    let kv = &spec.kv;
    let d = kv.head_dim;
    let row_len = (kv.num_heads + 2 * kv.num_kv_heads) * d;
    let at = |seq: usize, position: usize, part: usize, head: usize| {
        let table = &batch.block_tables[seq * batch.blocks_per_seq..];
        let block = table[position / kv.block_size] as usize;
        let head = (block * 2 + part) * kv.num_kv_heads + head;
        &pool[(head * kv.block_size + position % kv.block_size) * d..][..d]
    };
    let mut output = Vec::new();
    for (token, (seq, position)) in batch.positions().into_iter().enumerate() {
        for head in 0..kv.num_heads {
            let query = &qkv[token * row_len + head * d..][..d];
            let kv_head = head / (kv.num_heads / kv.num_kv_heads);
            let start = spec
                .window
                .map_or(0, |window| (position + 1).saturating_sub(window));
            let score = |position| {
                let key = at(seq, position, 0, kv_head);
                let product = |(&q, &k): (&f32, &f32)| f64::from(q) * f64::from(k);
                let score = query.iter().zip(key).map(product).sum::<f64>() * f64::from(spec.scale);
                spec.soft_cap.map_or(score, |cap| {
                    f64::from(cap) * (score / f64::from(cap)).tanh()
                })
            };
            let scores: Vec<f64> = (start..=position).map(score).collect();
            let largest = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            output.extend((0..d).map(|i| {
                let value = |at_position: usize| f64::from(at(seq, at_position, 1, kv_head)[i]);
                (start..=position)
                    .zip(&weights)
                    .map(|(p, w)| w * value(p))
                    .sum::<f64>()
                    / sum
            }));
        }
    }
    output.resize(output.len() + batch.num_padding * kv.num_heads * d, 0.0);
    output
}

fn run(
    device: &Device,
    spec: &AttentionSpec,
    batch: &Batch,
    qkv: &[f32],
    pool: &[f32],
) -> Vec<f32> {
    let kv = &spec.kv;
    let row_len = (kv.num_heads + 2 * kv.num_kv_heads) * kv.head_dim;
    let num_tokens = batch.num_tokens() + batch.num_padding;
    let shape = [
        batch.num_blocks,
        2,
        kv.num_kv_heads,
        kv.block_size,
        kv.head_dim,
    ];
    let qkv = tensor(device, qkv, [num_tokens, row_len]);
    let pool = tensor(device, pool, shape);
    read(&launch(qkv, &pool, &words(device, &batch.words), spec))
}

/// Slots of the pool that no query sees hold NaN: reading one would show.
fn poisoned_pool(random: &mut Random, batch: &Batch, spec: &AttentionSpec) -> Vec<f32> {
    let kv = &spec.kv;
    let block_len = 2 * kv.num_kv_heads * kv.block_size * kv.head_dim;
    let mut pool = vec![f32::NAN; batch.num_blocks * block_len];
    for (seq, &(num_tokens, len)) in batch.seqs.iter().enumerate() {
        let first = len - num_tokens;
        let start = spec
            .window
            .map_or(0, |window| (first + 1).saturating_sub(window));
        for position in start..len {
            let table = &batch.block_tables[seq * batch.blocks_per_seq..];
            let block = table[position / kv.block_size] as usize;
            for head in 0..2 * kv.num_kv_heads {
                let head = block * 2 * kv.num_kv_heads + head;
                let at = (head * kv.block_size + position % kv.block_size) * kv.head_dim;
                pool[at..at + kv.head_dim].copy_from_slice(&random.floats(kv.head_dim));
            }
        }
    }
    pool
}

fn check(what: &str, device: &Device, spec: &AttentionSpec, seqs: &[(usize, usize)]) {
    let mut random = Random(seqs.len() as u64);
    let batch = Batch::new(&mut random, spec, seqs);
    let kv = &spec.kv;
    let row_len = (kv.num_heads + 2 * kv.num_kv_heads) * kv.head_dim;
    let qkv: Vec<f32> = random
        .floats((batch.num_tokens() + batch.num_padding) * row_len)
        .into_iter()
        .map(|value| 3.0 * value)
        .collect();
    let pool = poisoned_pool(&mut random, &batch, spec);
    let found = run(device, spec, &batch, &qkv, &pool);
    let expected = reference(&batch, spec, &qkv, &pool);
    let what = format!("{what}: {spec:?} {seqs:?}");
    assert_close(&what, &found, &expected, 1.0e-5);
}

fn spec(heads: (usize, usize), head_dim: usize, block_size: usize) -> AttentionSpec {
    let kv = KvSpec {
        group: 0,
        num_heads: heads.0,
        num_kv_heads: heads.1,
        head_dim,
        block_size,
    };
    AttentionSpec {
        kv,
        scale: 1.0 / (head_dim as f32).sqrt(),
        window: None,
        soft_cap: None,
    }
}

#[test]
fn ragged_batches_of_every_shape_agree_with_the_formula() {
    let few = [(1, 1), (1, TILE), (5, TILE + 1), (1, 47), (2, 2), (3, 15)];
    let many = [
        (1, 70),
        (33, 33),
        (1, 1),
        (17, TILE / 2 + 16),
        (2, 40),
        (29, 95),
    ];
    for (name, device) in devices() {
        for (heads, head_dim, block_size) in [
            ((9, 3), 64, 16),
            ((4, 1), 256, 32),
            ((3, 3), 24, 4),
            ((6, 2), 80, 1),
            ((14, 2), 6, 8),
        ] {
            let mut spec = spec(heads, head_dim, block_size);
            check(name, &device, &spec, &few);
            spec.kv.group = 2;
            check(name, &device, &spec, &many);
        }
    }
}

#[test]
fn windows_and_soft_caps_agree_with_the_formula() {
    let few = [(1, 5), (7, 90), (1, 33), (1, 300)];
    let many = [(60, 64), (1, 100), (13, 13), (2, 70)];
    for (name, device) in devices() {
        for window in [1, 7, TILE, 65] {
            let mut spec = spec((4, 2), 40, 8);
            spec.window = Some(window);
            check(name, &device, &spec, &few);
            check(name, &device, &spec, &many);
            spec.soft_cap = Some(1.5);
            check(name, &device, &spec, &few);
        }
        let mut spec = spec((4, 1), 72, 16);
        spec.soft_cap = Some(50.0);
        check(name, &device, &spec, &few);
        check(name, &device, &spec, &many);
    }
}

#[test]
fn long_contexts_split_and_merge() {
    let run = RUN_TILES_MIN * TILE;
    for (name, device) in devices() {
        let mut spec = spec((6, 2), 32, 16);
        check(
            name,
            &device,
            &spec,
            &[(1, run), (1, run + 1), (4, 2 * run + 2), (1, 3)],
        );
        check(name, &device, &spec, &[(1, 17 * run + 5)]);
        spec.window = Some(3 * run + 7);
        check(
            name,
            &device,
            &spec,
            &[(1, 5 * run + 1), (2, 3 * run + 8), (1, 2)],
        );
    }
}

#[test]
fn a_token_has_the_same_bits_in_any_batch() {
    for (name, device) in devices() {
        let mut random = Random(11);
        let spec = spec((6, 2), 32, 16);
        let batch = Batch::new(&mut random, &spec, &[(3, 50), (1, 600), (2, 9)]);
        let qkv = random.floats((batch.num_tokens() + batch.num_padding) * 10 * 32);
        let pool = poisoned_pool(&mut random, &batch, &spec);
        let all = run(&device, &spec, &batch, &qkv, &pool);
        // The second sequence alone, in the same blocks.
        let mut alone = Batch {
            seqs: vec![batch.seqs[1]],
            ..batch
        };
        alone.block_tables =
            alone.block_tables[alone.blocks_per_seq..][..alone.blocks_per_seq].to_vec();
        alone.fill(0, 16);
        let row = run(
            &device,
            &spec,
            &alone,
            &qkv[3 * 10 * 32..][..4 * 10 * 32],
            &pool,
        );
        assert_eq!(row[..6 * 32], all[3 * 6 * 32..4 * 6 * 32], "{name}");
    }
}
