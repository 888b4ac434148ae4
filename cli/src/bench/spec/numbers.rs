//! What runs took, and what is told of it.
//!
//! Neighbours: `runner.rs` runs; `tables.rs` makes sections of cells.

use forerun_engine::{SpeculationReport, TokenId};

use super::super::measure::quantile;
use crate::driver::Outcome;

/// Tokens, and the seconds in which they came.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    pub(super) num_tokens: f64,
    pub(super) seconds: f64,
}

impl Pace {
    /// Tokens per second, if any came after the first.
    pub(super) fn rate(self) -> Option<f64> {
        (self.seconds > 0.0 && self.num_tokens > 0.0).then(|| self.num_tokens / self.seconds)
    }

    fn add(&mut self, other: Self) {
        self.num_tokens += other.num_tokens;
        self.seconds += other.seconds;
    }
}

/// All jobs of a group, once.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    answers: Vec<Vec<TokenId>>,
    /// When every prompt had been read: from the first token of the last to begin to the last token.
    decode: Pace,
    /// Prompts included.
    whole: Pace,
    speculation: SpeculationReport,
}

impl Run {
    /// Adds requests that ran at once, in so many seconds.
    pub(super) fn add(&mut self, outcomes: &[Outcome], seconds: f64) {
        let samples = || {
            outcomes
                .iter()
                .filter_map(|outcome| outcome.samples.first())
        };
        let firsts = samples().filter_map(|sample| sample.token_times.first());
        let lasts = samples().filter_map(|sample| sample.token_times.last());
        if let (Some(&begin), Some(&end)) = (firsts.max(), lasts.max()) {
            let times = samples().flat_map(|sample| &sample.token_times);
            self.decode.add(Pace {
                num_tokens: times.filter(|&&time| time > begin).count() as f64,
                seconds: end.since(begin) as f64 / 1e6,
            });
        }
        self.whole.add(Pace {
            num_tokens: samples().map(|sample| sample.tokens.len() as f64).sum(),
            seconds,
        });
        for outcome in outcomes {
            add_counts(&mut self.speculation, &outcome.speculation);
        }
        let answer = |outcome: &Outcome| {
            let samples = outcome.samples.iter();
            let tokens = samples.flat_map(|sample| sample.tokens.iter());
            tokens.map(|token| token.token).collect()
        };
        self.answers.extend(outcomes.iter().map(answer));
    }
}

/// Paces of one repeat.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    off: Pace,
    on: Pace,
}

/// A group at a temperature with a drafter: all repeats.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) label: String,
    decode: Vec<Pair>,
    whole: Vec<Pair>,
    num_same: usize,
    num_answers: usize,
    /// Of the runs with speculation.
    pub(super) speculation: SpeculationReport,
}

/// How fast it was off and on: medians over repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Speed {
    pub(super) off: Option<f64>,
    pub(super) on: Option<f64>,
    /// On against off in the same repeat: median, least and most.
    pub(super) ratio: Option<f64>,
    pub(super) ratio_min: Option<f64>,
    pub(super) ratio_max: Option<f64>,
}

impl Cell {
    pub(super) fn new(label: String) -> Self {
        Self {
            label,
            ..Self::default()
        }
    }

    /// Adds a repeat.
    pub(super) fn push(&mut self, off: &Run, on: &Run) {
        self.decode.push(Pair {
            off: off.decode,
            on: on.decode,
        });
        self.whole.push(Pair {
            off: off.whole,
            on: on.whole,
        });
        let pairs = off.answers.iter().zip(&on.answers);
        self.num_same += pairs.filter(|(off, on)| off == on).count();
        self.num_answers += off.answers.len();
        add_counts(&mut self.speculation, &on.speculation);
    }

    /// All cells of as many repeats as one.
    pub(super) fn sum(label: &str, cells: &[Self]) -> Self {
        let mut sum = Self::new(label.to_owned());
        for cell in cells {
            add_pairs(&mut sum.decode, &cell.decode);
            add_pairs(&mut sum.whole, &cell.whole);
            sum.num_same += cell.num_same;
            sum.num_answers += cell.num_answers;
            add_counts(&mut sum.speculation, &cell.speculation);
        }
        sum
    }

    /// Share of answers whose tokens are those without speculation.
    pub(super) fn same_share(&self) -> Option<f64> {
        (self.num_answers > 0).then(|| self.num_same as f64 / self.num_answers as f64)
    }

    /// Share of decode passes with a draft.
    pub(super) fn drafted_share(&self) -> Option<f64> {
        let report = &self.speculation;
        (report.decode_passes > 0).then(|| report.drafts as f64 / report.decode_passes as f64)
    }

    /// Accepted draft tokens of all.
    pub(super) fn acceptance(&self) -> Option<f64> {
        let report = &self.speculation;
        (report.draft_tokens > 0).then(|| report.acceptance_rate())
    }

    /// Tokens per decode pass, with drafts and without.
    pub(super) fn emitted(&self) -> Option<f64> {
        let report = &self.speculation;
        (report.decode_passes > 0).then(|| report.mean_emitted_per_step())
    }

    /// Share of the drafts that reached each position whose token there was accepted.
    pub(super) fn acceptance_by_position(&self) -> Vec<Option<f64>> {
        let report = &self.speculation;
        let counts = report
            .accepted_per_position
            .iter()
            .zip(&report.drafted_per_position);
        counts
            .map(|(&accepted, &drafted)| (drafted > 0).then(|| accepted as f64 / drafted as f64))
            .collect()
    }

    /// After the prompts.
    pub(super) fn decode(&self) -> Speed {
        speed(&self.decode)
    }

    /// Prompts included.
    pub(super) fn whole(&self) -> Speed {
        speed(&self.whole)
    }
}

fn speed(pairs: &[Pair]) -> Speed {
    let ratios = || {
        let ratio = |pair: &Pair| Some(pair.on.rate()? / pair.off.rate()?);
        pairs.iter().filter_map(ratio)
    };
    Speed {
        off: median(pairs.iter().filter_map(|pair| pair.off.rate())),
        on: median(pairs.iter().filter_map(|pair| pair.on.rate())),
        ratio: median(ratios()),
        ratio_min: ratios().min_by(f64::total_cmp),
        ratio_max: ratios().max_by(f64::total_cmp),
    }
}

/// The middle value, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    let negated = quantile(values.iter().map(|value| -value), 0.5)?;
    Some(f64::midpoint(quantile(values, 0.5)?, -negated))
}

fn add_pairs(sum: &mut Vec<Pair>, pairs: &[Pair]) {
    sum.resize(sum.len().max(pairs.len()), Pair::default());
    for (sum, pair) in sum.iter_mut().zip(pairs) {
        sum.off.add(pair.off);
        sum.on.add(pair.on);
    }
}

/// Adds the counts of a request.
fn add_counts(sum: &mut SpeculationReport, one: &SpeculationReport) {
    sum.decode_passes += one.decode_passes;
    sum.drafts += one.drafts;
    sum.draft_tokens += one.draft_tokens;
    sum.accepted_tokens += one.accepted_tokens;
    sum.emitted_tokens += one.emitted_tokens;
    sum.draft_us += one.draft_us;
    sum.verify_us += one.verify_us;
    sum.failures += one.failures;
    sum.refused = sum.refused.or(one.refused);
    for (sum, one) in [
        (&mut sum.accepted_per_position, &one.accepted_per_position),
        (&mut sum.drafted_per_position, &one.drafted_per_position),
    ] {
        sum.resize(sum.len().max(one.len()), 0);
        for (sum, count) in sum.iter_mut().zip(one) {
            *sum += count;
        }
    }
    for &(name, count) in &one.drafters {
        match sum.drafters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known += count,
            None => sum.drafters.push((name, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(num_tokens: f64, seconds: f64) -> Pace {
        Pace {
            num_tokens,
            seconds,
        }
    }

    #[test]
    fn speed_up_is_the_median_over_repeats_with_its_spread() {
        let pair = |on_seconds| Pair {
            off: pace(100.0, 1.0),
            on: pace(100.0, on_seconds),
        };
        let speed = speed(&[pair(0.5), pair(0.25), pair(0.8)]);
        assert_eq!(speed.ratio, Some(2.0));
        assert_eq!((speed.ratio_min, speed.ratio_max), (Some(1.25), Some(4.0)));
        assert_eq!((speed.off, speed.on), (Some(100.0), Some(200.0)));
    }

    #[test]
    fn medians_of_an_even_count_lie_between_the_two_in_the_middle() {
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([].into_iter()), None);
    }

    #[test]
    fn counts_add_up_by_position_and_by_drafter() {
        let report = |drafter, positions: &[u64]| SpeculationReport {
            drafters: vec![(drafter, 2)],
            accepted_per_position: positions.iter().map(|count| count / 2).collect(),
            drafted_per_position: positions.to_vec(),
            decode_passes: 4,
            emitted_tokens: 6,
            drafts: 2,
            ..SpeculationReport::default()
        };
        let mut cell = Cell::default();
        add_counts(&mut cell.speculation, &report("ngram", &[4]));
        add_counts(&mut cell.speculation, &report("suffix", &[2, 2]));
        add_counts(&mut cell.speculation, &report("ngram", &[]));
        assert_eq!(cell.speculation.drafters, [("ngram", 4), ("suffix", 2)]);
        assert_eq!(cell.acceptance_by_position(), [Some(0.5), Some(0.5)]);
        assert_eq!(cell.speculation.drafted_per_position, [6, 2]);
        assert_eq!(cell.drafted_share(), Some(0.5));
        assert_eq!(cell.emitted(), Some(1.5));
    }
}
