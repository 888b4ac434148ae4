//! Block verification: how much of a chain is accepted is decided at once.
//!
//! Neighbours: called by [`super`] for chains; the formulas are in the contract.

use super::residual::Residual;
use super::{Tree, uniform};
use crate::simd::scratch::Scratch;
use crate::verify::STATUS_TOKEN;

impl Tree<'_> {
    /// Marks the accepted nodes as reached and writes their tokens.
    pub(super) fn verify_block(
        &self,
        verdicts: &mut [u32],
        is_reached: &mut [bool],
        work: &mut Scratch,
    ) {
        let is_finite = |verdicts: &[u32], node: usize| verdicts[2 * node + 1] == STATUS_TOKEN;
        // A row that is not finite says nothing about what comes behind it.
        let num_decided = (0..self.num_drafts)
            .take_while(|&node| is_finite(verdicts, node))
            .count();
        let (num_accepted, scale) = self.accept_block(num_decided, work);
        for node in 0..=num_accepted {
            is_reached[node] = true;
            if node < num_accepted {
                verdicts[2 * node] = self.token(node + 1);
            }
        }
        if !is_finite(verdicts, num_accepted) {
            return;
        }
        let sampling = self.sampling(num_accepted);
        let [dense, spare] = work.split([self.inputs.vocab_size; 2]);
        let mut residual = Residual::new(self.isa, self.target(num_accepted), dense);
        if num_accepted < self.num_drafts {
            self.write_draft(num_accepted + 1, spare);
            residual.subtract_weights(scale, spare, self.token(num_accepted + 1));
        }
        verdicts[2 * num_accepted] = residual.draw(&sampling);
    }

    /// How many drafts are accepted, and p_i behind the last of them.
    fn accept_block(&self, num_decided: usize, work: &mut Scratch) -> (usize, f64) {
        let mut accepted = (0, 1.0);
        let mut scale = 1.0_f64;
        for node in 1..=num_decided {
            let token = self.token(node);
            let before = self.target(node - 1).probability(token);
            scale = (scale * before / self.draft_probability(node)).min(1.0);
            let threshold = if node == num_decided {
                scale
            } else {
                let left = self.left_behind(node, scale, work);
                let whole = left + 1.0 - scale;
                if whole > 0.0 { left / whole } else { 0.0 }
            };
            let uniform = uniform(&self.sampling(node - 1), 0);
            if uniform < threshold {
                accepted = (node, scale);
            }
        }
        accepted
    }

    /// s_i: what the residual behind a node weighs.
    fn left_behind(&self, node: usize, scale: f64, work: &mut Scratch) -> f64 {
        let target = self.target(node);
        let next = node + 1;
        if self.sampling(next).draft_row.is_none() {
            return scale * (1.0 - target.probability(self.token(next)));
        }
        let [p, q] = work.split([self.inputs.vocab_size; 2]);
        target.write(p);
        self.write_draft(next, q);
        let scale = scale as f32;
        let pairs = p.iter().zip(&*q);
        pairs
            .map(|(&p, &q)| f64::from((p * scale - q).max(0.0)))
            .sum()
    }

    /// q of the token that a node is.
    fn draft_probability(&self, node: usize) -> f64 {
        let sampling = self.sampling(node);
        match sampling.draft_row {
            None => 1.0,
            Some(row) => {
                let logits = self.draft_row(row);
                let draft = super::Distribution::new(self.isa, logits, sampling.temperature);
                draft.probability(self.token(node))
            }
        }
    }

    /// The distribution that a node was drawn from.
    fn write_draft(&self, node: usize, out: &mut [f32]) {
        let sampling = self.sampling(node);
        match sampling.draft_row {
            None => {
                out.fill(0.0);
                out[self.token(node) as usize] = 1.0;
            }
            Some(row) => {
                let logits = self.draft_row(row);
                super::Distribution::new(self.isa, logits, sampling.temperature).write(out);
            }
        }
    }
}
