//! Every unfinished sequence, by id.
//!
//! Neighbours: owned by `engine.rs`; `scheduler.rs` keeps ids of what is in here.

use crate::sequence::{Sequence, SequenceName};
use crate::{Generation, SeqId};

/// A slab: ids are places, reused after a sequence has gone; generations are never reused.
#[derive(Debug, Default)]
pub(crate) struct SequenceStore {
    places: Vec<Option<Sequence>>,
    vacant: Vec<SeqId>,
    num_generations: u64,
}

impl SequenceStore {
    /// Stores the sequence that `make` builds for the name it is given.
    pub(crate) fn insert(&mut self, make: impl FnOnce(SequenceName) -> Sequence) -> &mut Sequence {
        let name = self.reserve_name();
        self.put(make(name))
    }

    /// A name for a sequence that [`Self::put`] stores next.
    pub(crate) fn reserve_name(&mut self) -> SequenceName {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.places.push(None);
            SeqId(self.places.len() as u32 - 1)
        });
        SequenceName {
            id,
            generation: self.next_generation(),
        }
    }

    /// Stores a sequence under its name.
    pub(crate) fn put(&mut self, sequence: Sequence) -> &mut Sequence {
        let place = &mut self.places[sequence.id.index()];
        assert!(place.is_none(), "a name is given once");
        place.insert(sequence)
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sequence> + Clone {
        self.places.iter().flatten()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::tests::sequence;

    fn name_of(sequence: &mut Sequence) -> SequenceName {
        let (id, generation) = (sequence.id, sequence.generation);
        SequenceName { id, generation }
    }

    #[test]
    fn a_result_of_an_older_generation_finds_nobody() {
        let mut store = SequenceStore::default();
        let old = name_of(store.insert(|name| sequence(name, 3)));
        assert!(store.get_current(old.id, old.generation).is_some());
        let generation = store.next_generation();
        store.get_mut(old.id).restart(generation);
        assert!(store.get_current(old.id, old.generation).is_none());

        store.remove(old.id);
        assert!(store.get_current(old.id, generation).is_none());
        let new = name_of(store.insert(|name| sequence(name, 5)));
        assert_eq!(new.id, old.id, "the place is reused");
        assert!(store.get_current(old.id, generation).is_none());
        assert!(store.get_current(new.id, new.generation).is_some());
    }
}
