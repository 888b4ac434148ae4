//! `paged_attention` on a CubeCL device.
//!
//! Two ways. Up to [`SPLIT_TOKENS_MAX`] tokens (decode, verification): a cube per token, kv head
//! and run of the context; [`merge`] then combines the runs. More tokens (prefill): a cube per tile
//! of consecutive tokens and kv head, over the whole context; a tile may hold tokens of several
//! sequences, which take their turns.
//!
//! Either way the context is walked in tiles of [`TILE`] positions at multiples of [`TILE`], and
//! the runs of a token depend on its position alone, so a token's bits do not depend on its batch
//! mates within one way.
//!
//! Neighbours: [`tile`] is one tile's arithmetic, [`share`] who does what of it; [`super::flex`] is the native twin.

pub(crate) mod attend;
mod math;
pub(crate) mod merge;
mod share;
mod tile;

use crate::launch;
use crate::spec::AttentionSpec;
use attend::AttendBlueprint;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;
use merge::MergeBlueprint;

/// Positions of the context whose scores exist at one time.
pub(crate) const TILE: usize = 32;
/// Most tokens for which the context is split.
pub(crate) const SPLIT_TOKENS_MAX: usize = 64;
/// Runs into which a context is split.
pub(crate) const SPLITS: usize = 16;
/// Least tiles in a run: shorter contexts fill fewer runs.
pub(crate) const RUN_TILES_MIN: usize = 8;

/// A vector of four neighbouring values of a head.
type Quad = Vector<f32, Const<4>>;

/// The score of a position that a query does not see: finite, so that no NaN can arise.
const MASKED: f32 = -1.0e30;

/// Attention of the q heads of `qkv [T, (H + 2 G) * D]` over `pool [N, 2, G, B, D]`: `[T, H * D]`.
///
/// Rows past the step's live tokens are zero.
pub(crate) fn launch(
    qkv: CubeTensor,
    pool: &CubeTensor,
    step: &CubeTensor,
    spec: &AttentionSpec,
) -> CubeTensor {
    let num_tokens = qkv.meta.shape()[0];
    let num_blocks = pool.meta.shape()[0];
    let qkv = launch::contiguous(qkv);
    let row_len = spec.kv.num_heads * spec.kv.head_dim;
    let output = launch::empty_f32(&qkv, [num_tokens, row_len]);
    if num_tokens == 0 {
        return output;
    }
    let properties = qkv.client.properties();
    let attend = AttendBlueprint::choose(properties, spec, num_tokens, num_blocks);
    if attend.splits == 1 {
        launch_attend(&qkv, pool, step, &output, num_tokens, &attend);
        return output;
    }
    let merge = MergeBlueprint::new(properties, &attend);
    let num_rows = num_tokens * spec.kv.num_heads;
    let partials = launch::empty_f32(&qkv, [num_rows * attend.splits, merge.partial_len()]);
    launch_attend(&qkv, pool, step, &partials, num_tokens, &attend);
    // SAFETY: `partials` and `output` hold `num_rows` rows of the blueprint's sizes.
    unsafe {
        merge::merge_runs::launch_unchecked(
            &qkv.client,
            launch::cube_count(num_rows),
            CubeDim::new_1d(merge.units as u32),
            launch::buffer(&partials),
            launch::buffer(&output),
            merge,
        );
    }
    output
}

fn launch_attend(
    qkv: &CubeTensor,
    pool: &CubeTensor,
    step: &CubeTensor,
    output: &CubeTensor,
    num_tokens: usize,
    blueprint: &AttendBlueprint,
) {
    // SAFETY: the tensor function checked the shapes of `qkv` and `pool` against the spec, and
    // filling the step buffer checked its indices; `output` has a row per token and head.
    unsafe {
        attend::attend::launch_unchecked(
            &qkv.client,
            launch::cube_count(blueprint.num_cubes(num_tokens)),
            CubeDim::new_1d(blueprint.units as u32),
            launch::buffer(qkv),
            launch::buffer(pool),
            launch::buffer(step),
            launch::buffer(output),
            *blueprint,
        );
    }
}

/// Every pair of kernels that `launch` may use for `spec` on a device of these properties.
pub(crate) fn all(
    properties: &DeviceProperties,
    spec: &AttentionSpec,
) -> Vec<(AttendBlueprint, Option<MergeBlueprint>)> {
    let few_blocks = 1;
    let many_blocks = RUN_TILES_MIN * TILE + 1;
    [
        (1, few_blocks),
        (1, many_blocks),
        (SPLIT_TOKENS_MAX + 1, many_blocks),
    ]
    .map(|(num_tokens, num_blocks)| {
        let attend = AttendBlueprint::choose(properties, spec, num_tokens, num_blocks);
        let merge = (attend.splits > 1).then(|| MergeBlueprint::new(properties, &attend));
        (attend, merge)
    })
    .into()
}

#[cfg(test)]
mod tests;
