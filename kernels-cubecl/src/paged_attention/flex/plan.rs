//! How a step is cut into tasks. Never changes a result: rows do not depend on each other, and
//! segments are merged in order whoever computed them.

use std::ops::Range;
use std::sync::atomic::AtomicU32;

use super::{Inputs, SEGMENT};
use crate::simd::LANES;

/// Query vectors of a run, where a sequence has that many: enough that transposing K is a few
/// percent of the work, few enough that they and their sums stay in the second-level cache.
const RUN_VECTORS: usize = 96;
/// Runs with at most this many vectors (decode, drafts) are split by segments.
const SPLIT_VECTORS: usize = 48;
/// Longer runs are split too when there are fewer than this many of them per thread ..
const RUNS_PER_THREAD: usize = 4;
/// .. unless the results of their segments would take more memory than this many values.
const SPLIT_LEN_MAX: usize = 4 << 20;

/// Rows of one sequence next to each other, with the query heads of one kv head.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Sequence of the step.
    pub(super) seq: usize,
    /// Kv head.
    pub(super) kv_head: usize,
    /// First row, counted over the step.
    pub(super) first_row: usize,
    /// Rows.
    pub(super) num_rows: usize,
    /// Position of the first row; the others follow.
    pub(super) first_position: usize,
    /// Rows times query heads.
    pub(super) num_vectors: usize,
    /// D.
    pub(super) head_dim: usize,
    /// Segments that the rows see any of.
    pub(super) segments: Range<usize>,
    /// Where the results of its segments start, if it is split.
    pub(super) parts_start: usize,
}

impl Run {
    /// Values that one segment leaves: maximum, sum and weighted values of each vector.
    pub(super) fn part_len(&self) -> usize {
        part_len(self.num_vectors, self.head_dim)
    }

    /// Where the result of `segment` starts.
    pub(super) fn part_start(&self, segment: usize) -> usize {
        self.parts_start + (segment - self.segments.start) * self.part_len()
    }
}

/// Values of a row of weighted values, whole vectors.
pub(super) fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LANES)
}

/// See [`Run::part_len`].
pub(super) fn part_len(num_vectors: usize, head_dim: usize) -> usize {
    num_vectors.next_multiple_of(LANES) * 2 + num_vectors * padded(head_dim)
}

/// A run, or one segment of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// Index of the run.
    pub(super) run: usize,
    /// The segment, or all of them.
    pub(super) segment: Option<usize>,
}

/// Kept from step to step, so that it does not allocate.
pub(super) struct Plan {
    pub(super) runs: Vec<Run>,
    pub(super) tasks: Vec<Task>,
    /// For each run, its segments.
    pub(super) segments_left: Vec<AtomicU32>,
    /// Values that all segments leave together.
    pub(super) parts_len: usize,
}

impl Plan {
    /// Nothing to do.
    pub(super) const fn new() -> Self {
        Self {
            runs: Vec::new(),
            tasks: Vec::new(),
            segments_left: Vec::new(),
            parts_len: 0,
        }
    }

    /// Plans the step.
    pub(super) fn make(&mut self, inputs: &Inputs<'_>, num_threads: usize) {
        self.runs.clear();
        self.tasks.clear();
        self.segments_left.clear();
        for seq in 0..inputs.step.num_seqs() {
            self.add_sequence(inputs, seq);
        }
        let long: usize = self
            .runs
            .iter()
            .filter(|run| run.num_vectors > SPLIT_VECTORS && run.segments.len() > 1)
            .map(|run| run.segments.len() * run.part_len())
            .sum();
        let split_long = self.runs.len() < num_threads * RUNS_PER_THREAD && long <= SPLIT_LEN_MAX;
        self.add_tasks(split_long);
    }

    fn add_sequence(&mut self, inputs: &Inputs<'_>, seq: usize) {
        let offsets = inputs.step.query_offsets();
        let rows = offsets[seq] as usize..offsets[seq + 1] as usize;
        let kv = &inputs.spec.kv;
        let heads = inputs.heads_per_kv();
        let rows_per_run = (RUN_VECTORS / heads).max(1);
        // Last rows first: they see the most, and long tasks should not start last.
        for run in (0..rows.len().div_ceil(rows_per_run)).rev() {
            let first_row = rows.start + run * rows_per_run;
            let num_rows = rows_per_run.min(rows.end - first_row);
            let positions = &inputs.step.positions()[first_row..first_row + num_rows];
            let first_position = positions[0] as usize;
            let last_position = first_position + num_rows - 1;
            assert_eq!(
                positions[num_rows - 1] as usize,
                last_position,
                "positions of a sequence are consecutive"
            );
            let segments =
                inputs.first_visible(first_position) / SEGMENT..last_position / SEGMENT + 1;
            self.runs.extend((0..kv.num_kv_heads).map(|kv_head| Run {
                seq,
                kv_head,
                first_row,
                num_rows,
                first_position,
                num_vectors: num_rows * heads,
                head_dim: kv.head_dim,
                segments: segments.clone(),
                parts_start: 0,
            }));
        }
    }

    fn add_tasks(&mut self, split_long: bool) {
        self.parts_len = 0;
        for (index, run) in self.runs.iter_mut().enumerate() {
            self.segments_left
                .push(AtomicU32::new(run.segments.len() as u32));
            let short = run.num_vectors <= SPLIT_VECTORS;
            if run.segments.len() > 1 && (short || split_long) {
                run.parts_start = self.parts_len;
                self.parts_len += run.segments.len() * run.part_len();
                self.tasks.extend(run.segments.clone().map(|s| Task {
                    run: index,
                    segment: Some(s),
                }));
            } else {
                self.tasks.push(Task {
                    run: index,
                    segment: None,
                });
            }
        }
    }
}
