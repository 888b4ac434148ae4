//! The ops as one extension of burn's backends: what `burn` dispatches on when an op is called with
//! tensors.
//!
//! Shapes and dtypes have been checked by the tensor functions (`<op>::<op>`) before anything here
//! runs. Neighbours: `cube` launches kernels, `flex` calls the native twins.

mod cube;
mod flex;
mod tensors;

pub use tensors::MatrixTensors;

#[cfg(test)]
pub(crate) use flex::address as native_address;

use crate::spec::{Activation, AttentionSpec, KvSpec, MatrixSpec, RmsNormSpec, RopeSpec};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, backend_extension};

/// A backend that has our ops. See the module of each op for its contract.
#[backend_extension(Cube, Flex)]
pub trait KernelBackend: Backend {
    /// Rows `[num_tokens, M]` of a packed table, times `scale`.
    fn embed(
        #[extension_type] table: MatrixTensors<Self>,
        step: IntTensor<Self>,
        matrix: &MatrixSpec,
        num_tokens: usize,
        scale: f32,
    ) -> FloatTensor<Self>;

    /// Root-mean-square norm of the leading groups of each row.
    fn rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        spec: RmsNormSpec,
    ) -> FloatTensor<Self>;

    /// The sum of `residual` and `x`, and the norm of that sum.
    fn add_rms_norm(
        residual: FloatTensor<Self>,
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        spec: RmsNormSpec,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// `x` times the transpose of a packed matrix, plus the bias.
    fn linear(
        x: FloatTensor<Self>,
        #[extension_type] weights: MatrixTensors<Self>,
        matrix: &MatrixSpec,
    ) -> FloatTensor<Self>;

    /// Rotates the leading heads of each row.
    fn rope(
        x: FloatTensor<Self>,
        inv_freq: FloatTensor<Self>,
        step: IntTensor<Self>,
        spec: RopeSpec,
    ) -> FloatTensor<Self>;

    /// Writes this step's K and V into the pool.
    fn kv_write(
        pool: FloatTensor<Self>,
        qkv: FloatTensor<Self>,
        step: IntTensor<Self>,
        spec: KvSpec,
    ) -> FloatTensor<Self>;

    /// Copies blocks within the pool.
    fn kv_copy(pool: FloatTensor<Self>, step: IntTensor<Self>, spec: KvSpec) -> FloatTensor<Self>;

    /// Moves accepted drafts to where they belong.
    fn kv_compact(
        pool: FloatTensor<Self>,
        step: IntTensor<Self>,
        verdicts: IntTensor<Self>,
        spec: KvSpec,
    ) -> FloatTensor<Self>;

    /// Attention of this step's queries over the cached blocks of their sequences.
    fn paged_attention(
        qkv: FloatTensor<Self>,
        pool: FloatTensor<Self>,
        step: IntTensor<Self>,
        spec: AttentionSpec,
    ) -> FloatTensor<Self>;

    /// `activation(gate) * up`.
    fn glu(x: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self>;

    /// The rows whose logits are wanted.
    fn gather_rows(
        x: FloatTensor<Self>,
        step: IntTensor<Self>,
        num_rows: usize,
    ) -> FloatTensor<Self>;

    /// The step with the tokens of the previous step's verdicts filled in.
    fn advance(step: IntTensor<Self>, previous: IntTensor<Self>) -> IntTensor<Self>;

    /// Biases, penalties, masks and filters of each row.
    fn logits_process(logits: FloatTensor<Self>, step: IntTensor<Self>) -> FloatTensor<Self>;

    /// Verdicts, and the logprobs that rows ask for.
    fn logprobs(
        raw: FloatTensor<Self>,
        processed: FloatTensor<Self>,
        verdicts: IntTensor<Self>,
        step: IntTensor<Self>,
        num_top: usize,
    ) -> IntTensor<Self>;

    /// The accepted path of every tree of drafts.
    fn verify(
        logits: FloatTensor<Self>,
        verdicts: IntTensor<Self>,
        draft_logits: FloatTensor<Self>,
        step: IntTensor<Self>,
    ) -> IntTensor<Self>;

    /// Token and status of each row of logits.
    fn sample(logits: FloatTensor<Self>, step: IntTensor<Self>) -> IntTensor<Self>;
}
