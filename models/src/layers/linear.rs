//! Linear projection over packed weights.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use forerun_kernels::linear;
use forerun_kernels::matrix::PackedMatrix;

/// `x W^T + b` with `W [d_output, d_input]` kept in its file's number format.
#[derive(Module, Debug)]
pub struct Linear {
    weight: PackedMatrix,
    bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    /// `bias` has `d_output` values.
    pub fn new(weight: PackedMatrix, bias: Option<Tensor<1>>) -> Self {
        Self {
            weight,
            bias: bias.map(Param::from_tensor),
        }
    }

    /// # Shapes
    /// - x: `[T, d_input]`
    /// - output: `[T, d_output]`
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        linear::linear(x, &self.weight, self.bias.as_ref().map(Param::val))
    }

    /// Bytes of the packed weight.
    pub fn weight_bytes(&self) -> u64 {
        self.weight.bytes()
    }
}
