//! Native processing of logits: see the contract in [`super`].
//!
//! `edits` are biases, penalties and masks, `filters` say what is kept, `threshold` finds limits.

mod edits;
mod filters;
pub mod reference;
pub(crate) mod threshold;

use std::cell::RefCell;

use crate::sample::flex::{Best, greatest};
use crate::simd::Isa;
use crate::simd::shared::SharedMut;
use crate::step_inputs::{SamplingRow, StepView};
use crate::threads::Threads;
use filters::{Buffers, Keep, Limits};

/// Tokens of a row that one task looks at: a multiple of 32, so that a task has whole words of a mask.
pub const CHUNK: usize = 1 << 13;

thread_local! {
    /// Memory of the filters, kept from row to row.
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

/// A row that has something to be done.
#[derive(Clone)]
struct Row {
    index: usize,
    sampling: SamplingRow,
    /// Of the logits as they are by now.
    best: Best,
    limits: Option<Limits>,
}

impl Row {
    /// Whether single tokens of it change.
    fn has_edits(&self) -> bool {
        let sampling = &self.sampling;
        sampling.bias.0 < sampling.bias.1 || sampling.mask.is_some() || sampling.has_penalties()
    }
}

/// Processes the rows that ask for it, in place.
///
/// # Shapes
/// `logits [R, vocab_size]`, R at most the live rows of the step.
pub fn logits_process(
    threads: &Threads,
    logits: &mut [f32],
    vocab_size: usize,
    step: StepView<'_>,
) {
    logits_process_on(Isa::detect(), threads, logits, vocab_size, step);
}

fn logits_process_on(
    isa: Isa,
    threads: &Threads,
    logits: &mut [f32],
    vocab_size: usize,
    step: StepView<'_>,
) {
    assert!(vocab_size > 0, "an empty vocabulary");
    let num_rows = logits.len() / vocab_size;
    let mut rows: Vec<Row> = (0..num_rows)
        .map(|index| Row {
            index,
            sampling: step.sampling(index),
            best: Best::NONE,
            limits: None,
        })
        .filter(|row| row.sampling.needs_processing())
        .collect();
    if rows.is_empty() {
        return;
    }
    let chunks = Chunks {
        isa,
        threads,
        vocab_size,
    };
    chunks.find_greatest(&mut rows, logits, |_, _, _| {});
    // Bad rows stay as they are, so that `sample` sees what is wrong with them.
    rows.retain(|row| !row.best.is_bad());
    for row in rows.iter().filter(|row| row.has_edits()) {
        let logits = &mut logits[row.index * vocab_size..][..vocab_size];
        edits::edit(logits, &row.sampling, step.carried_token(row.index), step);
    }
    let (mut edited, mut others): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(Row::has_edits);
    chunks.find_greatest(&mut edited, logits, |row, first, logits| {
        if let Some(mask) = row.sampling.mask {
            edits::apply_mask(logits, &step.mask(mask, vocab_size)[first / 32..]);
        }
    });
    others.append(&mut edited);
    others.retain(|row| row.sampling.has_filters() && !row.best.is_bad());
    chunks.filter(&mut others, logits);
}

/// How rows are divided into tasks.
#[derive(Clone, Copy)]
struct Chunks<'a> {
    isa: Isa,
    threads: &'a Threads,
    vocab_size: usize,
}

impl Chunks<'_> {
    /// Calls `visit` with each chunk of each row, and its first token.
    fn run<R: Send>(
        &self,
        rows: &[Row],
        logits: &mut [f32],
        results: &mut [R],
        visit: impl Fn(&Row, usize, &mut [f32]) -> R + Sync,
    ) {
        let per_row = self.vocab_size.div_ceil(CHUNK);
        let logits = SharedMut::new(logits);
        let results = SharedMut::new(results);
        self.threads.run(rows.len() * per_row, |task| {
            let (row, first) = (&rows[task / per_row], task % per_row * CHUNK);
            let len = CHUNK.min(self.vocab_size - first);
            // SAFETY: chunks of distinct rows, and of one row, do not overlap.
            let chunk = unsafe { logits.part(row.index * self.vocab_size + first, len) };
            // SAFETY: each task has a place of its own.
            let place = unsafe { results.part(task, 1) };
            place[0] = visit(row, first, chunk);
        });
    }

    /// Edits each chunk, then finds the greatest logit of each row.
    fn find_greatest(
        &self,
        rows: &mut [Row],
        logits: &mut [f32],
        edit: impl Fn(&Row, usize, &mut [f32]) + Sync,
    ) {
        let per_row = self.vocab_size.div_ceil(CHUNK);
        let mut found = vec![Best::NONE; rows.len() * per_row];
        self.run(rows, logits, &mut found, |row, first, chunk| {
            edit(row, first, chunk);
            greatest(self.isa, first as u32, chunk)
        });
        for (row, found) in rows.iter_mut().zip(found.chunks(per_row)) {
            row.best = found.iter().fold(Best::NONE, |a, &b| a.or(b));
        }
    }

    /// Finds the limits of each row, then masks what is not within them.
    fn filter(&self, rows: &mut [Row], logits: &mut [f32]) {
        let (isa, vocab_size) = (self.isa, self.vocab_size);
        {
            let logits = &*logits;
            let num_rows = rows.len();
            let rows = SharedMut::new(rows);
            self.threads.run(num_rows, |task| {
                // SAFETY: each task has a row of its own.
                let row = &mut unsafe { rows.part(task, 1) }[0];
                let logits = &logits[row.index * vocab_size..][..vocab_size];
                row.limits = BUFFERS.with_borrow_mut(|buffers| {
                    let best = row.best.score;
                    Some(filters::limits(isa, logits, best, &row.sampling, buffers))
                });
            });
        }
        let mut done = vec![(); rows.len() * vocab_size.div_ceil(CHUNK)];
        self.run(rows, logits, &mut done, |row, _, logits| {
            if let Some(limits) = &row.limits {
                isa.run(Keep { logits, limits });
            }
        });
    }
}

#[cfg(test)]
mod tests;
