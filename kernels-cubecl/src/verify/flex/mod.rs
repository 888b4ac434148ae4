//! Native verification: see the contract in [`super`].
//!
//! Probabilities are read off the logits where they are wanted; a whole distribution is written down
//! only after a drawn draft was rejected.

mod block;
pub mod reference;
mod residual;

use std::cell::RefCell;

use self::residual::{Distribution, Residual};
use super::{STATUS_TOKEN, STATUS_UNREACHED};
use crate::sample::philox::PURPOSE_ACCEPT;
use crate::simd::Isa;
use crate::simd::scratch::Scratch;
use crate::simd::shared::SharedMut;
use crate::step_inputs::{SamplingRow, StepView, Verification};
use crate::threads::Threads;

thread_local! {
    /// A worker's residuals: logits or weights of one row, and of the draft.
    static WORK: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
}

/// What verification reads.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// `[R, V]`.
    pub logits: &'a [f32],
    /// `[Q, V]`.
    pub draft_logits: &'a [f32],
    /// V.
    pub vocab_size: usize,
    /// Trees.
    pub step: StepView<'a>,
}

/// Turns the sampled `verdicts [R, 2]` into verified ones.
pub fn verify(threads: &Threads, inputs: Inputs<'_>, verdicts: &mut [u32]) {
    let num_rows = verdicts.len() / 2;
    let isa = Isa::detect();
    let verdicts = SharedMut::new(verdicts);
    threads.run(num_rows, |row| {
        let num_drafts = inputs.step.sampling(row).num_drafts as usize;
        if num_drafts > 0 {
            // SAFETY: the rows of a tree belong to its anchor's task, and no two trees share any.
            let rows = unsafe { verdicts.part(2 * row, 2 * (1 + num_drafts)) };
            let tree = Tree {
                isa,
                inputs,
                anchor: row,
                num_drafts,
            };
            WORK.with_borrow_mut(|work| tree.verify(rows, work));
        }
    });
}

/// The rows of one sequence's draft.
struct Tree<'a> {
    isa: Isa,
    inputs: Inputs<'a>,
    anchor: usize,
    num_drafts: usize,
}

impl Tree<'_> {
    /// `verdicts [1 + num_drafts, 2]`.
    fn verify(&self, verdicts: &mut [u32], work: &mut Scratch) {
        let sampling = self.sampling(0);
        let is_shared = !sampling.is_noisy() || sampling.verification == Verification::SharedNoise;
        let mut is_reached = vec![false; 1 + self.num_drafts];
        if sampling.verification == Verification::Block && !is_shared && self.is_chain() {
            self.verify_block(verdicts, &mut is_reached, work);
        } else {
            self.walk(verdicts, &mut is_reached, is_shared, work);
        }
        for (verdict, is_reached) in verdicts.chunks_exact_mut(2).zip(is_reached) {
            if !is_reached {
                verdict.copy_from_slice(&[0, STATUS_UNREACHED]);
            }
        }
    }

    fn walk(
        &self,
        verdicts: &mut [u32],
        is_reached: &mut [bool],
        is_shared: bool,
        work: &mut Scratch,
    ) {
        let mut node = Some(0);
        while let Some(at) = node {
            is_reached[at] = true;
            let verdict = &mut verdicts[2 * at..2 * at + 2];
            if verdict[1] != STATUS_TOKEN {
                return;
            }
            node = if is_shared {
                let mut children = self.children(at);
                children.find(|&child| self.token(child) == verdict[0])
            } else {
                let (token, child) = self.decide(at, work);
                verdict[0] = token;
                child
            };
        }
    }

    /// The token behind a node, and the child that it is if one was accepted.
    fn decide(&self, node: usize, work: &mut Scratch) -> (u32, Option<usize>) {
        let sampling = self.sampling(node);
        let target = self.target(node);
        let [dense, spare] = work.split([self.inputs.vocab_size; 2]);
        let mut residual = Residual::new(self.isa, target, dense);
        let mut draft = None;
        for (number, child) in self.children(node).enumerate() {
            let token = self.token(child);
            let uniform = uniform(&sampling, number as u32);
            let Some(draft_row) = self.sampling(child).draft_row else {
                if uniform < residual.probability(token) {
                    return (token, Some(child));
                }
                residual.remove(token);
                continue;
            };
            let draft = draft.get_or_insert_with(|| {
                let logits = self.draft_row(draft_row);
                Distribution::new(self.isa, logits, sampling.temperature)
            });
            if uniform * draft.probability(token) < residual.probability(token) {
                return (token, Some(child));
            }
            residual.subtract(draft, token, spare);
            draft.remove(token);
        }
        (residual.draw(&sampling), None)
    }

    /// Children of a node, in order of their rows. Node 0 is the anchor.
    fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let parent = (self.anchor + node) as u32;
        (node + 1..=self.num_drafts)
            .filter(move |&child| self.sampling(child).parent_row == Some(parent))
    }

    fn is_chain(&self) -> bool {
        let parent = |node: usize| self.sampling(node).parent_row;
        (1..=self.num_drafts).all(|node| parent(node) == Some((self.anchor + node) as u32 - 1))
    }

    fn sampling(&self, node: usize) -> SamplingRow {
        self.inputs.step.sampling(self.anchor + node)
    }

    /// The token that a node is.
    fn token(&self, node: usize) -> u32 {
        let step = self.inputs.step;
        step.token_ids()[step.logit_rows()[self.anchor + node] as usize]
    }

    /// What the target says behind a node.
    fn target(&self, node: usize) -> Distribution<'_> {
        let vocab_size = self.inputs.vocab_size;
        let start = (self.anchor + node) * vocab_size;
        let logits = &self.inputs.logits[start..start + vocab_size];
        Distribution::new(self.isa, logits, self.sampling(node).temperature)
    }

    fn draft_row(&self, row: u32) -> &[f32] {
        let start = row as usize * self.inputs.vocab_size;
        &self.inputs.draft_logits[start..start + self.inputs.vocab_size]
    }
}

/// Whether child number `number` behind a row is accepted hangs on this.
fn uniform(sampling: &SamplingRow, number: u32) -> f64 {
    let word = sampling
        .stream_for(PURPOSE_ACCEPT)
        .word(number, sampling.seed);
    (f64::from(word >> 9) + 0.5) / f64::from(1 << 23)
}

#[cfg(test)]
mod distribution_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
