//! The residual stream between layers: a running sum and the part not added to it yet.
//!
//! Every norm of a decoder reads the sum right after something was added to it. Keeping the last
//! addend apart lets one kernel do both, which saves a pass over memory per norm.

use burn::tensor::Tensor;

use super::norm::RmsNorm;

/// `sum + addend`, the addend still to be added.
#[derive(Clone, Debug)]
pub struct ResidualStream {
    sum: Tensor<2>,
    addend: Option<Tensor<2>>,
}

impl ResidualStream {
    /// Starts a stream at `hidden [T, M]`.
    pub fn new(hidden: Tensor<2>) -> Self {
        Self {
            sum: hidden,
            addend: None,
        }
    }

    /// The stream without its pending addend, and the norm of its value.
    pub fn normed(self, norm: &RmsNorm) -> (Tensor<2>, Tensor<2>) {
        if let Some(addend) = self.addend {
            norm.forward_sum(self.sum, addend)
        } else {
            let normed = norm.forward(self.sum.clone());
            (self.sum, normed)
        }
    }

    /// A stream of value `sum + addend`, both `[T, M]`.
    pub fn pending(sum: Tensor<2>, addend: Tensor<2>) -> Self {
        Self {
            sum,
            addend: Some(addend),
        }
    }

    /// Applies `rows` (a row selection) to both parts.
    #[must_use]
    pub fn map_rows(self, rows: impl Fn(Tensor<2>) -> Tensor<2>) -> Self {
        Self {
            sum: rows(self.sum),
            addend: self.addend.map(rows),
        }
    }

    /// The value of the stream, `[T, M]`.
    pub fn value(&self) -> Tensor<2> {
        match &self.addend {
            Some(addend) => self.sum.clone() + addend.clone(),
            None => self.sum.clone(),
        }
    }
}
