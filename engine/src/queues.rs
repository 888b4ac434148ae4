//! The places a sequence can be in: parked, waiting, running.
//!
//! Neighbours: owned by `scheduler.rs`; order is that of `rank.rs`.

use std::collections::BTreeSet;

use crate::SeqId;
use crate::rank::{Rank, Urgency};
use crate::sequence::Sequence;
use crate::sequence_store::SequenceStore;

/// Every sequence is in exactly one of the three.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    /// Waits for something outside: remote keys and values, a grammar, the rest of its prompt.
    parked: BTreeSet<SeqId>,
    /// Could run, by rank.
    waiting: BTreeSet<(Rank, SeqId)>,
    /// The same by the step since which they wait.
    since: BTreeSet<(u64, SeqId)>,
    /// Holds blocks, by rank: the last is preempted first.
    running: Vec<(Rank, SeqId)>,
    /// Steps planned.
    step: u64,
}

impl Queues {
    /// A new step: whoever has waited for `wait_steps_max` steps goes before everybody who has not.
    pub(crate) fn begin_step(&mut self, wait_steps_max: u64, sequences: &mut SequenceStore) {
        self.step += 1;
        while let Some(&(since, seq)) = self.since.first()
            && self.step - since > wait_steps_max
        {
            self.since.pop_first();
            let sequence = sequences.get_mut(seq);
            self.waiting.remove(&(sequence.rank, seq));
            sequence.rank.urgency = Urgency::Overdue;
            self.waiting.insert((sequence.rank, seq));
        }
    }

    pub(crate) fn park(&mut self, sequence: &Sequence) {
        self.parked.insert(sequence.id);
    }

    /// Into the queue, at its rank.
    pub(crate) fn wait(&mut self, sequence: &mut Sequence) {
        self.parked.remove(&sequence.id);
        sequence.waits_since = self.step - sequence.num_steps_waited;
        self.waiting.insert((sequence.rank, sequence.id));
        if sequence.rank.urgency == Urgency::Normal {
            self.since.insert((sequence.waits_since, sequence.id));
        }
    }

    /// From the queue, or newly forked, to the running.
    pub(crate) fn run(&mut self, sequence: &mut Sequence) {
        if self.forget_waiting(sequence) {
            sequence.num_steps_waited = self.step - sequence.waits_since;
        }
        let entry = (sequence.rank, sequence.id);
        let place = self.running.partition_point(|other| *other < entry);
        self.running.insert(place, entry);
    }

    pub(crate) fn stop_running(&mut self, sequence: &Sequence) {
        let entry = (sequence.rank, sequence.id);
        let place = self.running.binary_search(&entry);
        self.running
            .remove(place.expect("a sequence that stops running was running"));
    }

    /// Takes a sequence that has ended out of wherever it is.
    pub(crate) fn forget(&mut self, sequence: &Sequence) {
        self.parked.remove(&sequence.id);
        self.forget_waiting(sequence);
        let entry = (sequence.rank, sequence.id);
        if let Ok(place) = self.running.binary_search(&entry) {
            self.running.remove(place);
        }
    }

    /// Says whether it was waiting.
    fn forget_waiting(&mut self, sequence: &Sequence) -> bool {
        self.since.remove(&(sequence.waits_since, sequence.id));
        self.waiting.remove(&(sequence.rank, sequence.id))
    }

    pub(crate) fn first_waiting(&self) -> Option<SeqId> {
        self.waiting.first().map(|&(_, seq)| seq)
    }

    pub(crate) fn num_waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn num_parked(&self) -> usize {
        self.parked.len()
    }

    pub(crate) fn is_parked(&self, seq: SeqId) -> bool {
        self.parked.contains(&seq)
    }

    pub(crate) fn is_running(&self, sequence: &Sequence) -> bool {
        self.running
            .binary_search(&(sequence.rank, sequence.id))
            .is_ok()
    }

    pub(crate) fn running(&self) -> &[(Rank, SeqId)] {
        &self.running
    }

    /// How often a sequence is in each place: parked, waiting, running.
    pub(crate) fn places_of(&self, sequence: &Sequence) -> [usize; 3] {
        let seq = sequence.id;
        [
            usize::from(self.parked.contains(&seq)),
            self.waiting.iter().filter(|&&(_, id)| id == seq).count(),
            self.running.iter().filter(|&&(_, id)| id == seq).count(),
        ]
    }

    /// Sequences in all places.
    pub(crate) fn len(&self) -> usize {
        self.parked.len() + self.waiting.len() + self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::tests::sequence;

    #[test]
    fn waits_between_preemptions_add_up_until_a_sequence_is_overdue() {
        let mut store = SequenceStore::default();
        let seq = store.insert(|name| sequence(name, 3)).id;
        let mut queues = Queues::default();
        queues.wait(store.get_mut(seq));
        // Waits three steps, runs one, gives its blocks up again.
        for round in 0..4 {
            for _ in 0..3 {
                queues.begin_step(10, &mut store);
            }
            let is_overdue = store.get(seq).rank.urgency == Urgency::Overdue;
            assert_eq!(is_overdue, 3 * (round + 1) > 10, "round {round}");
            queues.run(store.get_mut(seq));
            queues.begin_step(10, &mut store);
            queues.stop_running(store.get(seq));
            queues.wait(store.get_mut(seq));
        }
        assert_eq!(queues.places_of(store.get(seq)), [0, 1, 0]);
    }
}
