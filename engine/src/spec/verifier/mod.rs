//! Acceptance by its definition: which drafts are kept, and which token follows them. In f64, over
//! distributions as they are, with chance as an input; nothing in the engine runs it.
//!
//! Kernels decide by the same rules on devices and are tested against this. That the rules are exact
//! is shown by enumerating every outcome of chance (`engine/tests/exactness/`): emitted texts have
//! the target's distribution, whatever was drafted.
//!
//! ```text
//! rejection.rs   siblings one after another
//! block.rs       a chain at once
//! residual.rs    what rejections leave of a distribution
//! ```
//!
//! What every rule takes for granted, and what makes it inexact where it does not hold:
//!
//! - A drawn draft is verified whatever its value; a drafter may stop *after* a token, never drop it.
//! - The distribution told for it is the one it was drawn from.
//! - Siblings drawn from one row were drawn without replacement, in the order of their indices. (Or
//!   with, where repeated ones were dropped: the rest are drawn as if without.)
//! - Deterministic siblings come after drawn ones, unless the row gives them no probability: a draw
//!   that falls on a guess which is there already would be dropped for its value.
//!
//! Neighbours: `tree.rs` (drafts), `params.rs` (who chooses the rule).

mod block;
mod rejection;
mod residual;

pub use block::verify_block;
pub use rejection::verify_rejection;

use super::DraftTree;
use crate::TokenId;

/// Where randomness comes from: a generator, given numbers, or all outcomes in turn.
///
/// The order of calls is part of each rule's definition, so that whoever counts them knows which
/// node and which sibling is decided.
pub trait Chance {
    /// Whether something of this probability, in `[0, 1]`, happens.
    fn happens(&mut self, probability: f64) -> bool;

    /// An index drawn from `distribution`, whose sum is 1 but for rounding.
    fn draw(&mut self, distribution: &[f64]) -> usize;
}

/// What verification needs to know of one draft.
#[derive(Clone, Copy)]
pub struct Drafted<'a> {
    /// The draft.
    pub tree: &'a DraftTree,
    /// The target's distribution `[V]` of the token behind a node, behind the anchor for `None`:
    /// after the whole logits chain, with everything on the path counted. No distribution where the
    /// logits are not finite.
    pub target: &'a dyn Fn(Option<u32>) -> Option<Vec<f64>>,
    /// The distribution `[V]` that drafts of a row were drawn from, before any was taken out.
    pub draft: &'a dyn Fn(u32) -> &'a [f64],
}

/// What verification says about one draft.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Accepted nodes, from a child of the anchor on.
    pub path: Vec<u32>,
    /// The token behind them; `None` if the logits there are not finite.
    pub final_token: Option<TokenId>,
}

impl Verdicts {
    /// The tokens that this gives the sequence.
    pub fn tokens(&self, tree: &DraftTree) -> Vec<TokenId> {
        let accepted = self
            .path
            .iter()
            .map(|&node| tree.nodes()[node as usize].token);
        accepted.chain(self.final_token).collect()
    }
}

/// Walks along the tokens that the target gives behind each node, as far as the draft has them. No
/// distribution is looked at, so that with noise that is a function of seed, position and token the
/// text is the one without drafts.
pub fn verify_shared_noise(
    tree: &DraftTree,
    token_after: &dyn Fn(Option<u32>) -> Option<TokenId>,
) -> Verdicts {
    let mut path: Vec<u32> = Vec::new();
    loop {
        let node = path.last().copied();
        let final_token = token_after(node);
        match final_token.and_then(|token| tree.child(node, token)) {
            Some(child) => path.push(child),
            None => return Verdicts { path, final_token },
        }
    }
}

/// The same with the likeliest token behind each node; of several, the first.
pub fn verify_greedy(
    tree: &DraftTree,
    target: &dyn Fn(Option<u32>) -> Option<Vec<f64>>,
) -> Verdicts {
    verify_shared_noise(tree, &|node| target(node).as_deref().and_then(likeliest))
}

fn likeliest(distribution: &[f64]) -> Option<TokenId> {
    let mut best: Option<(u32, f64)> = None;
    for (token, &probability) in distribution.iter().enumerate() {
        if best.is_none_or(|(_, most)| probability > most) {
            best = Some((token as u32, probability));
        }
    }
    best.map(|(token, _)| TokenId(token))
}
