//! Counts copies that an op made because a tensor it writes in place was shared.
//!
//! The runner moves KV pools through ops so that this stays zero; a test asserts it. The count is
//! per thread, so that tests which run side by side do not see each other's.
//!
//! Neighbours: counted in [`crate::launch`] and [`crate::backend`].

use std::cell::Cell;

thread_local! {
    static COPIES: Cell<u64> = const { Cell::new(0) };
}

/// Copies made by ops on this thread so far.
pub fn so_far() -> u64 {
    COPIES.with(Cell::get)
}

/// Counts one.
pub(crate) fn count() {
    COPIES.with(|copies| copies.set(copies.get() + 1));
}
