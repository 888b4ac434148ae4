//! The ops on every CubeCL runtime: CUDA, wgpu, and CubeCL's `cpu` as a test device.
//!
//! Neighbours: [`super`] is the trait; the launches are in `<op>/cube.rs`.

use super::{KernelBackend, MatrixTensors};
use crate::launch::contiguous;
use crate::spec::{Activation, AttentionSpec, KvSpec, MatrixSpec, RmsNormSpec, RopeSpec};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

impl KernelBackend for CubeBackend {
    fn embed(
        table: MatrixTensors<Self>,
        step: CubeTensor,
        matrix: &MatrixSpec,
        num_tokens: usize,
        scale: f32,
    ) -> CubeTensor {
        crate::embed::cube::embed(&table.parts, &contiguous(step), matrix, num_tokens, scale)
    }

    fn rms_norm(x: CubeTensor, gamma: CubeTensor, spec: RmsNormSpec) -> CubeTensor {
        crate::rms_norm::cube::rms_norm(x, gamma, &spec)
    }

    fn add_rms_norm(
        residual: CubeTensor,
        x: CubeTensor,
        gamma: CubeTensor,
        spec: RmsNormSpec,
    ) -> (CubeTensor, CubeTensor) {
        crate::rms_norm::cube::add_rms_norm(residual, x, gamma, &spec)
    }

    fn linear(x: CubeTensor, weights: MatrixTensors<Self>, matrix: &MatrixSpec) -> CubeTensor {
        crate::linear::cube::launch(x, &weights.parts, weights.bias.as_ref(), matrix)
    }

    fn rope(x: CubeTensor, inv_freq: CubeTensor, step: CubeTensor, spec: RopeSpec) -> CubeTensor {
        crate::rope::cube::rope(x, inv_freq, &contiguous(step), &spec)
    }

    fn kv_write(pool: CubeTensor, qkv: CubeTensor, step: CubeTensor, spec: KvSpec) -> CubeTensor {
        crate::kv_write::cube::kv_write(pool, qkv, &contiguous(step), spec)
    }

    fn kv_copy(pool: CubeTensor, step: CubeTensor, spec: KvSpec) -> CubeTensor {
        crate::kv_copy::cube::kv_copy(pool, &contiguous(step), spec)
    }

    fn kv_compact(
        pool: CubeTensor,
        step: CubeTensor,
        verdicts: CubeTensor,
        spec: KvSpec,
    ) -> CubeTensor {
        crate::kv_compact::cube::kv_compact(pool, &contiguous(step), verdicts, spec)
    }

    fn paged_attention(
        qkv: CubeTensor,
        pool: CubeTensor,
        step: CubeTensor,
        spec: AttentionSpec,
    ) -> CubeTensor {
        crate::paged_attention::cube::launch(qkv, &contiguous(pool), &contiguous(step), &spec)
    }

    fn glu(x: CubeTensor, activation: Activation) -> CubeTensor {
        crate::glu::cube::glu(x, activation)
    }

    fn gather_rows(x: CubeTensor, step: CubeTensor, num_rows: usize) -> CubeTensor {
        crate::gather_rows::cube::gather_rows(x, &contiguous(step), num_rows)
    }

    fn advance(step: CubeTensor, previous: CubeTensor) -> CubeTensor {
        crate::advance::cube::advance(step, previous)
    }

    fn logits_process(logits: CubeTensor, step: CubeTensor) -> CubeTensor {
        crate::logits_process::cube::logits_process(logits, &contiguous(step))
    }

    fn logprobs(
        raw: CubeTensor,
        processed: CubeTensor,
        verdicts: CubeTensor,
        step: CubeTensor,
        num_top: usize,
    ) -> CubeTensor {
        let distributions = [contiguous(raw), contiguous(processed)];
        let verdicts = contiguous(verdicts);
        crate::logprobs::cube::logprobs(&distributions, &verdicts, &contiguous(step), num_top)
    }

    fn verify(
        logits: CubeTensor,
        verdicts: CubeTensor,
        draft_logits: CubeTensor,
        step: CubeTensor,
    ) -> CubeTensor {
        crate::verify::cube::verify(logits, verdicts, draft_logits, &contiguous(step))
    }

    fn sample(logits: CubeTensor, step: CubeTensor) -> CubeTensor {
        crate::sample::cube::sample(logits, &contiguous(step))
    }
}
