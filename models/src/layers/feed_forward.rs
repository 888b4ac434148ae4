//! Gated feed-forward network (Shazeer, arXiv 2002.05202).

use burn::module::Module;
use burn::tensor::Tensor;
use forerun_kernels::glu;
use forerun_kernels::spec::Activation;

use super::linear::Linear;

/// `down(act(gate(x)) * up(x))`, gate and up in one fused projection.
#[derive(Module, Debug)]
pub struct FeedForward {
    gate_up: Linear,
    down: Linear,
    #[module(skip)]
    activation: Activation,
}

impl FeedForward {
    /// `gate_up` maps M to 2 F (gate first), `down` maps F to M.
    pub fn new(gate_up: Linear, down: Linear, activation: Activation) -> Self {
        Self {
            gate_up,
            down,
            activation,
        }
    }

    /// # Shapes
    /// - x: `[T, M]`
    /// - output: `[T, M]`
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let gated = glu::glu(self.gate_up.forward(x), self.activation);
        self.down.forward(gated)
    }

    /// Bytes of the packed weights.
    pub fn weight_bytes(&self) -> u64 {
        self.gate_up.weight_bytes() + self.down.weight_bytes()
    }
}
