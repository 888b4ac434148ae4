//! `kv_write`, `kv_copy` and `kv_compact`.

use crate::parity::random::Random;
use crate::parity::step::{Seq, StepPlan};
use crate::parity::{Case, Output};
use burn::tensor::{DType, Device, Tensor, TensorData};
use forerun_kernels::KvSpec;
use forerun_kernels::kv_compact::kv_compact;
use forerun_kernels::kv_copy::kv_copy;
use forerun_kernels::kv_write::kv_write;
use forerun_kernels::step_inputs::SamplingRow;
use forerun_kernels::verify::{STATUS_TOKEN, STATUS_UNREACHED};

/// H, G, D, B.
const SHAPES: [(usize, usize, usize, usize); 4] =
    [(1, 1, 1, 1), (6, 3, 7, 4), (9, 3, 64, 16), (4, 1, 256, 8)];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (num_heads, num_kv_heads, head_dim, block_size) in SHAPES {
        let spec = KvSpec {
            group: 0,
            num_heads,
            num_kv_heads,
            head_dim,
            block_size,
        };
        let name = format!("H={num_heads} G={num_kv_heads} D={head_dim} B={block_size}");
        cases.push(Case::against_native(
            "kv_write",
            name.clone(),
            0.0,
            move |device| {
                let seqs = [
                    Seq {
                        num_computed: 0,
                        num_scheduled: 5,
                    },
                    Seq {
                        num_computed: 11,
                        num_scheduled: 1,
                    },
                    Seq {
                        num_computed: 3,
                        num_scheduled: 2,
                    },
                ];
                let mut plan = StepPlan::of(&seqs, block_size);
                // The last two rows are padding, which must not be written anywhere that counts.
                plan.tokens_max += 2;
                let row_len = (num_heads + 2 * num_kv_heads) * head_dim;
                let qkv = Random::new(9).floats(plan.tokens_max * row_len, 1.0);
                let qkv = TensorData::new(qkv, [plan.tokens_max, row_len]);
                let qkv = Tensor::from_data(qkv, device);
                let step = plan.upload(10, device);
                Output::bits(kv_write(
                    pool(plan.num_blocks, &spec, device),
                    qkv,
                    step,
                    spec,
                ))
            },
        ));
        for seed in 0..4 {
            let name = format!("{name} trees {seed}");
            let case = move |device: &Device| compacted(spec, seed, device);
            cases.push(Case::against_native("kv_compact", name, 0.0, case));
        }
        cases.push(Case::against_native("kv_copy", name, 0.0, move |device| {
            let mut plan = StepPlan::of(
                &[Seq {
                    num_computed: 3,
                    num_scheduled: 1,
                }],
                block_size,
            );
            plan.num_blocks = 9;
            plan.copies = vec![(1, 7), (4, 2), (1, 8)];
            // A group before has none, and must not be looked at.
            plan.group = 1;
            let spec = KvSpec { group: 1, ..spec };
            let step = plan.upload(11, device);
            Output::bits(kv_copy(pool(plan.num_blocks, &spec, device), step, spec))
        }));
    }
    cases
}

/// Compacts random trees, of which random paths were accepted.
fn compacted(spec: KvSpec, seed: u64, device: &Device) -> Output {
    let mut random = Random::new(seed);
    let seqs: Vec<Seq> = (0..5)
        .map(|_| Seq {
            num_computed: random.below(40),
            num_scheduled: 1 + random.below(12),
        })
        .collect();
    let mut plan = StepPlan::of(&seqs, spec.block_size);
    let mut verdicts = Vec::new();
    for seq in &seqs {
        let anchor = plan.sampling.len();
        let num_drafts = seq.num_scheduled - 1;
        let mut row = SamplingRow::greedy(0);
        row.num_drafts = num_drafts as u32;
        plan.sampling.push(row);
        verdicts.extend([0, STATUS_TOKEN]);
        let mut last_reached = anchor;
        for draft in anchor + 1..=anchor + num_drafts {
            let parent = anchor + random.below(draft - anchor);
            let mut row = SamplingRow::greedy(0);
            row.parent_row = Some(parent as u32);
            plan.sampling.push(row);
            let is_reached = parent == last_reached && random.below(4) > 0;
            if is_reached {
                last_reached = draft;
            }
            verdicts.extend([
                0,
                if is_reached {
                    STATUS_TOKEN
                } else {
                    STATUS_UNREACHED
                },
            ]);
        }
    }
    let num_rows = plan.sampling.len();
    plan.logit_rows = (0..num_rows as u32).collect();
    plan.rows_max = num_rows + 2;
    // Rows of padding.
    verdicts.extend([0; 4]);
    // A group before has other slots, and must not be looked at.
    plan.group = 1;
    let spec = KvSpec { group: 1, ..spec };
    let verdicts = TensorData::new(verdicts, [num_rows + 2, 2]);
    let verdicts = Tensor::from_data(verdicts, (device, DType::U32));
    let pool = pool(plan.num_blocks, &spec, device);
    Output::bits(kv_compact(pool, plan.upload(seed, device), verdicts, spec))
}

fn pool(num_blocks: usize, spec: &KvSpec, device: &Device) -> Tensor<5> {
    let shape = [
        num_blocks,
        2,
        spec.num_kv_heads,
        spec.block_size,
        spec.head_dim,
    ];
    let values = Random::new(12).floats(shape.iter().product(), 1.0);
    Tensor::from_data(TensorData::new(values, shape), device)
}
