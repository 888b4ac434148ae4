//! Memory for natively packed weights: a few large regions, in huge pages where the system has them.
//!
//! A pass reads every weight once, and with pages of 4 KiB a page walk for each of them costs a fifth
//! of its time (measured: 98 MB of Q4_1, one row, two threads: 4.0 ms, in huge pages 3.3 ms). Most
//! matrices are smaller than a huge page (2 MiB), so they share regions.
//!
//! Neighbours: [`super::native`] packs into [`Lines`]; [`crate::matrix`] hands them to burn.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use super::native::Line;

/// Size and alignment of a huge page on x86-64 and, with 4 KiB pages, on AArch64.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Smallest region. What is not used of it is never touched, so it costs addresses only.
const REGION_BYTES: usize = 32 << 20;
const LINE_BYTES: usize = size_of::<Line>();

/// Hands out memory. Regions live as long as any piece of them.
#[derive(Debug, Default)]
pub struct Arena {
    region: Option<Arc<Region>>,
    /// Lines of `region` that are handed out.
    used: usize,
}

impl Arena {
    /// A piece of `len` lines with unspecified contents.
    pub fn lines(&mut self, len: usize) -> Lines {
        let region = match &self.region {
            Some(region) if self.used + len <= region.len => Arc::clone(region),
            _ => {
                let region = Arc::new(Region::new(len));
                self.region = Some(Arc::clone(&region));
                self.used = 0;
                region
            }
        };
        let start = self.used;
        self.used += len;
        Lines { region, start, len }
    }
}

/// A piece of a region, the only one that covers its lines.
#[derive(Debug)]
pub struct Lines {
    region: Arc<Region>,
    start: usize,
    len: usize,
}

impl Lines {
    /// The lines.
    pub fn as_slice(&self) -> &[Line] {
        // SAFETY: `[start, start + len)` lies in the region, whose lines are initialised; nothing
        // writes to them while `self` is borrowed, because no other piece covers them.
        unsafe { std::slice::from_raw_parts(self.region.start.as_ptr().add(self.start), self.len) }
    }

    /// The lines, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [Line] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe {
            std::slice::from_raw_parts_mut(self.region.start.as_ptr().add(self.start), self.len)
        }
    }
}

/// Memory of whole huge pages.
#[derive(Debug)]
struct Region {
    start: NonNull<Line>,
    /// Lines.
    len: usize,
}

// SAFETY: a region is plain memory; `Lines` are what reads and writes it, each its own part.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A region of at least `min_len` lines.
    fn new(min_len: usize) -> Self {
        let bytes = (min_len * LINE_BYTES)
            .max(REGION_BYTES)
            .next_multiple_of(HUGE_PAGE_BYTES);
        let layout = Self::layout(bytes / LINE_BYTES);
        let memory = system::zeroed(layout);
        let Some(start) = NonNull::new(memory.cast()) else {
            handle_alloc_error(layout)
        };
        Self {
            start,
            len: bytes / LINE_BYTES,
        }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len * LINE_BYTES, HUGE_PAGE_BYTES)
            .expect("a region is far smaller than the address space")
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        system::free(self.start.as_ptr().cast(), Self::layout(self.len));
    }
}

/// Anonymous memory maps: zeroed by the kernel when touched, and it can be asked for huge pages
/// before that.
#[cfg(target_os = "linux")]
mod system {
    use super::{HUGE_PAGE_BYTES, Layout};

    /// Zeroed memory, null if there is none.
    pub(super) fn zeroed(layout: Layout) -> *mut u8 {
        let mapped_bytes = layout.size() + HUGE_PAGE_BYTES;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: an anonymous map at an address of the kernel's choice touches nothing of ours.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return std::ptr::null_mut();
        }
        let mapped = mapped.cast::<u8>();
        let skipped = mapped.align_offset(HUGE_PAGE_BYTES);
        // SAFETY: the map is a huge page larger than `layout`, so both ends that are given back and
        // the part that is kept lie in it; all bounds are multiples of the page size.
        unsafe {
            let start = mapped.add(skipped);
            let end = start.add(layout.size());
            if skipped > 0 {
                libc::munmap(mapped.cast(), skipped);
            }
            if skipped < HUGE_PAGE_BYTES {
                libc::munmap(end.cast(), HUGE_PAGE_BYTES - skipped);
            }
            // Advice: without huge pages everything works, a little slower.
            libc::madvise(start.cast(), layout.size(), libc::MADV_HUGEPAGE);
            start
        }
    }

    /// Gives memory of [`zeroed`] back.
    pub(super) fn free(start: *mut u8, layout: Layout) {
        // SAFETY: `start` is what `zeroed` returned for this layout, and nobody refers to it.
        unsafe { libc::munmap(start.cast(), layout.size()) };
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::alloc::{alloc_zeroed, dealloc};

    use super::Layout;

    /// Zeroed memory, null if there is none.
    pub(super) fn zeroed(layout: Layout) -> *mut u8 {
        // SAFETY: a region is not empty.
        unsafe { alloc_zeroed(layout) }
    }

    /// Gives memory of [`zeroed`] back.
    pub(super) fn free(start: *mut u8, layout: Layout) {
        // SAFETY: `start` is what `zeroed` returned for this layout, and nobody refers to it.
        unsafe { dealloc(start, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_overlap_and_outlive_the_arena() {
        let mut arena = Arena::default();
        let region_lines = REGION_BYTES / LINE_BYTES;
        let lens = [3, 1, 1000, region_lines - 1500, 700, region_lines + 5, 1];
        let mut pieces: Vec<Lines> = lens.iter().map(|&len| arena.lines(len)).collect();
        drop(arena);
        for (index, piece) in pieces.iter_mut().enumerate() {
            piece.as_mut_slice().fill(Line([index as u8; LINE_BYTES]));
        }
        for (index, piece) in pieces.iter().enumerate() {
            assert_eq!(piece.as_slice().len(), lens[index]);
            assert_eq!(piece.as_slice().as_ptr().align_offset(LINE_BYTES), 0);
            assert!(
                piece
                    .as_slice()
                    .iter()
                    .all(|line| line.0 == [index as u8; LINE_BYTES])
            );
        }
    }

    #[test]
    fn an_empty_piece_is_an_empty_slice() {
        let mut arena = Arena::default();
        assert!(arena.lines(0).as_mut_slice().is_empty());
    }
}
