//! A request from its arrival to its end: which sequences it has, and what they have come to.
//!
//! Neighbours: kept in `request_store.rs`; `commit.rs`, `finish.rs` and `beam_step.rs` change it.

use crate::beam::BeamSearch;
use crate::output_log::OutputLog;
use crate::spec::RequestEstimates;
use crate::statistics::RequestFacts;
use crate::{
    FinishReason, OutputParams, RequestId, SeqId, SpeculationParams, SpeculationReport, StopParams,
    Usage, WaitReason,
};

/// One request that has not ended.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub(crate) id: RequestId,
    pub(crate) output: OutputParams,
    pub(crate) stop: StopParams,
    /// It ran before, or runs.
    pub(crate) was_admitted: bool,
    /// While it is parked.
    pub(crate) waits_for: Option<WaitReason>,
    /// Sequences that have not ended.
    pub(crate) live: Vec<SeqId>,
    /// Its first sequence has become as many as were asked for.
    pub(crate) has_forked: bool,
    /// Sequences forked so far, for names of new ones.
    pub(crate) num_siblings: u32,
    pub(crate) beam: Option<BeamSearch>,
    /// Samples that have ended and wait for the others, among which the best are chosen.
    pub(crate) ended: Vec<EndedSample>,
    pub(crate) usage: Usage,
    pub(crate) speculation: SpeculationParams,
    /// What was learnt of drafts for it.
    pub(crate) estimates: RequestEstimates,
    /// What speculation did for it so far.
    pub(crate) spec_report: SpeculationReport,
    /// Whose text it is.
    pub(crate) tenant: Option<String>,
    /// Times and counts for statistics.
    pub(crate) facts: RequestFacts,
}

/// A sample that is told when all have ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedSample {
    pub(crate) sample: u32,
    pub(crate) log: OutputLog,
    pub(crate) reason: FinishReason,
}

impl RequestState {
    /// Places among the running sequences that it holds while any of its sequences runs.
    pub(crate) fn num_places(&self) -> usize {
        if self.has_forked && self.beam.is_none() {
            self.live.len()
        } else {
            self.output.width()
        }
    }

    /// A number for the next forked sequence.
    pub(crate) fn next_sibling(&mut self) -> u32 {
        self.num_siblings += 1;
        self.num_siblings
    }
}
