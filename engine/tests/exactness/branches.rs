//! Chance that takes every branch in turn.
//!
//! Neighbours: `joint.rs` enumerates drafts and verdicts with it.

use forerun_engine::Chance;

/// One run's choices: those of the run before up to the last that had another way, then firsts.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    choices: Vec<Choice>,
    num_made: usize,
}

#[derive(Debug)]
struct Choice {
    /// Outcomes with a probability above 0.
    outcomes: Vec<(usize, f64)>,
    taken: usize,
}

impl Branches {
    fn choose(&mut self, outcomes: impl Iterator<Item = (usize, f64)>) -> usize {
        if self.num_made == self.choices.len() {
            let outcomes: Vec<_> = outcomes.filter(|&(_, p)| p > 0.0).collect();
            assert!(!outcomes.is_empty(), "something has to happen");
            self.choices.push(Choice { outcomes, taken: 0 });
        }
        let choice = &self.choices[self.num_made];
        self.num_made += 1;
        choice.outcomes[choice.taken].0
    }

    fn probability(&self) -> f64 {
        let taken = self.choices.iter().map(|c| c.outcomes[c.taken].1);
        taken.product()
    }

    /// Turns to the next run; whether there is one.
    fn advance(&mut self) -> bool {
        self.num_made = 0;
        while let Some(choice) = self.choices.last_mut() {
            choice.taken += 1;
            if choice.taken < choice.outcomes.len() {
                return true;
            }
            self.choices.pop();
        }
        false
    }
}

impl Chance for Branches {
    fn happens(&mut self, probability: f64) -> bool {
        assert!(
            (0.0..=1.0).contains(&probability),
            "{probability} is no probability"
        );
        self.choose([(1, probability), (0, 1.0 - probability)].into_iter()) == 1
    }

    fn draw(&mut self, distribution: &[f64]) -> usize {
        let sum: f64 = distribution.iter().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{distribution:?} sums to {sum}");
        self.choose(distribution.iter().copied().enumerate())
    }
}

/// Runs with every outcome of chance; each result with its probability.
pub(crate) fn enumerate<T>(mut run: impl FnMut(&mut Branches) -> T) -> Vec<(f64, T)> {
    let mut branches = Branches::default();
    let mut results = Vec::new();
    loop {
        let result = run(&mut branches);
        assert_eq!(branches.num_made, branches.choices.len(), "runs repeat");
        results.push((branches.probability(), result));
        if !branches.advance() {
            return results;
        }
    }
}

#[test]
fn every_outcome_comes_once_with_its_probability() {
    let mut found = enumerate(|chance| {
        if chance.happens(0.25) {
            return 9;
        }
        chance.draw(&[0.5, 0.0, 0.5]) + 3 * usize::from(chance.happens(1.0))
    });
    found.sort_by_key(|&(_, result)| result);
    assert_eq!(found, [(0.375, 3), (0.375, 5), (0.25, 9)]);
}
