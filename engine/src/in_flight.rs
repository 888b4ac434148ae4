//! Steps that were submitted and not collected.
//!
//! Neighbours: `engine.rs` pushes, `commit.rs` takes the oldest. At most two: while the device runs
//! one, the next is planned and waits behind it.

use crate::scheduler::StepPlan;
use crate::step_batch::StepBatch;
use crate::{DraftTree, Timestamp};

/// Most steps that are ever in flight: what comes after two has inputs that nobody knows yet.
pub(crate) const STEPS_IN_FLIGHT_MAX: usize = 2;

/// A plan and its arrays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    pub(crate) plan: StepPlan,
    pub(crate) batch: StepBatch,
    /// By entry of the plan; those past its end are vacant.
    pub(crate) drafts: Vec<DraftTree>,
    /// When it was submitted.
    pub(crate) submitted_at: Timestamp,
    /// Time that its drafts took.
    pub(crate) draft_us: u64,
    /// Models drafted for it.
    pub(crate) has_model_drafts: bool,
}

/// Takes the draft of the plan's entry `planned` into `drafts`, and leaves an empty tree with room.
pub(crate) fn take_draft(drafts: &mut Vec<DraftTree>, planned: usize, draft: &mut DraftTree) {
    if drafts.len() <= planned {
        drafts.resize_with(planned + 1, DraftTree::new);
    }
    let place = &mut drafts[planned];
    place.clear();
    std::mem::swap(place, draft);
}

/// A queue over steps whose buffers are used again.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    /// Oldest first.
    submitted: Vec<Step>,
    vacant: Vec<Step>,
}

impl InFlight {
    /// Nothing in flight; `empty` is a batch of the right shape.
    pub(crate) fn new(empty: &StepBatch) -> Self {
        let step = Step {
            plan: StepPlan::default(),
            batch: empty.clone(),
            drafts: Vec::new(),
            submitted_at: Timestamp::default(),
            draft_us: 0,
            has_model_drafts: false,
        };
        Self {
            submitted: Vec::with_capacity(STEPS_IN_FLIGHT_MAX),
            vacant: vec![step; STEPS_IN_FLIGHT_MAX + 1],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.submitted.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.submitted.is_empty()
    }

    /// A step to fill.
    pub(crate) fn take_vacant(&mut self) -> Step {
        self.vacant
            .pop()
            .expect("there is a buffer more than steps in flight")
    }

    /// Gives a step's buffers back.
    pub(crate) fn recycle(&mut self, step: Step) {
        self.vacant.push(step);
    }

    pub(crate) fn push(&mut self, step: Step) {
        assert!(
            self.submitted.len() < STEPS_IN_FLIGHT_MAX,
            "two steps are in flight"
        );
        self.submitted.push(step);
    }

    pub(crate) fn pop_oldest(&mut self) -> Option<Step> {
        (!self.submitted.is_empty()).then(|| self.submitted.remove(0))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Step> {
        self.submitted.iter()
    }
}
