//! Causal self-attention over a paged KV cache (Vaswani et al., arXiv 1706.03762; Kwon et al.,
//! arXiv 2309.06180).
//!
//! One fused row per token runs through all of it: `[q heads | k heads | v heads]`. Norms and RoPE
//! change its leading heads in place, `kv_write` copies its k and v heads into the pool,
//! `paged_attention` reads its q heads.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use forerun_kernels::spec::{AttentionSpec, RopeSpec};
use forerun_kernels::{kv_write, paged_attention, rope};

use super::linear::Linear;
use super::norm::RmsNorm;
use crate::forward_context::ForwardContext;
use crate::kv_cache::LayerCache;

/// Grouped-query attention (Ainslie et al., arXiv 2305.13245) of one layer.
#[derive(Module, Debug)]
pub struct Attention {
    qkv: Linear,
    /// Norm of each q and k head (Gemma 3), one row of gamma per head.
    head_norm: Option<RmsNorm>,
    /// `[rotary_dim / 2]`, radians per position.
    inverse_frequencies: Param<Tensor<1>>,
    output: Linear,
    #[module(skip)]
    rope: RopeSpec,
    #[module(skip)]
    spec: AttentionSpec,
}

/// The parts an [`Attention`] is made of.
#[derive(Debug)]
pub struct AttentionParts {
    /// M to `(H + 2 G) D`.
    pub qkv: Linear,
    /// Over the leading `H + G` heads.
    pub head_norm: Option<RmsNorm>,
    /// `[rotary_dim / 2]`.
    pub inverse_frequencies: Tensor<1>,
    /// `H D` to M.
    pub output: Linear,
    /// Rotation of the leading `H + G` heads.
    pub rope: RopeSpec,
    /// Scale, window and KV group.
    pub spec: AttentionSpec,
}

impl Attention {
    /// Puts the parts together.
    pub fn new(parts: AttentionParts) -> Self {
        Self {
            qkv: parts.qkv,
            head_norm: parts.head_norm,
            inverse_frequencies: Param::from_tensor(parts.inverse_frequencies),
            output: parts.output,
            rope: parts.rope,
            spec: parts.spec,
        }
    }

    /// # Shapes
    /// - x: `[T, M]`
    /// - output: `[T, M]`
    pub fn forward(
        &self,
        x: Tensor<2>,
        context: &ForwardContext,
        cache: &mut LayerCache,
    ) -> Tensor<2> {
        let mut qkv = self.qkv.forward(x);
        if let Some(norm) = &self.head_norm {
            qkv = norm.forward(qkv);
        }
        let frequencies = self.inverse_frequencies.val();
        let qkv = rope::rope(qkv, frequencies, context.step(), self.rope);
        let kv = self.spec.kv;
        cache.update(|pool| kv_write::kv_write(pool, qkv.clone(), context.step(), kv));
        let attended =
            paged_attention::paged_attention(qkv, cache.pool(), context.step(), self.spec);
        self.output.forward(attended)
    }

    /// Bytes of the packed weights.
    pub fn weight_bytes(&self) -> u64 {
        self.qkv.weight_bytes() + self.output.weight_bytes()
    }
}
