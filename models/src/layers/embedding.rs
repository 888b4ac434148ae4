//! Token embedding: rows of a packed table, and the same table as output projection when tied.

use burn::module::Module;
use burn::tensor::Tensor;
use forerun_kernels::matrix::PackedMatrix;
use forerun_kernels::{embed, linear};

use crate::forward_context::ForwardContext;

/// The embedding table `[V, M]`.
#[derive(Module, Debug)]
pub struct Embedding {
    table: PackedMatrix,
    #[module(skip)]
    scale: f32,
}

impl Embedding {
    /// `scale` multiplies every embedding (sqrt(M) in Gemma, else 1).
    pub fn new(table: PackedMatrix, scale: f32) -> Self {
        Self { table, scale }
    }

    /// The embeddings of the step's tokens, `[T, M]`.
    pub fn forward(&self, context: &ForwardContext) -> Tensor<2> {
        embed::embed(
            &self.table,
            context.step(),
            context.num_tokens(),
            self.scale,
        )
    }

    /// The table as output projection (tied embeddings): `[R, M]` to logits `[R, V]`.
    pub fn project(&self, x: Tensor<2>) -> Tensor<2> {
        linear::linear(x, &self.table, None)
    }

    /// Bytes of the packed table.
    pub fn table_bytes(&self) -> u64 {
        self.table.bytes()
    }
}
