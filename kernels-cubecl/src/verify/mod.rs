//! Verification of drafts: which draft tokens are kept, and which token follows them.
//!
//! # Contract
//! | name | shape | dtype | layout | meaning, range |
//! |---|---|---|---|---|
//! | logits | `[R, V]` | f32 | contiguous | after [`crate::logits_process`]; not changed |
//! | verdicts | `[R, 2]` | u32 | contiguous | of [`crate::sample`] on the same logits: token id, status |
//! | draft_logits | `[Q, V]` | f32 | contiguous | processed logits that drafts were drawn from; none where all drafts are deterministic |
//! | step | `[words]` | u32 | [`crate::step_inputs`] | trees: rows of drafts with their parents |
//! | output | `[R, 2]` | u32 | contiguous | token id, status: 0 a token, 1 not finite, 2 not reached |
//!
//! A row outside trees keeps its verdict. In a tree the rows from the anchor's on whose status is not
//! 2 are the accepted path, in order; each has the token that follows it, which for all but the last
//! is the next draft on the path.
//!
//! # Formula
//! p is the softmax of a row over its temperature, q that of its children's draft row; u are uniform.
//!
//! Greedy rows and shared noise: the token of a row is its sampled one; the child with this token is
//! accepted.
//!
//! Rejection, children in order of their rows:
//!
//! ```text
//! deterministic child x   accepted if u < p(x);         else p(x) = 0, p renormalised
//! drawn child x           accepted if u q(x) < p(x);    else p = max(p - q, 0) renormalised,
//!                                                       q(x) = 0, q renormalised
//! none accepted           the token is drawn from what p has become
//! ```
//!
//! Block, over the chain `x_1 .. x_n` (a tree is verified by rejection), with q one-hot at a
//! deterministic draft, `p_0 = 1`:
//!
//! ```text
//! p_i = min(p_(i-1) p(x_i) / q(x_i), 1)
//! s_i = sum over v of max(p_i p(v | x_1 .. x_i) - q(v | x_1 .. x_i), 0)
//! h_i = s_i / (s_i + 1 - p_i), h_n = p_n          accepted: the greatest i with u_i < h_i, or 0
//! the token behind x_i is drawn from max(p_i p - q, 0) renormalised; from p behind x_n
//! ```
//!
//! Noise is that of [`crate::sample::philox`], with the position of the token that is decided and the
//! anchor: u of a child has purpose 1 and the child's number among its siblings, tokens are drawn as
//! the argmax of `ln p + gumbel` with purpose 2.
//!
//! Where rounding leaves nothing of p after a subtraction, p is kept as it was, without the token that
//! was rejected.
//!
//! # Errors
//! none; a row that is not finite ends the path with status 1
//!
//! # Launch
//! native: a task per tree; device: a cube per row, of which those of anchors work
//!
//! # Numerics
//! decisions are those of exact arithmetic except within some 1e-6 of a boundary; greedy rows and
//! shared noise have no arithmetic at all
//!
//! # Cost
//! greedy rows and shared noise: none to speak of; else bytes = 8 V per row on the path, 12 V more per
//! drawn draft; bound: memory
//!
//! # Source
//! Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318; siblings: Miao et al. (SpecInfer),
//! arXiv 2305.09781, without replacement: Chen et al. (Sequoia), arXiv 2402.12374; blocks: Sun et al.,
//! arXiv 2403.10444, algorithm 2
//!
//! # Reference
//! [`flex::reference`]
//!
//! # Tests
//! `flex/tests.rs`
//!
//! # Bench
//! none

use crate::backend::KernelBackend;
use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};

pub(crate) mod cube;
pub mod flex;

/// Status of a row with a token.
pub const STATUS_TOKEN: u32 = 0;
/// Status of a row that is not finite.
pub const STATUS_NOT_FINITE: u32 = 1;
/// Status of a draft's row that is not on the accepted path.
pub const STATUS_UNREACHED: u32 = 2;

/// The accepted path of every tree.
///
/// # Shapes
/// - logits: `[R, V]`
/// - verdicts, output: `[R, 2]`
/// - draft_logits: `[Q, V]`
/// - step: the buffer of [`crate::step_inputs`]
///
/// # Panics
/// If the shapes disagree.
pub fn verify(
    logits: Tensor<2>,
    verdicts: Tensor<2, Int>,
    draft_logits: Option<Tensor<2>>,
    step: Tensor<1, Int>,
) -> Tensor<2, Int> {
    let [num_rows, vocab_size] = logits.dims();
    crate::check::shape("verify", "verdicts", verdicts.dims(), [num_rows, 2]);
    // Without drawn drafts nothing of it is read.
    let draft_logits = draft_logits.unwrap_or_else(|| logits.clone());
    let [num_draft_rows, _] = draft_logits.dims();
    let expected = [num_draft_rows, vocab_size];
    crate::check::shape("verify", "draft_logits", draft_logits.dims(), expected);
    Tensor::from_dispatch(<Dispatch as KernelBackend>::verify(
        logits.into_dispatch(),
        verdicts.into_dispatch(),
        draft_logits.into_dispatch(),
        step.into_dispatch(),
    ))
}
