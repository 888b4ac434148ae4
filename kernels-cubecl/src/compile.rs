//! Every kernel the runner may launch, as definitions that can be compiled without a device of
//! their kind: tests compile them to PTX and WGSL, start-up compiles them before the first request.
//!
//! Neighbours: the lists come from `<op>/cube.rs`, next to the launches they must agree with.

use crate::linear::cube::Blueprint as LinearBlueprint;
use crate::linear::cube::{LinearShapeLaunch, few, many};
use crate::paged_attention::cube::{attend, merge};
use crate::spec::{Activation, AttentionSpec, KvSpec, MatrixSpec, RmsNormSpec, RopeSpec};
use crate::{
    advance, embed, gather_rows, glu, kv_compact, kv_copy, kv_write, launch, logits_process,
    logprobs, paged_attention, rms_norm, rope, sample, verify,
};
use cubecl::prelude::*;

pub use crate::launch::CompileTarget;

/// One op of a model, with what is fixed when the model is loaded.
#[derive(Clone, Debug, PartialEq)]
pub enum OpVariant {
    /// [`embed::embed`].
    Embed {
        /// The table.
        matrix: MatrixSpec,
        /// Factor on the rows.
        scale: f32,
    },
    /// [`rms_norm::rms_norm`] and [`rms_norm::add_rms_norm`].
    RmsNorm(RmsNormSpec),
    /// [`crate::linear::linear`].
    Linear {
        /// The weights.
        matrix: MatrixSpec,
        /// Whether there is a bias.
        bias: Bias,
    },
    /// [`rope::rope`].
    Rope(RopeSpec),
    /// [`kv_write::kv_write`] and [`kv_copy::kv_copy`].
    Kv(KvSpec),
    /// [`paged_attention::paged_attention`].
    PagedAttention(AttentionSpec),
    /// [`glu::glu`].
    Glu {
        /// F.
        d_ff: usize,
        /// The gate.
        activation: Activation,
    },
    /// [`gather_rows::gather_rows`].
    GatherRows {
        /// M.
        columns: usize,
    },
    /// [`advance::advance`] and [`logits_process::logits_process`], [`sample::sample`] and
    /// [`logprobs::logprobs`].
    Sample {
        /// V.
        vocab_size: usize,
    },
}

/// Whether a linear has a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bias {
    /// It has none.
    None,
    /// It has one.
    Added,
}

/// A kernel and the op it belongs to.
pub struct OpKernel {
    /// Name of the op.
    pub op: &'static str,
    /// The kernel.
    pub kernel: Box<dyn CubeKernel>,
}

/// Numbers of tokens that make `linear` choose each of the kernels it has.
const NUM_TOKENS: [usize; 7] = [1, 2, 4, 8, 16, 32, 512];

/// Every kernel that `variant` may launch on a device like `target`, for any number of tokens.
pub fn kernels(variant: &OpVariant, target: &CompileTarget) -> Vec<OpKernel> {
    let (op, kernels) = match variant {
        OpVariant::Embed { matrix, scale } => {
            ("embed", embed::cube::kernels(target, matrix, *scale))
        }
        OpVariant::RmsNorm(spec) => ("rms_norm", rms_norm::cube::kernels(target, spec)),
        OpVariant::Linear { matrix, bias } => ("linear", linear_kernels(target, matrix, *bias)),
        OpVariant::Rope(spec) => ("rope", rope::cube::kernels(target, spec)),
        OpVariant::Kv(spec) => {
            let mut kernels = kv_write::cube::kernels(target, *spec);
            kernels.extend(kv_copy::cube::kernels(target, *spec));
            kernels.extend(kv_compact::cube::kernels(target, *spec));
            ("kv", kernels)
        }
        OpVariant::PagedAttention(spec) => ("paged_attention", attention_kernels(target, spec)),
        OpVariant::Glu { d_ff, activation } => {
            ("glu", glu::cube::kernels(target, *d_ff, *activation))
        }
        OpVariant::GatherRows { columns } => {
            ("gather_rows", gather_rows::cube::kernels(target, *columns))
        }
        OpVariant::Sample { vocab_size } => ("sample", sampling_kernels(target, *vocab_size)),
    };
    let mut seen = Vec::new();
    let mut distinct = Vec::new();
    for kernel in kernels {
        let id = kernel.id();
        if !seen.contains(&id) {
            seen.push(id);
            distinct.push(OpKernel { op, kernel });
        }
    }
    distinct
}

fn sampling_kernels(target: &CompileTarget, vocab_size: usize) -> Vec<Box<dyn CubeKernel>> {
    let mut kernels = sample::cube::kernels(target, vocab_size);
    kernels.extend(logits_process::cube::kernels(target, vocab_size));
    kernels.extend(verify::cube::kernels(target, vocab_size));
    kernels.extend(logprobs::cube::kernels(target, vocab_size));
    kernels.extend(advance::cube::kernels(target, sample::VERDICT_WORDS));
    kernels
}

fn linear_kernels(
    target: &CompileTarget,
    matrix: &MatrixSpec,
    bias: Bias,
) -> Vec<Box<dyn CubeKernel>> {
    let mut kernels: Vec<Box<dyn CubeKernel>> = Vec::new();
    for part in &matrix.parts {
        for num_tokens in NUM_TOKENS {
            let blueprint = LinearBlueprint::choose(&target.properties, part.format, num_tokens);
            kernels.push(linear_kernel(target, matrix, bias, blueprint));
        }
    }
    kernels
}

fn linear_kernel(
    target: &CompileTarget,
    matrix: &MatrixSpec,
    bias: Bias,
    blueprint: LinearBlueprint,
) -> Box<dyn CubeKernel> {
    let shape = LinearShapeLaunch::new(1, matrix.d_input, 1, 0, matrix.d_output);
    let bias = (bias == Bias::Added)
        .then(|| target.buffer(matrix.d_output))
        .into();
    let (properties, compiler) = (target.properties.clone(), target.target.clone());
    let (x, words) = (target.buffer(matrix.d_input), target.buffer(1));
    let output = target.buffer(matrix.d_output);
    let count = launch::cube_count(1);
    match blueprint {
        LinearBlueprint::Few(blueprint) => {
            let dim = CubeDim::new_1d(blueprint.units() as u32);
            Box::new(few::linear_few::create_dummy_kernel(
                properties, compiler, count, dim, x, words, bias, output, shape, blueprint,
            ))
        }
        LinearBlueprint::Many(blueprint) => {
            let dim = CubeDim::new_1d(blueprint.units() as u32);
            Box::new(many::linear_many::create_dummy_kernel(
                properties, compiler, count, dim, x, words, bias, output, shape, blueprint,
            ))
        }
    }
}

fn attention_kernels(target: &CompileTarget, spec: &AttentionSpec) -> Vec<Box<dyn CubeKernel>> {
    let mut kernels: Vec<Box<dyn CubeKernel>> = Vec::new();
    for (attend, merge) in paged_attention::cube::all(&target.properties, spec) {
        kernels.push(Box::new(attend::attend::create_dummy_kernel(
            target.properties.clone(),
            target.target.clone(),
            launch::cube_count(1),
            CubeDim::new_1d(attend.units as u32),
            target.buffer(1),
            target.buffer(1),
            target.buffer(1),
            target.buffer(1),
            attend,
        )));
        if let Some(merge) = merge {
            kernels.push(Box::new(merge::merge_runs::create_dummy_kernel(
                target.properties.clone(),
                target.target.clone(),
                launch::cube_count(1),
                CubeDim::new_1d(merge.units as u32),
                target.buffer(1),
                target.buffer(1),
                merge,
            )));
        }
    }
    kernels
}
