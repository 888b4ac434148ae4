//! `paged_attention`: ragged batches, windows, caps, contexts long enough to be split.

use crate::parity::random::Random;
use crate::parity::step::{Seq, StepPlan};
use crate::parity::{Case, Output};
use burn::tensor::{Tensor, TensorData};
use forerun_kernels::paged_attention::paged_attention;
use forerun_kernels::{AttentionSpec, KvSpec};

const fn seq(num_computed: usize, num_scheduled: usize) -> Seq {
    Seq {
        num_computed,
        num_scheduled,
    }
}

pub(super) fn cases() -> Vec<Case> {
    let ragged = [seq(7, 5), seq(69, 1), seq(0, 7), seq(31, 2)];
    let edges = [seq(30, 1), seq(31, 1), seq(32, 1), seq(15, 1), seq(16, 1)];
    let long = [seq(699, 1), seq(0, 1), seq(257, 3)];
    let prefill = [seq(0, 71), seq(40, 33)];
    let drafts = [seq(69, 5), seq(253, 7), seq(31, 2), seq(8, 1)];
    // Heads, kv heads, head dim, block size.
    let shapes = [
        (6, 2, 20, 8),
        (9, 3, 64, 16),
        (4, 1, 256, 8),
        (1, 1, 3, 1),
        (5, 5, 80, 4),
    ];
    let mut cases = Vec::new();
    for shape in shapes {
        cases.push(case("ragged", &ragged, shape, None, None));
        cases.push(case("ragged", &ragged, shape, Some(5), None));
    }
    for (name, seqs) in [
        ("edges", &edges[..]),
        ("long", &long),
        ("prefill", &prefill),
        ("drafts", &drafts),
    ] {
        for (window, soft_cap) in [(None, None), (Some(33), None), (None, Some(1.5))] {
            cases.push(case(name, seqs, (6, 2, 20, 8), window, soft_cap));
        }
        cases.push(case(name, seqs, (9, 3, 64, 16), None, None));
        cases.push(case(name, seqs, (4, 1, 256, 8), Some(64), Some(50.0)));
    }
    cases
}

fn case(
    name: &str,
    seqs: &[Seq],
    (num_heads, num_kv_heads, head_dim, block_size): (usize, usize, usize, usize),
    window: Option<usize>,
    soft_cap: Option<f32>,
) -> Case {
    let kv = KvSpec {
        group: 0,
        num_heads,
        num_kv_heads,
        head_dim,
        block_size,
    };
    let spec = AttentionSpec {
        kv,
        scale: (head_dim as f32).powf(-0.5),
        window,
        soft_cap,
    };
    let window_name = window.map_or(String::new(), |window| format!(" window={window}"));
    let cap_name = soft_cap.map_or(String::new(), |cap| format!(" cap={cap}"));
    let name = format!(
        "{name} H={num_heads} G={num_kv_heads} D={head_dim} B={block_size}{window_name}{cap_name}"
    );
    let mut plan = StepPlan::of(seqs, block_size);
    plan.has_tails = name.starts_with("drafts");
    Case::against_native("paged_attention", name, 1e-5, move |device| {
        let mut random = Random::new(16);
        let num_tokens = plan.num_tokens();
        let row_len = (num_heads + 2 * num_kv_heads) * head_dim;
        let qkv = TensorData::new(
            random.floats(num_tokens * row_len, 3.0),
            [num_tokens, row_len],
        );
        let shape = [plan.num_blocks, 2, num_kv_heads, block_size, head_dim];
        let pool = TensorData::new(random.floats(shape.iter().product(), 2.0), shape);
        Output::floats(paged_attention(
            Tensor::from_data(qkv, device),
            Tensor::from_data(pool, device),
            plan.upload(17, device),
            spec,
        ))
    })
}
