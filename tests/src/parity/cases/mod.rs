//! The cases: awkward sizes, pairwise different, around the edges of tiles.

mod attention;
mod elementwise;
mod kv;
mod norm;
mod processing;
mod sampling;
mod verification;
mod weights;

use super::Case;

/// Every case of every op.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(norm::cases());
    cases.extend(elementwise::cases());
    cases.extend(kv::cases());
    cases.extend(weights::cases());
    cases.extend(attention::cases());
    cases.extend(sampling::cases());
    cases.extend(processing::cases());
    cases.extend(verification::cases());
    cases
}
