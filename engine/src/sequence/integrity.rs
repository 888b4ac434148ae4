//! What must hold of a sequence at any time.
//!
//! Neighbours: asked by `invariants.rs` after steps of the simulator.

use super::Sequence;
use crate::IntegrityError;

impl Sequence {
    /// Whether everything computed has a slot and is known or on its way.
    pub(crate) fn check_integrity(&self) -> Result<(), IntegrityError> {
        let (num_computed, num_tokens) = (self.num_computed, self.tokens.len());
        for table in &self.tables {
            let capacity = table.capacity();
            let num_ahead = self.num_placeholders + self.num_drafts_in_flight;
            let is_known = num_computed <= num_tokens + num_ahead;
            let is_verified = self.num_verified <= num_computed.min(num_tokens);
            if !is_known || !is_verified || num_computed > capacity {
                let seq = self.id;
                return Err(IntegrityError::Computed {
                    seq,
                    num_computed,
                    num_tokens,
                    capacity,
                });
            }
        }
        Ok(())
    }
}
