//! What an op takes besides single tensors. burn's derive knows fields that are one tensor; a matrix
//! has a list of buffers, so its way through the dispatch is written out here.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{
    Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind,
    ExtensionType,
};

/// The buffers of a packed matrix.
pub struct MatrixTensors<B: Backend> {
    /// One for each part.
    pub parts: Vec<IntTensor<B>>,
    /// What is added to each output, if anything.
    pub bias: Option<FloatTensor<B>>,
}

impl<B: Backend> ExtensionType<B> for MatrixTensors<B> {
    type Target = MatrixTensors<Dispatch>;

    fn map_to_dispatch<F>(self, map_kind: F, autodiff: DispatchAutodiffContext) -> Self::Target
    where
        F: Fn(BackendTensor<B>) -> DispatchTensorKind,
    {
        let wrap = |tensor| DispatchTensor {
            kind: map_kind(tensor),
            autodiff,
        };
        MatrixTensors {
            parts: self
                .parts
                .into_iter()
                .map(|part| wrap(BackendTensor::Int(part)))
                .collect(),
            bias: self.bias.map(|bias| wrap(BackendTensor::Float(bias))),
        }
    }

    fn map_from_dispatch<F>(target: Self::Target, unwrap_kind: F) -> Self
    where
        F: Fn(DispatchTensor) -> BackendTensor<B>,
    {
        Self {
            parts: target
                .parts
                .into_iter()
                .map(|part| unwrap_kind(part).int())
                .collect(),
            bias: target.bias.map(|bias| unwrap_kind(bias).float()),
        }
    }

    fn routing_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        target.bias.as_ref().or_else(|| target.parts.first())
    }

    fn routing_float_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        target.bias.as_ref()
    }

    fn autodiff_context(target: &Self::Target) -> DispatchAutodiffContext {
        let tensors = target.parts.iter().chain(&target.bias);
        tensors.fold(DispatchAutodiffContext::Disabled, |context, tensor| {
            context.merge(tensor.autodiff)
        })
    }
}
