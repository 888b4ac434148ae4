//! `kv_write` and `kv_copy`.

use crate::parity::random::Random;
use crate::parity::step::{Seq, StepPlan};
use crate::parity::{Case, Output};
use burn::tensor::{Device, Tensor, TensorData};
use forerun_kernels::KvSpec;
use forerun_kernels::kv_copy::kv_copy;
use forerun_kernels::kv_write::kv_write;

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
