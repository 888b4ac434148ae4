//! A slice whose parts are written by tasks on several threads.

use std::marker::PhantomData;

/// A mutable slice that tasks share; each writes parts of its own.
pub(crate) struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `part`, whose callers promise that parts do not overlap.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}
// SAFETY: as a mutable slice.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Borrows the slice for as long as the tasks run.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            lifetime: PhantomData,
        }
    }

    /// `len` values from `start` on. Panics if they are not inside the slice.
    ///
    /// # Safety
    /// No other part that overlaps this one is alive.
    #[expect(
        clippy::mut_from_ref,
        reason = "that parts are disjoint is the caller's promise"
    )]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        let end = start.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{len} values from {start} on are not inside {}",
            self.len
        );
        // SAFETY: inside the slice, and the caller vouches for no overlap.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}
