use super::world::{Chunk, World, chunk};
use crate::simd::Isa;
use crate::spec::{AttentionSpec, KvSpec};

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
fn a_branch_of_a_draft_tree_has_the_bits_of_its_tokens_in_order() {
    for (i, shape) in shapes().iter().enumerate() {
        let lens = [300, 261, 70];
        let plain = World::new(shape.spec(), &lens, 31 + i as u64);
        let mut tree = World::new(shape.spec(), &lens, 31 + i as u64);
        // Across a segment and tiles, across a tile, and a single token.
        for (seq, base) in [(0, 250), (1, 255), (2, 69)] {
            tree.scatter(seq, base);
        }
        let row_len = shape.heads.0 * shape.head_dim;
        for isa in Isa::all() {
            let whole = plain.fast(isa, 1, &plain.whole());
            let chunks = [
                chunk(0, 250, 300),
                chunk(0, 299, 300),
                chunk(1, 258, 261),
                chunk(2, 69, 70),
                chunk(1, 100, 101),
            ];
            for (rows, c) in tree.fast(isa, 2, &chunks).iter().zip(chunks) {
                let want = &whole[c.seq][c.start * row_len..c.end * row_len];
                assert!(bits(rows) == bits(want), "shape {i}, {isa:?}, {}", c.start);
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
            assert!(
                a.iter().zip(&b).all(|(a, b)| bits(a) == bits(b)),
                "shape {i}, {pair:?}"
            );
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
