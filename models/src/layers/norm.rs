//! Root-mean-square norm (Zhang and Sennrich, arXiv 1910.07467).

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use forerun_kernels::rms_norm;
use forerun_kernels::spec::RmsNormSpec;

/// Normalises each row, or each leading head of a row, and scales it by `gamma`.
///
/// Gemma's `1 + weight` is folded into `gamma` when the weights are loaded.
#[derive(Module, Debug)]
pub struct RmsNorm {
    gamma: Param<Tensor<1>>,
    #[module(skip)]
    spec: RmsNormSpec,
}

impl RmsNorm {
    /// `gamma` has `spec.num_normed * spec.group_len` values.
    pub fn new(gamma: Tensor<1>, spec: RmsNormSpec) -> Self {
        Self {
            gamma: Param::from_tensor(gamma),
            spec,
        }
    }

    /// # Shapes
    /// - x: `[T, num_groups * group_len]`
    /// - output: the same
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        rms_norm::rms_norm(x, self.gamma.val(), self.spec)
    }

    /// Adds `x` to `residual` and normalises the sum, in one pass over memory.
    ///
    /// # Shapes
    /// - residual, x: `[T, M]`
    /// - output: the sum and its norm, `[T, M]` each
    pub fn forward_sum(&self, residual: Tensor<2>, x: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
        rms_norm::add_rms_norm(residual, x, self.gamma.val(), self.spec)
    }
}
