//! Native paged attention: see the contract in [`super`].
//!
//! A task works on one *run of rows*: up to some hundred query vectors (the rows of one sequence
//! next to each other, times the query heads that share a kv head), so that K and V are read from
//! memory once for all of them. `plan` cuts a step into tasks, `rows` carries one out, `tile`
//! finds K and V, `products` has the two matrix products, `merge` puts segments together.

mod merge;
mod plan;
mod products;
pub mod reference;
mod rows;
mod tile;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::simd::scratch::Scratch;
use crate::simd::shared::SharedMut;
use crate::simd::{Isa, Kernel, Simd};
use crate::spec::AttentionSpec;
use crate::step_inputs::StepView;
use crate::threads::Threads;
use merge::{Part, PartMut, Running};
use plan::{Plan, Run, Task};

/// Positions of a tile: scores exist for one tile at a time. Tiles start at multiples of it.
pub const TILE: usize = 64;
/// Positions of a segment, in which the softmax starts afresh. Segments start at multiples of it.
pub const SEGMENT: usize = 256;

thread_local! {
    /// The caller's plan and the results of segments that tasks leave for the merge.
    static PLAN: RefCell<(Plan, Scratch)> = const { RefCell::new((Plan::new(), Scratch::new())) };
    /// A worker's queries, scores and sums.
    static WORK: RefCell<(Scratch, Scratch)> =
        const { RefCell::new((Scratch::new(), Scratch::new())) };
}

/// Attention of the step's rows; `kv_pool` already holds their K and V.
///
/// # Shapes
/// `qkv [T, (H + 2 G) * D]`, `kv_pool [N, 2, G, B, D]`, `out [T, H * D]`.
pub fn paged_attention(
    threads: &Threads,
    qkv: &[f32],
    kv_pool: &[f32],
    step: StepView<'_>,
    spec: &AttentionSpec,
    out: &mut [f32],
) {
    let inputs = Inputs {
        qkv,
        kv_pool,
        step,
        spec,
    };
    paged_attention_on(Isa::detect(), threads, inputs, out);
}

/// What an attention reads.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    qkv: &'a [f32],
    kv_pool: &'a [f32],
    step: StepView<'a>,
    spec: &'a AttentionSpec,
}

impl Inputs<'_> {
    /// Values of a fused row.
    fn row_len(&self) -> usize {
        let kv = &self.spec.kv;
        (kv.num_heads + 2 * kv.num_kv_heads) * kv.head_dim
    }

    /// Query heads that share a kv head.
    fn heads_per_kv(&self) -> usize {
        self.spec.kv.num_heads / self.spec.kv.num_kv_heads
    }

    /// First position that a token at `position` sees.
    fn first_visible(&self, position: usize) -> usize {
        self.spec
            .window
            .map_or(0, |window| (position + 1).saturating_sub(window))
    }

    fn check(&self, out_len: usize) {
        let kv = &self.spec.kv;
        let num_tokens = self.step.num_tokens();
        assert!(
            kv.num_kv_heads > 0 && kv.num_heads.is_multiple_of(kv.num_kv_heads),
            "{} heads over {} kv heads",
            kv.num_heads,
            kv.num_kv_heads
        );
        assert!(
            kv.block_size.is_power_of_two(),
            "block size {}",
            kv.block_size
        );
        assert!(
            self.spec.window != Some(0),
            "a token sees itself: the window is at least 1"
        );
        let qkv_len = num_tokens * self.row_len();
        assert!(
            self.qkv.len() >= qkv_len,
            "qkv has {}, needs {qkv_len}",
            self.qkv.len()
        );
        let needed = num_tokens * kv.num_heads * kv.head_dim;
        assert!(out_len >= needed, "output has {out_len}, needs {needed}");
    }
}

/// [`paged_attention`] with a chosen instruction set.
pub(super) fn paged_attention_on(isa: Isa, threads: &Threads, inputs: Inputs<'_>, out: &mut [f32]) {
    inputs.check(out.len());
    PLAN.with_borrow_mut(|(plan, parts)| {
        plan.make(&inputs, threads.num_threads());
        let parts = SharedMut::new(parts.get(plan.parts_len));
        let out = SharedMut::new(out);
        let plan = &*plan;
        threads.run(plan.tasks.len(), |index| {
            let task = plan.tasks[index];
            WORK.with_borrow_mut(|(work, sums)| {
                isa.run(TaskKernel {
                    inputs: &inputs,
                    run: &plan.runs[task.run],
                    task,
                    left: &plan.segments_left[task.run],
                    parts: &parts,
                    out: &out,
                    work,
                    sums,
                });
            });
        });
    });
}

/// One task, compiled for each instruction set.
struct TaskKernel<'a> {
    inputs: &'a Inputs<'a>,
    run: &'a Run,
    task: Task,
    /// Segments of the run that are not done yet; used if the run is split.
    left: &'a AtomicU32,
    parts: &'a SharedMut<'a, f32>,
    out: &'a SharedMut<'a, f32>,
    work: &'a mut Scratch,
    sums: &'a mut Scratch,
}

impl Kernel for TaskKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let run = self.run;
        let mut rows = rows::Rows::new(simd, self.inputs, run, self.work);
        let (segments, split) = match self.task.segment {
            None => (run.segments.clone(), false),
            Some(segment) => (segment..segment + 1, true),
        };
        let mut running = Running::new(self.sums, run.num_vectors, run.head_dim);
        for segment in segments {
            let part = rows.attend(simd, segment);
            if split {
                // SAFETY: each task has a segment of its own, whose part no other overlaps; it is
                // read below only once the counter says that all are written.
                let place = unsafe { self.parts.part(run.part_start(segment), run.part_len()) };
                PartMut::new(place, run.num_vectors).copy_from(part);
            } else {
                running.merge(simd, part);
            }
        }
        // The last task of a split run merges, in order; Release and Acquire make the parts of the
        // others visible to it.
        let last = !split || self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        if split && last {
            for segment in run.segments.clone() {
                // SAFETY: all tasks of the run are done with their parts.
                let place = unsafe { self.parts.part(run.part_start(segment), run.part_len()) };
                running.merge(simd, Part::new(place, run.num_vectors));
            }
        }
        if last {
            running.write(simd, self.inputs, run, self.out);
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
