//! Every unfinished sequence, by id.
//!
//! Neighbours: owned by `engine.rs`; `scheduler.rs` keeps ids of what is in here.

use crate::sequence::{Sequence, SequenceName};
use crate::{Generation, RequestId, SeqId};

/// A slab: ids are places, reused after a sequence has gone; generations are never reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct SequenceStore {
    places: Vec<Option<Sequence>>,
    vacant: Vec<SeqId>,
    num_generations: u64,
    num_requests: u64,
}

impl SequenceStore {
    /// Stores the sequence that `make` builds for the name it is given.
    pub(crate) fn insert(&mut self, make: impl FnOnce(SequenceName) -> Sequence) -> SequenceName {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.places.push(None);
            SeqId(self.places.len() as u32 - 1)
        });
        let request = RequestId(self.num_requests);
        self.num_requests += 1;
        let name = SequenceName {
            id,
            generation: self.next_generation(),
            request,
        };
        self.places[id.index()] = Some(make(name));
        name
    }

    /// A generation that nothing has had.
    pub(crate) fn next_generation(&mut self) -> Generation {
        self.num_generations += 1;
        Generation(self.num_generations)
    }

    /// Takes the sequence out.
    ///
    /// # Panics
    /// If there is none: queues name only what is here.
    pub(crate) fn remove(&mut self, id: SeqId) -> Sequence {
        let sequence = self.places[id.index()]
            .take()
            .expect("a queued sequence is in the store");
        self.vacant.push(id);
        sequence
    }

    /// Whether a sequence that was stored under `id` is still here. True also for a successor in
    /// the same place: ask before anything new is stored.
    pub(crate) fn contains(&self, id: SeqId) -> bool {
        self.places[id.index()].is_some()
    }

    pub(crate) fn get(&self, id: SeqId) -> &Sequence {
        self.places[id.index()]
            .as_ref()
            .expect("a queued sequence is in the store")
    }

    pub(crate) fn get_mut(&mut self, id: SeqId) -> &mut Sequence {
        self.places[id.index()]
            .as_mut()
            .expect("a queued sequence is in the store")
    }

    /// The sequence that had this id and generation when a step was planned, unless it has ended
    /// or was preempted since: then results of that step are not for it.
    pub(crate) fn get_current(
        &mut self,
        id: SeqId,
        generation: Generation,
    ) -> Option<&mut Sequence> {
        self.places[id.index()]
            .as_mut()
            .filter(|sequence| sequence.generation == generation)
    }

    /// The sequence of `request`, if it has not ended.
    pub(crate) fn find(&self, request: RequestId) -> Option<SeqId> {
        self.iter()
            .find(|sequence| sequence.request == request)
            .map(|sequence| sequence.id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sequence> + Clone {
        self.places.iter().flatten()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::tests::sequence;

    #[test]
    fn a_result_of_an_older_generation_finds_nobody() {
        let mut store = SequenceStore::default();
        let old = store.insert(|name| sequence(name, 3));
        assert!(store.get_current(old.id, old.generation).is_some());
        let generation = store.next_generation();
        store.get_mut(old.id).restart(generation);
        assert!(store.get_current(old.id, old.generation).is_none());

        store.remove(old.id);
        assert!(store.get_current(old.id, generation).is_none());
        let new = store.insert(|name| sequence(name, 5));
        assert_eq!(new.id, old.id, "the place is reused");
        assert!(store.get_current(old.id, generation).is_none());
        assert!(store.get_current(new.id, new.generation).is_some());
        assert_eq!(
            (store.find(old.request), store.find(new.request)),
            (None, Some(new.id))
        );
    }
}
