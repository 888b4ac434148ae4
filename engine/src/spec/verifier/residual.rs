//! What rejections leave of a distribution.
//!
//! Neighbours: `rejection.rs` and `block.rs` take away, and draw from what is left.

/// Divided by their sum; `None` if nothing is there.
fn normalised(mut weights: Vec<f64>) -> Option<Vec<f64>> {
    let sum: f64 = weights.iter().sum();
    if sum > 0.0 {
        for weight in &mut weights {
            *weight /= sum;
        }
        Some(weights)
    } else {
        None
    }
}

/// The distribution without a token, renormalised; `None` if it had no other.
pub(super) fn without(distribution: &[f64], token: usize) -> Option<Vec<f64>> {
    let mut weights = distribution.to_vec();
    weights[token] = 0.0;
    normalised(weights)
}

/// The weights `max(scale * target - draft, 0)`.
pub(super) fn excess(scale: f64, target: &[f64], draft: &[f64]) -> Vec<f64> {
    let pairs = target.iter().zip(draft);
    pairs.map(|(p, q)| (scale * p - q).max(0.0)).collect()
}

/// The excess, renormalised.
///
/// In exact arithmetic a rejection proves that there is some. Where rounding has taken it, the
/// target without the rejected token stands in; where that is nothing either, the target.
pub(super) fn residual(scale: f64, target: &[f64], draft: &[f64], rejected: usize) -> Vec<f64> {
    normalised(excess(scale, target, draft))
        .or_else(|| without(target, rejected))
        .unwrap_or_else(|| target.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_residual_that_rounding_has_emptied_is_the_target_without_the_rejected_token() {
        let (target, draft) = ([0.25, 0.5, 0.25], [0.25, 0.5, 0.25]);
        assert_eq!(residual(1.0, &target, &draft, 1), [0.5, 0.0, 0.5]);
        assert_eq!(residual(1.0, &[0.0, 1.0], &[0.0, 1.0], 1), [0.0, 1.0]);
        assert_eq!(residual(1.0, &target, &[0.0, 1.0, 0.0], 1), [0.5, 0.0, 0.5]);
        assert_eq!(
            residual(0.5, &target, &[1.0, 0.0, 0.0], 0),
            [0.0, 2.0 / 3.0, 1.0 / 3.0]
        );
    }

    #[test]
    fn nothing_is_left_of_a_distribution_without_its_only_token() {
        assert_eq!(without(&[0.0, 1.0], 1), None);
        assert_eq!(without(&[0.5, 0.5], 1), Some(vec![1.0, 0.0]));
    }
}
