//! Memory that a thread keeps from call to call, so that ops do not allocate once warm.

use super::LANES;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LANES]);

/// A buffer of f32 on a cache-line boundary. What it holds is left over from the last use.
#[derive(Default)]
pub(crate) struct Scratch {
    lines: Vec<Line>,
}

impl Scratch {
    /// Nothing, yet.
    pub(crate) const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// `len` values, from a cache-line boundary on.
    pub(crate) fn get(&mut self, len: usize) -> &mut [f32] {
        let num_lines = len.div_ceil(LANES);
        if self.lines.len() < num_lines {
            self.lines.resize(num_lines, Line([0.0; LANES]));
        }
        // SAFETY: `Line` is `repr(C)` and has the size of its array, so `num_lines` of them are
        // `num_lines * LANES >= len` values in a row.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), len) }
    }

    /// Several buffers side by side, each on a cache-line boundary.
    pub(crate) fn split<const N: usize>(&mut self, lens: [usize; N]) -> [&mut [f32]; N] {
        let total = lens.iter().map(|len| len.next_multiple_of(LANES)).sum();
        let mut rest = self.get(total);
        lens.map(|len| {
            let (taken, after) =
                std::mem::take(&mut rest).split_at_mut(len.next_multiple_of(LANES));
            rest = after;
            &mut taken[..len]
        })
    }
}
