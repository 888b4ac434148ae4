//! What a [`super::Sequence`] begins with.
//!
//! Neighbours: made by `arrival.rs`; names are handed out by `sequence_store.rs`.

use std::sync::Arc;

use super::{Draws, PromptScores};
use crate::rank::Rank;
use crate::stop::StopConditions;
use crate::{
    BlockTable, Generation, HashChain, LogprobsParams, RequestId, SamplingParams, SeqId, TokenId,
    Verification,
};

/// What names a sequence: handed out by the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceName {
    pub(crate) id: SeqId,
    pub(crate) generation: Generation,
}

/// The parts a [`super::Sequence`] begins with.
#[derive(Debug)]
pub(crate) struct SequenceParts {
    pub(crate) request: RequestId,
    pub(crate) rank: Rank,
    pub(crate) prompt: Vec<TokenId>,
    pub(crate) sampling: Arc<SamplingParams>,
    pub(crate) stop: StopConditions,
    pub(crate) tables: Vec<BlockTable>,
    pub(crate) chain: HashChain,
    pub(crate) draws: Draws,
    pub(crate) prompt_scores: Option<PromptScores>,
    pub(crate) logprobs: Option<LogprobsParams>,
    pub(crate) is_logged: bool,
    pub(crate) verification: Verification,
}
