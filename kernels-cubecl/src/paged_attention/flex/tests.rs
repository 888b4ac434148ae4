use std::num::NonZeroUsize;

use super::{Inputs, paged_attention_on, reference};
use crate::simd::{Isa, sample_values};
use crate::spec::{AttentionSpec, KvSpec};
use crate::step_inputs::{
    GroupArrays, SamplingRow, StepArrays, StepCapacity, StepInputs, StepView,
};
use crate::threads::Threads;

/// Sequences in one pool, each with its own shuffled blocks; q, k and v of a token depend on the
/// sequence and position alone.
struct World {
    spec: AttentionSpec,
    /// Tokens of each sequence.
    lens: Vec<usize>,
    tables: Vec<Vec<u32>>,
    num_blocks: usize,
    pool: Vec<f32>,
}

/// Tokens of a sequence that one call computes.
#[derive(Clone, Copy)]
struct Chunk {
    seq: usize,
    start: usize,
    end: usize,
}

fn chunk(seq: usize, start: usize, end: usize) -> Chunk {
    Chunk { seq, start, end }
}

impl World {
    fn new(spec: AttentionSpec, lens: &[usize], seed: u64) -> Self {
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
            ids.swap(i, ((value + 1.0) / 2.0 * (i + 1) as f32) as usize % (i + 1));
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
        };
        for (seq, &len) in lens.iter().enumerate() {
            for position in 0..len {
                world.write(seq, position);
            }
        }
        world
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
        let tables: Vec<u32> = chunks
            .iter()
            .flat_map(|c| {
                let mut row = self.tables[c.seq].clone();
                if let Some(window) = self.spec.window {
                    // Blocks before every window of the chunk have been given back.
                    let first = (c.start + 1).saturating_sub(window) / kv.block_size;
                    row[..first].fill(0);
                }
                row.resize(row_len, 0);
                row
            })
            .collect();
        let capacity = StepCapacity {
            tokens: num_tokens + 2,
            seqs: chunks.len() + 1,
            logit_rows: 1,
            copies: 0,
            blocks_per_seq: vec![row_len, row_len + 1],
        };
        let group = |slots, tables, blocks_per_seq| GroupArrays {
            slot_mapping: slots,
            block_tables: tables,
            blocks_per_seq,
            num_blocks: self.num_blocks,
            block_size: kv.block_size,
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
            sampling: &[SamplingRow {
                temperature: 0.0,
                seed: 0,
                position: 0,
            }],
            block_copies: &[],
            // The other group's tables lead to the null block, which is NaN.
            groups: &[
                group(&zeros[..num_tokens], &other_tables, row_len),
                group(&zeros[..num_tokens], &tables, row_len),
            ],
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

    fn fast(&self, isa: Isa, num_threads: usize, chunks: &[Chunk]) -> Vec<Vec<f32>> {
        let threads = Threads::new(NonZeroUsize::new(num_threads).unwrap());
        self.attend(chunks, |inputs, out| {
            paged_attention_on(isa, &threads, inputs, out)
        })
    }

    fn slow(&self, chunks: &[Chunk]) -> Vec<Vec<f32>> {
        self.attend(chunks, |inputs, out| {
            reference::paged_attention(inputs.qkv, inputs.kv_pool, inputs.step, inputs.spec, out);
        })
    }

    fn whole(&self) -> Vec<Chunk> {
        self.lens
            .iter()
            .enumerate()
            .map(|(seq, &len)| chunk(seq, 0, len))
            .collect()
    }
}

struct Shape {
    heads: (usize, usize),
    head_dim: usize,
    block_size: usize,
    window: Option<usize>,
    soft_cap: Option<f32>,
}

impl Shape {
    fn spec(&self) -> AttentionSpec {
        AttentionSpec {
            kv: KvSpec {
                group: 1,
                num_heads: self.heads.0,
                num_kv_heads: self.heads.1,
                head_dim: self.head_dim,
                block_size: self.block_size,
            },
            scale: 1.0 / (self.head_dim as f32).sqrt() * 1.7,
            window: self.window,
            soft_cap: self.soft_cap,
        }
    }
}

fn shapes() -> Vec<Shape> {
    let shape = |heads, head_dim, block_size, window, soft_cap| Shape {
        heads,
        head_dim,
        block_size,
        window,
        soft_cap,
    };
    vec![
        shape((9, 3), 64, 16, None, None),
        shape((4, 1), 256, 32, Some(70), None),
        shape((3, 3), 40, 1, None, Some(3.0)),
        shape((5, 1), 80, 256, Some(300), None),
        shape((14, 2), 24, 4, Some(4), Some(0.5)),
        shape((2, 2), 7, 2, Some(1), None),
        shape((7, 1), 128, 128, Some(64), None),
    ]
}

fn assert_close(got: &[Vec<f32>], want: &[Vec<f32>], what: &str) {
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.len(), want.len());
        for (i, (&a, &b)) in got.iter().zip(want).enumerate() {
            // Relative to the values averaged, whose size is 1 in the mean: sums of them may cancel.
            assert!(
                (a - b).abs() <= 1e-5 * b.abs().max(1.0),
                "{what}: {a} is not {b} at {i}"
            );
        }
    }
}

fn bits(rows: &[f32]) -> Vec<u32> {
    rows.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn attention_is_its_definition_on_every_set() {
    for (i, shape) in shapes().iter().enumerate() {
        // One below, at and above tiles and segments, and a context of one.
        let lens = [1, 31, 63, 64, 65, 130, 257, 523];
        let world = World::new(shape.spec(), &lens, i as u64);
        let want = world.slow(&world.whole());
        for isa in Isa::all() {
            let got = world.fast(isa, 2, &world.whole());
            assert_close(&got, &want, &format!("shape {i}, {isa:?}"));
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_chunk_and_batch_and_on_any_number_of_threads() {
    for (i, shape) in shapes().iter().enumerate() {
        let lens = [300, 90, 777];
        let world = World::new(shape.spec(), &lens, 77 + i as u64);
        for isa in Isa::all() {
            let whole = world.fast(isa, 1, &world.whole());
            for num_threads in [2, 3] {
                let again = world.fast(isa, num_threads, &world.whole());
                assert_eq!(whole.len(), again.len());
                for (a, b) in whole.iter().zip(&again) {
                    assert!(
                        bits(a) == bits(b),
                        "shape {i}, {isa:?}, {num_threads} threads"
                    );
                }
            }
            let row_len = shape.heads.0 * shape.head_dim;
            let expect = |got: &[f32], c: Chunk, what: &str| {
                let want = &whole[c.seq][c.start * row_len..c.end * row_len];
                assert!(
                    bits(got) == bits(want),
                    "shape {i}, {isa:?}, {what} at {}",
                    c.start
                );
            };
            // One sequence in pieces of several lengths, alone.
            let mut start = 0;
            for len in [1, 7, 64, 33, 2, 100, 5].into_iter().cycle() {
                let c = chunk(2, start, (start + len).min(lens[2]));
                expect(&world.fast(isa, 2, &[c])[0], c, "a chunk");
                start = c.end;
                if start == lens[2] {
                    break;
                }
            }
            // One token at a time, with neighbours.
            for position in (0..lens[2]).step_by(13).chain([255, 256, 257, 776]) {
                let chunks = [
                    chunk(0, position % 200, position % 200 + 17),
                    chunk(2, position, position + 1),
                    chunk(1, position % 90, position % 90 + 1),
                ];
                for (rows, c) in world.fast(isa, 3, &chunks).iter().zip(chunks) {
                    expect(rows, c, "a batch");
                }
            }
        }
    }
}

#[test]
fn sets_that_fuse_agree_on_every_bit() {
    let fused: Vec<Isa> = Isa::all()
        .into_iter()
        .filter(|isa| isa.is_fused())
        .collect();
    for (i, shape) in shapes().iter().enumerate() {
        let world = World::new(shape.spec(), &[150, 400], 5 + i as u64);
        for pair in fused.windows(2) {
            let run = |isa| world.fast(isa, 2, &world.whole());
            let (a, b) = (run(pair[0]), run(pair[1]));
            for (a, b) in a.iter().zip(&b) {
                assert!(bits(a) == bits(b), "shape {i}, {pair:?}");
            }
        }
    }
}

#[test]
fn a_window_of_w_shows_w_positions_in_every_way_of_computing_it() {
    // With equal scores a row is the mean of the values it sees; the values are 2^-position, so the
    // mean tells which positions those were.
    let shape = Shape {
        heads: (1, 1),
        head_dim: 1,
        block_size: 2,
        window: Some(4),
        soft_cap: None,
    };
    let mut spec = shape.spec();
    spec.scale = 0.0;
    let mut world = World::new(spec, &[12], 3);
    for position in 0..12 {
        let slot = world.tables[0][position / 2] as usize * 4 + 2 + position % 2;
        world.pool[slot] = 2f32.powi(-(position as i32));
    }
    let want: Vec<f32> = (0..12)
        .map(|p: i32| {
            let first = (p - 3).max(0);
            (first..=p).map(|i| 2f32.powi(-i)).sum::<f32>() / (p - first + 1) as f32
        })
        .collect();
    for isa in Isa::all() {
        for cuts in [
            vec![0, 12],
            vec![0, 5, 12],
            (0..=12).collect(),
            vec![0, 9, 12],
        ] {
            for pair in cuts.windows(2) {
                let got = world.fast(isa, 1, &[chunk(0, pair[0], pair[1])]);
                assert_close(&got, &[want[pair[0]..pair[1]].to_vec()], "window");
            }
        }
    }
}

#[test]
fn a_nan_reaches_its_own_rows_and_no_others() {
    let shape = Shape {
        heads: (6, 2),
        head_dim: 16,
        block_size: 8,
        window: None,
        soft_cap: None,
    };
    let mut world = World::new(shape.spec(), &[100, 70], 9);
    let clean = world.fast(Isa::detect(), 2, &world.whole());
    let block = world.tables[0][5] as usize;
    world.pool[block * 2 * 2 * 8 * 16] = f32::NAN;
    for isa in Isa::all() {
        let got = world.fast(isa, 2, &world.whole());
        assert_close(&got[1..], &clean[1..], "neighbour");
        let row_len = 6 * 16;
        assert!(
            got[0][60 * row_len].is_nan(),
            "the row after the NaN on {isa:?}"
        );
    }
}
