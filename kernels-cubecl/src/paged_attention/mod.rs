//! Paged attention: attention of this step's queries over each sequence's cached blocks.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | qkv | `[T, (H + 2 G) * D]` | f32 | contiguous | fused rows, rotary applied to q; only q is read |
//! | pool | `[N, 2, G, B, D]` | f32 | contiguous | this step's K and V already written |
//! | positions | `[T]` | u32 | step | of one sequence's tokens: consecutive, ascending |
//! | query_offsets | `[S + 1]` | u32 | step | prefix sums of scheduled tokens, last = T |
//! | context_lens | `[S]` | u32 | step | computed + scheduled, `1 ..= B_max * B` |
//! | block_tables | `[S, B_max]` | u32 | step | `< N`; entries past the context, and before every window, are not read |
//! | tails | | u32 | step | where positions from a tail base on lie: see [`crate::step_inputs`] |
//! | output | `[T, H * D]` | f32 | contiguous | every live row written |
//!
//! Tiles, windows and RoPE go by position and never by place, so that a branch of a draft tree has
//! the bits of the same tokens in order.
//!
//! Query head h reads kv head `h / (H / G)`. B is a power of two, at most 256.
//!
//! # Formula
//! A token at position p attends to positions `max(0, p + 1 - window) ..= p`:
//! `o = softmax(f(scale * q k^T)) v`, where `f(s) = soft_cap * tanh(s / soft_cap)`, or s without.
//! The context is cut into tiles of [`flex::TILE`] positions and segments of [`flex::SEGMENT`],
//! both at fixed positions. Inside a segment the softmax runs online from tile to tile (maximum,
//! sum and weighted values are rescaled when the maximum grows); segments start afresh, and their
//! results are merged in ascending order by the same rescaling. Scores of at most one tile exist.
//!
//! # Errors
//! H not a multiple of G, B not a power of two, buffers too short: panics, the model
//! fixed them when it was loaded and [`crate::step_inputs`] checked the step
//!
//! # Launch
//! native: tasks are (sequence, kv head, run of rows), and segments of those where
//! rows are few and the context is long
//!
//! # Numerics
//! f32; tolerance 1e-5 of the size of the values averaged (their mean may cancel). Bits
//! of a row depend on its query and the K and V it sees alone: not on batch mates,
//! chunks, rows, blocks or threads; AVX2 and AVX-512 give the same bits
//!
//! # Cost
//! bytes = 8 G D * context_len per sequence (K, V once per run of rows), FLOP = 4 H D
//! per pair of query and position; bound: memory for decode, compute for prefill
//!
//! # Source
//! Dao et al., "FlashAttention", 2022, algorithm 1; Kwon et al., "PagedAttention",
//! SOSP 2023; splits over the context: Dao et al., "Flash-Decoding", 2023
//!
//! # Reference
//! [`flex::reference`]
//!
//! # Tests
//! `flex/tests.rs`
//!
//! # Bench
//! `benches/native_ops.rs`

use crate::AttentionSpec;
use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;

/// Attention of this step's queries over the cached blocks of their sequences.
///
/// # Shapes
/// - qkv: `[T, (H + 2 G) * D]`; only q is read, K and V are in the pool already
/// - pool: `[N, 2, G, B, D]`
/// - step: the buffer of [`crate::step_inputs`]
/// - output: `[T, H * D]`
///
/// # Panics
/// If the shapes are not those of the spec.
pub fn paged_attention(
    qkv: Tensor<2>,
    pool: Tensor<5>,
    step: Tensor<1, Int>,
    spec: AttentionSpec,
) -> Tensor<2> {
    let [num_tokens, _] = qkv.dims();
    let op = "paged_attention";
    let num_heads = spec.kv.num_heads + 2 * spec.kv.num_kv_heads;
    crate::check::shape(
        op,
        "qkv",
        qkv.dims(),
        [num_tokens, num_heads * spec.kv.head_dim],
    );
    crate::check::pool(op, &pool, &spec.kv);
    Tensor::from_dispatch(<Dispatch as KernelBackend>::paged_attention(
        qkv.into_dispatch(),
        pool.into_dispatch(),
        step.into_dispatch(),
        spec,
    ))
}
