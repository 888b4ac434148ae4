//! The engine's invariants, recomputed from scratch.
//!
//! Neighbours: `integrity.rs` names what can be wrong; tests, the simulator and idle callers ask.

use std::collections::BTreeMap;

use crate::{Engine, Executor, IntegrityError, Vocabulary};

impl<E: Executor, V: Vocabulary> Engine<E, V> {
    /// Recomputes every invariant. Cheap enough for tests and idle moments.
    ///
    /// # Errors
    /// The first one that does not hold: a bug.
    pub fn check_integrity(&self) -> Result<(), IntegrityError> {
        let all_tables: Vec<_> = self.sequences.iter().map(|s| s.tables.as_slice()).collect();
        self.blocks.check_integrity(&all_tables)?;
        if let Some(cache) = &self.speculator.draft_cache {
            cache.check_integrity()?;
        }
        self.check_queues()?;
        self.check_requests()?;
        self.check_in_flight()
    }

    fn check_queues(&self) -> Result<(), IntegrityError> {
        let queues = &self.scheduler.queues;
        let running = queues.running();
        if running.len() > self.config.step_seqs_max {
            let (found, limit) = (running.len(), self.config.step_seqs_max);
            return Err(IntegrityError::Running { found, limit });
        }
        if !running.is_sorted() {
            return Err(IntegrityError::Order);
        }
        for sequence in self.sequences.iter() {
            let seq = sequence.id;
            let [parked, waiting, is_running] = queues.places_of(sequence);
            let found = parked + waiting + is_running;
            if found != 1 {
                return Err(IntegrityError::Queues { seq, found });
            }
            let num_blocks = sequence.tables.iter().map(|t| t.blocks().len()).sum();
            if is_running == 0 && num_blocks > 0 {
                return Err(IntegrityError::WaitingWithBlocks { seq, num_blocks });
            }
            sequence.check_integrity()?;
        }
        let (expected, found) = (self.sequences.len(), queues.len());
        if found != expected {
            return Err(IntegrityError::QueueLen { expected, found });
        }
        Ok(())
    }

    /// Every sequence belongs to one request, and every request has one.
    fn check_requests(&self) -> Result<(), IntegrityError> {
        let mut num_live = 0;
        for request in self.requests.iter() {
            num_live += request.live.len();
            for &seq in &request.live {
                if !self.sequences.contains(seq) || self.sequences.get(seq).request != request.id {
                    let request = request.id;
                    return Err(IntegrityError::Request { request, seq });
                }
            }
        }
        let (expected, found) = (self.sequences.len(), num_live);
        if found == expected && self.requests.iter().all(|r| !r.live.is_empty()) {
            Ok(())
        } else {
            Err(IntegrityError::Live { expected, found })
        }
    }

    /// A sequence has as many tokens on their way as steps in flight decide some for it.
    fn check_in_flight(&self) -> Result<(), IntegrityError> {
        let mut expected = BTreeMap::new();
        for step in self.in_flight.iter() {
            let mut seqs: Vec<_> = step.batch.logit_seqs.clone();
            for (row, purpose) in step.batch.purposes.iter().enumerate().rev() {
                let is_decision = matches!(
                    purpose,
                    crate::RowPurpose::Sample { .. } | crate::RowPurpose::Candidates
                );
                if !is_decision {
                    seqs.remove(row);
                }
            }
            seqs.dedup();
            for index in seqs {
                let entry = step.batch.seqs[index as usize];
                *expected.entry((entry.seq, entry.generation)).or_insert(0) += 1;
            }
        }
        for sequence in self.sequences.iter() {
            let key = (sequence.id, sequence.generation);
            let expected = expected.get(&key).copied().unwrap_or(0);
            let found = sequence.num_placeholders;
            if found != expected {
                let seq = sequence.id;
                return Err(IntegrityError::Placeholders {
                    seq,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }
}
