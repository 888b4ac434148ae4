//! What makes drafts on the host, from tokens alone.
//!
//! Neighbours: called through the speculator before a step is planned.

use std::fmt::Debug;

use super::DraftTree;
use crate::{RequestId, SeqId, TokenId};

/// Guesses the tokens that follow. Keeps what it knows of a sequence between calls, under its id:
/// tokens of a sequence only ever grow, so that it reads those that are new.
pub trait Drafter: Debug + Send {
    /// What it is called in reports.
    fn name(&self) -> &'static str;

    /// Adds guesses to `draft`, at most `context.num_nodes_max` nodes in all, none deeper than
    /// `context.depth_max`. `draft` may hold guesses of other drafters: a drafter that extends them
    /// starts behind `context.after`.
    ///
    /// Returns how much of the text the guesses rest on, in tokens: what is learnt about guesses is kept
    /// apart by it. 0 where there is no such number.
    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut DraftTree) -> usize;

    /// A sequence has ended with these tokens; its id will name others. Aborted and failed
    /// sequences come with an empty `output`: nothing is to be learnt from them.
    fn forget(&mut self, seq: SeqId, tenant: Option<&str>, output: &[TokenId]);
}

/// What a drafter is told of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct DraftContext<'a> {
    /// The sequence.
    pub seq: SeqId,
    /// Its request.
    pub request: RequestId,
    /// Whose text it is: earlier outputs are shared within a tenant, never between tenants.
    pub tenant: Option<&'a str>,
    /// All its tokens; the last is the anchor.
    pub tokens: &'a [TokenId],
    /// The first so many are the prompt.
    pub num_prompt: usize,
    /// Guesses that were made already and that are taken as if they were tokens: the draft is
    /// extended behind this path.
    pub assumed: &'a [TokenId],
    /// The node of the draft that `assumed` ends with.
    pub after: Option<u32>,
    /// Most nodes that the draft may have in all.
    pub num_nodes_max: usize,
    /// Most tokens on one path of it.
    pub depth_max: usize,
    /// Most children of one node: 1 for chains.
    pub width_max: usize,
}
