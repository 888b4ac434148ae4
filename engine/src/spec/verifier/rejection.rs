//! Rejection sampling: children of a node are tried one after another.
//!
//! Leviathan et al., arXiv 2211.17192, and Chen et al., arXiv 2302.01318, for one drawn child;
//! Miao et al. (SpecInfer), arXiv 2305.09781, for siblings; Chen et al. (Sequoia), arXiv 2402.12374,
//! for siblings drawn without replacement. A deterministic child is one drawn from a one-hot row.
//!
//! Neighbours: `residual.rs` keeps what is left of the distributions.

use super::residual::{residual, without};
use super::{Chance, Drafted, Verdicts};
use crate::TokenId;
use crate::spec::DraftDraw;

/// What came of one node.
enum Decision {
    Accepted(u32),
    Drawn(usize),
}

/// Goes down the tree as long as a child is accepted. With p the target's distribution behind the
/// node and q that of its children's row:
///
/// ```text
/// deterministic child x   accepted with p(x);             else p loses x
/// drawn child x           accepted with min(p(x)/q(x), 1);  else p = max(p - q, 0), and q loses x
/// ```
///
/// both renormalised each time. If no child is accepted the token is drawn from what p has become.
/// A drawn child to which its row gives no probability was not drawn from it and is not accepted.
///
/// Chance is asked once for each child that is tried, then once for the token.
///
/// # Panics
/// If siblings were drawn from different rows.
pub fn verify_rejection(drafted: Drafted<'_>, chance: &mut impl Chance) -> Verdicts {
    let mut path: Vec<u32> = Vec::new();
    loop {
        let node = path.last().copied();
        let Some(target) = (drafted.target)(node) else {
            return Verdicts {
                path,
                final_token: None,
            };
        };
        match decide(drafted, node, target, chance) {
            Decision::Accepted(child) => path.push(child),
            Decision::Drawn(token) => {
                return Verdicts {
                    path,
                    final_token: Some(TokenId(token as u32)),
                };
            }
        }
    }
}

fn decide(
    drafted: Drafted<'_>,
    node: Option<u32>,
    mut target: Vec<f64>,
    chance: &mut impl Chance,
) -> Decision {
    let mut drawn_from: Option<(u32, Vec<f64>)> = None;
    for child in drafted.tree.children(node) {
        let guess = drafted.tree.nodes()[child as usize];
        let token = guess.token.0 as usize;
        match guess.draw {
            DraftDraw::Deterministic => {
                if chance.happens(target[token]) {
                    return Decision::Accepted(child);
                }
                target = without(&target, token).unwrap_or(target);
            }
            DraftDraw::Sampled { row } => {
                let (shared_row, draft) =
                    drawn_from.get_or_insert_with(|| (row, (drafted.draft)(row).to_vec()));
                assert_eq!(*shared_row, row, "siblings are drawn from one row");
                if chance.happens(acceptance(target[token], draft[token])) {
                    return Decision::Accepted(child);
                }
                target = residual(1.0, &target, draft, token);
                // A row that was drawn empty has no further siblings.
                *draft = without(draft, token).unwrap_or_else(|| vec![0.0; draft.len()]);
            }
        }
    }
    Decision::Drawn(chance.draw(&target))
}

/// min(p / q, 1).
fn acceptance(target: f64, draft: f64) -> f64 {
    if draft > 0.0 {
        (target / draft).min(1.0)
    } else {
        0.0
    }
}
