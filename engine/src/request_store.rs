//! Every request that has not ended, by id.
//!
//! Neighbours: owned by `engine.rs`; its sequences are in `sequence_store.rs`.

use std::collections::BTreeMap;

use crate::RequestId;
use crate::request_state::RequestState;

/// Ids count up and are never reused.
#[derive(Debug, Default)]
pub(crate) struct RequestStore {
    requests: BTreeMap<RequestId, RequestState>,
    num_requests: u64,
}

impl RequestStore {
    /// The id of the next request.
    pub(crate) fn next_id(&self) -> RequestId {
        RequestId(self.num_requests)
    }

    /// Keeps a request under the id that `next_id` gave.
    pub(crate) fn insert(&mut self, request: RequestState) {
        assert_eq!(request.id, self.next_id(), "ids are given in order");
        self.num_requests += 1;
        self.requests.insert(request.id, request);
    }

    pub(crate) fn find(&self, id: RequestId) -> Option<&RequestState> {
        self.requests.get(&id)
    }

    pub(crate) fn find_mut(&mut self, id: RequestId) -> Option<&mut RequestState> {
        self.requests.get_mut(&id)
    }

    /// The request of a live sequence.
    pub(crate) fn get(&self, id: RequestId) -> &RequestState {
        self.find(id).expect("a live sequence has a request")
    }

    /// The request of a live sequence.
    pub(crate) fn get_mut(&mut self, id: RequestId) -> &mut RequestState {
        self.find_mut(id).expect("a live sequence has a request")
    }

    /// Takes a request that has ended out.
    pub(crate) fn remove(&mut self, id: RequestId) -> RequestState {
        self.requests
            .remove(&id)
            .expect("a request ends exactly once")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RequestState> {
        self.requests.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }
}
