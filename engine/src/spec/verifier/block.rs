//! Block verification: how much of a chain is accepted is decided at once.
//!
//! Sun et al., "Block Verification Accelerates Speculative Decoding", arXiv 2403.10444, algorithm 2.
//!
//! Neighbours: `rejection.rs` verifies what is not a chain.

use super::residual::{excess, residual};
use super::{Chance, Drafted, Verdicts, verify_rejection};
use crate::TokenId;
use crate::spec::DraftDraw;

/// Accepts `x_1 .. x_i` of a chain `x_1 .. x_n` for the greatest i of those that chance picks, or 0.
/// With p the target's distribution behind `x_i`, and q the one that `x_(i+1)` was drawn from, which
/// is one-hot for a deterministic draft:
///
/// ```text
/// w_0 = 1,  w_i = min(w_(i-1) p(x_i) / q(x_i), 1)
/// s_i = sum over v of max(w_i p(v) - q(v), 0)
/// h_i = s_i / (s_i + (1 - w_i)),  h_n = w_n
/// ```
///
/// i is picked with `h_i`, for each i from 1 to n. The token behind `x_i` is drawn from
/// `max(w_i p - q, 0)`, renormalised, the one behind `x_n` from p.
///
/// Likely tokens at the end of a chain make up for an unlikely one at its start, so that no fewer are
/// accepted on average than by rejection. Trees are verified by rejection.
///
/// A chain ends at the first row that is not finite: what is drafted behind it cannot be weighed.
///
/// Chance is asked once for each i, in ascending order, then once for the token.
pub fn verify_block(drafted: Drafted<'_>, chance: &mut impl Chance) -> Verdicts {
    if !drafted.tree.is_chain() {
        return verify_rejection(drafted, chance);
    }
    let targets = targets(drafted);
    let num_decided = targets.len().min(drafted.tree.len());
    let vocab_size = targets.first().map_or(0, Vec::len);
    let drafts: Vec<Vec<f64>> = (0..num_decided)
        .map(|node| drawn_from(drafted, node, vocab_size))
        .collect();
    let token = |node: usize| drafted.tree.nodes()[node].token.0 as usize;

    let mut weight = 1.0;
    let (mut num_accepted, mut accepted_weight) = (0, weight);
    for node in 0..num_decided {
        let (p, q) = (targets[node][token(node)], drafts[node][token(node)]);
        weight = if q > 0.0 {
            (weight * p / q).min(1.0)
        } else {
            0.0
        };
        let picked = match drafts.get(node + 1) {
            Some(next) => {
                let left: f64 = excess(weight, &targets[node + 1], next).iter().sum();
                let whole = left + (1.0 - weight);
                // Nothing left and nothing lost: what follows is accepted for certain.
                if whole > 0.0 { left / whole } else { 0.0 }
            }
            None => weight,
        };
        if chance.happens(picked) {
            (num_accepted, accepted_weight) = (node + 1, weight);
        }
    }

    let path = (0..num_accepted as u32).collect();
    let final_token = targets.get(num_accepted).map(|target| {
        let left = match drafts.get(num_accepted) {
            Some(draft) => residual(accepted_weight, target, draft, token(num_accepted)),
            None => target.clone(),
        };
        TokenId(chance.draw(&left) as u32)
    });
    Verdicts { path, final_token }
}

/// Distributions behind the anchor and the nodes, up to the first that does not exist.
fn targets(drafted: Drafted<'_>) -> Vec<Vec<f64>> {
    let nodes = (0..drafted.tree.len() as u32).map(Some);
    let rows = std::iter::once(None).chain(nodes);
    rows.map_while(|node| (drafted.target)(node)).collect()
}

fn drawn_from(drafted: Drafted<'_>, node: usize, vocab_size: usize) -> Vec<f64> {
    let guess = drafted.tree.nodes()[node];
    match guess.draw {
        DraftDraw::Sampled { row } => (drafted.draft)(row).to_vec(),
        DraftDraw::Deterministic => {
            let mut one_hot = vec![0.0; vocab_size];
            one_hot[guess.token.0 as usize] = 1.0;
            one_hot
        }
    }
}
