//! Who comes before whom: in the queue, among the running, and when blocks run out.
//!
//! Neighbours: `scheduler.rs` orders its places by it; `sequence/mod.rs` carries one.

use crate::RequestId;

/// Lower is served first, and preempted last. Ordered field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Whoever has waited too long comes before everybody who has not.
    pub(crate) urgency: Urgency,
    /// The request's priority; 0 where the engine serves first come, first served.
    pub(crate) priority: i32,
    /// Requests in the order of their arrival.
    pub(crate) request: RequestId,
    /// Sequences of a request in the order in which they were forked.
    pub(crate) sibling: u32,
}

/// Whether the fairness bound has been reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Has waited for as many steps as a request may be overtaken in.
    Overdue,
    /// Has not.
    Normal,
}
