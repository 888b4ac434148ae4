//! Native ops other than the matrix product, at the shapes of SmolLM2-135M and Gemma 3 270M.
//!
//! `cargo bench -p forerun-benches --bench native_ops`. Threads: as many as the machine has cores.

use std::num::NonZeroUsize;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use forerun_kernels::spec::{
    Activation, AttentionSpec, KvSpec, RmsNormSpec, RopePairing, RopeSpec,
};
use forerun_kernels::step_inputs::{
    GroupArrays, LogprobsKind, LogprobsRow, SamplingRow, StepArrays, StepCapacity, StepInputs,
    StepView,
};
use forerun_kernels::threads::Threads;
use forerun_kernels::{
    glu, kv_write, logits_process, logprobs, paged_attention, rms_norm, rope, sample,
};

fn main() {
    divan::main();
}

fn threads() -> Threads {
    Threads::new(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
}

/// Numbers that look random.
fn values(len: usize) -> Vec<f32> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Bounds what a row may ask for.
const VOCAB_SIZE_MAX: usize = 262_144;

/// A step of one sequence: `num_tokens` tokens after `num_computed` others.
fn step(num_computed: usize, num_tokens: usize, sampling: &[SamplingRow]) -> StepInputs {
    const BLOCK_SIZE: usize = 32;
    let context_len = num_computed + num_tokens;
    let blocks = context_len.div_ceil(BLOCK_SIZE);
    let mut step = StepInputs::new(StepCapacity {
        tokens: num_tokens,
        seqs: 1,
        logit_rows: sampling.len(),
        blocks_per_seq: vec![blocks],
        copies: vec![0],
        ..StepCapacity::default()
    });
    let zeros = vec![0; num_tokens];
    let arrays = StepArrays {
        token_ids: &zeros,
        positions: &(num_computed as u32..context_len as u32).collect::<Vec<_>>(),
        seq_of_token: &zeros,
        query_offsets: &[0, num_tokens as u32],
        context_lens: &[context_len as u32],
        logit_rows: &vec![0; sampling.len()],
        sampling,
        groups: &[GroupArrays {
            slot_mapping: &zeros,
            block_tables: &(1..=blocks as u32).collect::<Vec<_>>(),
            blocks_per_seq: blocks,
            num_blocks: blocks + 1,
            block_size: BLOCK_SIZE,
            block_copies: &[],
        }],
        ..StepArrays::default()
    };
    step.fill(&arrays, VOCAB_SIZE_MAX)
        .expect("the step fits the buffer made for it");
    step
}

/// H, G, D of the two models.
const SMOLLM2: (usize, usize, usize) = (9, 3, 64);
const GEMMA3: (usize, usize, usize) = (4, 1, 256);

/// Items are floating-point operations: 4 D for each pair of a query and a position it sees.
fn attention(
    bencher: Bencher<'_, '_>,
    (num_heads, num_kv_heads, head_dim): (usize, usize, usize),
    (num_computed, num_tokens): (usize, usize),
) {
    let kv = KvSpec {
        group: 0,
        num_heads,
        num_kv_heads,
        head_dim,
        block_size: 32,
    };
    let spec = AttentionSpec {
        kv,
        scale: 0.125,
        window: None,
        soft_cap: None,
    };
    let words = step(num_computed, num_tokens, &[]);
    let blocks = (num_computed + num_tokens).div_ceil(32) + 1;
    let pool = values(blocks * 2 * num_kv_heads * 32 * head_dim);
    let qkv = values(num_tokens * (num_heads + 2 * num_kv_heads) * head_dim);
    let mut out = vec![0.0; num_tokens * num_heads * head_dim];
    let threads = threads();
    let pairs = num_tokens * num_computed + num_tokens * (num_tokens + 1) / 2;
    bencher
        .counter(ItemsCount::new(4 * head_dim * num_heads * pairs))
        .bench_local(|| {
            let view = StepView::new(words.words());
            let (qkv, pool) = (black_box(&qkv[..]), &pool[..]);
            paged_attention::flex::paged_attention(&threads, qkv, pool, view, &spec, &mut out);
        });
}

const STEPS: [(usize, usize); 9] = [
    (0, 512),
    (1536, 512),
    (100, 1),
    (1000, 1),
    (8000, 1),
    (1000, 5),
    (1000, 16),
    (0, 16),
    (20_000, 1),
];

#[divan::bench(args = STEPS)]
fn attention_smollm2(bencher: Bencher<'_, '_>, step: (usize, usize)) {
    attention(bencher, SMOLLM2, step);
}

#[divan::bench(args = STEPS)]
fn attention_gemma3(bencher: Bencher<'_, '_>, step: (usize, usize)) {
    attention(bencher, GEMMA3, step);
}

/// Tokens of a step, for the ops that are bound by memory.
const TOKENS: [usize; 3] = [1, 16, 512];

#[divan::bench(args = TOKENS)]
fn add_rms_norm_smollm2(bencher: Bencher<'_, '_>, num_tokens: usize) {
    let spec = RmsNormSpec {
        num_groups: 1,
        num_normed: 1,
        group_len: 576,
        epsilon: 1e-5,
    };
    let (x, gamma) = (values(num_tokens * 576), values(576));
    let (mut residual, mut out) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    let threads = threads();
    bencher
        .counter(BytesCount::new(16 * x.len()))
        .bench_local(|| {
            let x = black_box(&x[..]);
            rms_norm::flex::add_rms_norm(&threads, &mut residual, x, &gamma, &spec, &mut out);
        });
}

#[divan::bench(args = TOKENS)]
fn rope_smollm2(bencher: Bencher<'_, '_>, num_tokens: usize) {
    let spec = RopeSpec {
        num_heads: 15,
        num_rotated: 12,
        head_dim: 64,
        rotary_dim: 64,
        pairing: RopePairing::Halves,
        magnitude: 1.0,
    };
    let inv_freq: Vec<f32> = (0..32_i16)
        .map(|i| 1e5_f32.powf(-f32::from(i) / 32.0))
        .collect();
    let positions: Vec<u32> = (1000..1000 + num_tokens as u32).collect();
    let mut x = values(num_tokens * 15 * 64);
    let threads = threads();
    bencher
        .counter(BytesCount::new(8 * num_tokens * 12 * 64))
        .bench_local(|| {
            rope::flex::rope(&threads, black_box(&mut x), &inv_freq, &positions, &spec);
        });
}

#[divan::bench(args = TOKENS)]
fn kv_write_smollm2(bencher: Bencher<'_, '_>, num_tokens: usize) {
    let (num_heads, num_kv_heads, head_dim) = SMOLLM2;
    let spec = KvSpec {
        group: 0,
        num_heads,
        num_kv_heads,
        head_dim,
        block_size: 32,
    };
    let mut pool = vec![0.0; 20 * 2 * num_kv_heads * 32 * head_dim];
    let qkv = values(num_tokens * (num_heads + 2 * num_kv_heads) * head_dim);
    let slots: Vec<u32> = (32..32 + num_tokens as u32).collect();
    let threads = threads();
    let bytes = 16 * num_tokens * num_kv_heads * head_dim;
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        kv_write::flex::kv_write(&threads, &mut pool, black_box(&qkv), &slots, &spec);
    });
}

#[divan::bench(args = TOKENS, consts = [false, true])]
fn glu_1536<const GELU: bool>(bencher: Bencher<'_, '_>, num_tokens: usize) {
    let activation = if GELU {
        Activation::GeluTanh
    } else {
        Activation::Silu
    };
    let x = values(num_tokens * 2 * 1536);
    let mut out = vec![0.0; num_tokens * 1536];
    let threads = threads();
    bencher
        .counter(BytesCount::new(12 * out.len()))
        .bench_local(|| {
            glu::flex::glu(&threads, black_box(&x), 1536, activation, &mut out);
        });
}

/// Vocabulary, temperature, and the spread of the logits.
const SAMPLES: [(usize, f32, f32); 5] = [
    (49_152, 0.0, 1.0),
    (262_144, 0.0, 1.0),
    (49_152, 1.0, 40.0),
    (262_144, 1.0, 40.0),
    (262_144, 1.0, 0.01),
];

#[divan::bench(args = SAMPLES)]
fn sample_one_row(bencher: Bencher<'_, '_>, (vocab_size, temperature, spread): (usize, f32, f32)) {
    let logits: Vec<f32> = values(vocab_size)
        .iter()
        .map(|logit| logit * spread)
        .collect();
    let words = step(0, 1, &[SamplingRow::plain(temperature, 5, 9)]);
    let mut verdicts = [0; 2];
    let threads = threads();
    bencher
        .counter(BytesCount::new(4 * vocab_size))
        .bench_local(|| {
            let view = StepView::new(words.words());
            sample::flex::sample(
                &threads,
                black_box(&logits),
                vocab_size,
                view,
                &mut verdicts,
            );
        });
}

/// Vocabulary, and the filters and distributions that are timed.
const FILTERS: [(usize, &str); 6] = [
    (49_152, "top_k 50, top_p 0.9"),
    (49_152, "top_p 0.95"),
    (49_152, "typical 0.9"),
    (49_152, "min_p 0.05"),
    (49_152, "flat, top_p 0.9"),
    (262_144, "top_k 50, top_p 0.9"),
];

#[divan::bench(args = FILTERS)]
fn process_one_row(bencher: Bencher<'_, '_>, (vocab_size, filters): (usize, &str)) {
    let plain = SamplingRow::plain(0.8, 5, 9);
    let row = match filters {
        "top_p 0.95" => SamplingRow {
            top_p: 0.95,
            ..plain
        },
        "typical 0.9" => SamplingRow {
            typical_p: 0.9,
            ..plain
        },
        "min_p 0.05" => SamplingRow {
            min_p: 0.05,
            ..plain
        },
        "flat, top_p 0.9" => SamplingRow {
            top_p: 0.9,
            ..plain
        },
        _ => SamplingRow {
            top_k: 50,
            top_p: 0.9,
            ..plain
        },
    };
    let spread = if filters.starts_with("flat") {
        0.01
    } else {
        12.0
    };
    let logits: Vec<f32> = values(vocab_size).iter().map(|x| x * spread).collect();
    let words = step(0, 1, &[row]);
    let threads = threads();
    bencher
        .counter(BytesCount::new(4 * vocab_size))
        .with_inputs(|| logits.clone())
        .bench_local_refs(|logits| {
            let view = StepView::new(words.words());
            logits_process::flex::logits_process(&threads, logits, vocab_size, view);
        });
}

#[divan::bench(args = [0, 5, 256])]
fn logprobs_of_one_row(bencher: Bencher<'_, '_>, num_top: u32) {
    let vocab_size = 49_152;
    let logits: Vec<f32> = values(vocab_size).iter().map(|x| x * 12.0).collect();
    let row = SamplingRow {
        logprobs: Some(LogprobsRow {
            num_top,
            kind: LogprobsKind::Raw,
        }),
        ..SamplingRow::greedy(9)
    };
    let words = step(0, 1, &[row]);
    let row_words = logprobs::ROW_WORDS + 2 * num_top as usize;
    let mut out = vec![0; row_words];
    let threads = threads();
    bencher
        .counter(BytesCount::new(4 * vocab_size))
        .bench_local(|| {
            let inputs = logprobs::flex::Inputs {
                raw: &logits,
                processed: &logits,
                verdicts: &[7, 0],
                vocab_size,
                step: StepView::new(words.words()),
            };
            logprobs::flex::logprobs(&threads, black_box(&inputs), row_words, &mut out);
        });
}
