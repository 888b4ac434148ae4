//! A histogram with cells of one relative width: quantiles of any number of values from bounded
//! memory.
//!
//! Neighbours: `bucket.rs` keeps one per measure of requests, `mod.rs` one of the tokens of steps;
//! `report.rs` has [`Distribution`], which it is summarised as.

use super::report::{Bin, Distribution};

/// Values below this have a cell each; above, each octave `[2^n, 2^(n + 1))` has this many
/// cells of one width. A cell is then at most 1/64 of its values wide, and its middle at most
/// 1/128 (0.8 %) from any of them.
const CELLS_PER_OCTAVE: u64 = 64;
/// Binary logarithm of [`CELLS_PER_OCTAVE`].
const OCTAVE_BITS: u32 = CELLS_PER_OCTAVE.trailing_zeros();
/// Values above fall into the last cell: twelve days, if they are microseconds.
const VALUE_MAX: u64 = (1 << 40) - 1;
/// Most cells that there can be.
const CELLS_MAX: usize = cell_of(VALUE_MAX) as usize + 1;

/// How often which values came. Mean, least and greatest are exact, quantiles within 1 % of the
/// exact one for values up to 2^40 (twelve days of microseconds).
///
/// Only cells that were met are kept, in order: 16 bytes each, at most 2,240 of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    entries: Vec<Entry>,
    count: u64,
    sum: u128,
    /// Least and greatest value. Meaningless while `count` is 0.
    min: u64,
    max: u64,
}

/// A cell that was met.
#[derive(Clone, Copy, Debug)]
struct Entry {
    cell: u16,
    count: u64,
}

impl Histogram {
    /// One that has room for all cells (35 KiB), so that recording never allocates.
    pub(super) fn preallocated() -> Self {
        Self {
            entries: Vec::with_capacity(CELLS_MAX),
            ..Self::default()
        }
    }

    /// Counts a value.
    pub(super) fn record(&mut self, value: u64) {
        let cell = cell_of(value);
        match self.entries.binary_search_by_key(&cell, |entry| entry.cell) {
            Ok(at) => self.entries[at].count += 1,
            Err(at) => self.entries.insert(at, Entry { cell, count: 1 }),
        }
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += u128::from(value);
        self.count += 1;
    }

    /// The values as a few numbers; nothing if there were none.
    pub(super) fn distribution(&self) -> Option<Distribution> {
        (self.count > 0).then(|| Distribution {
            count: self.count,
            mean: self.sum as f64 / self.count as f64,
            min: self.min,
            p50: self.percentile(50),
            p95: self.percentile(95),
            p99: self.percentile(99),
            max: self.max,
        })
    }

    /// Counts per power of two, empty ones left out. Exact, since no cell crosses a power of two.
    pub(super) fn bins(&self) -> Vec<Bin> {
        let mut bins: Vec<Bin> = Vec::new();
        for entry in &self.entries {
            let value = middle_of(entry.cell);
            let low = if value == 0 { 0 } else { 1 << value.ilog2() };
            match bins.last_mut() {
                Some(bin) if bin.low == low => bin.count += entry.count,
                _ => bins.push(Bin {
                    low,
                    high: (2 * low).saturating_sub(1),
                    count: entry.count,
                }),
            }
        }
        bins
    }

    /// The least value that at least `percent` in a hundred values do not exceed (nearest rank).
    fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100);
        if rank == self.count {
            return self.max;
        }
        let mut num_below = 0;
        for entry in &self.entries {
            num_below += entry.count;
            if num_below >= rank {
                // The ends are known exactly, and no quantile lies beyond them.
                return middle_of(entry.cell).clamp(self.min, self.max);
            }
        }
        unreachable!("the cells hold {num_below} values, fewer than rank {rank}")
    }
}

/// The cell of a value.
const fn cell_of(value: u64) -> u16 {
    let value = if value < VALUE_MAX { value } else { VALUE_MAX };
    if value < CELLS_PER_OCTAVE {
        return value as u16;
    }
    // The leading bit and the OCTAVE_BITS below it say which cell it is.
    let shift = value.ilog2() - OCTAVE_BITS;
    (shift as u64 * CELLS_PER_OCTAVE + (value >> shift)) as u16
}

/// The value in the middle of a cell.
fn middle_of(cell: u16) -> u64 {
    let cell = u64::from(cell);
    if cell < CELLS_PER_OCTAVE {
        return cell;
    }
    let shift = cell / CELLS_PER_OCTAVE - 1;
    let low = (cell - shift * CELLS_PER_OCTAVE) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for &value in values {
            histogram.record(value);
        }
        histogram
    }

    /// Values of every magnitude alike: microseconds to days.
    fn value() -> impl Strategy<Value = u64> {
        (0..40_u32, any::<u64>()).prop_map(|(bits, noise)| noise & ((2 << bits) - 1) & VALUE_MAX)
    }

    proptest! {
        #[test]
        fn quantiles_are_within_one_percent_of_the_exact_ones(
            mut values in prop::collection::vec(value(), 1..400),
        ) {
            let found = histogram(&values).distribution().unwrap();
            values.sort_unstable();
            for (percent, found) in [(50, found.p50), (95, found.p95), (99, found.p99)] {
                let exact = values[(values.len() * percent).div_ceil(100) - 1];
                prop_assert!(
                    found.abs_diff(exact) * 100 <= exact,
                    "P{percent}: found {found}, exact {exact}"
                );
            }
            prop_assert_eq!(found.count, values.len() as u64);
            prop_assert_eq!(found.min, values[0]);
            prop_assert_eq!(found.max, *values.last().unwrap());
            let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
            prop_assert!((found.mean - mean).abs() <= mean * 1e-12);
        }

        #[test]
        fn bins_count_the_values_of_each_power_of_two(
            values in prop::collection::vec(value(), 1..400),
        ) {
            for bin in histogram(&values).bins() {
                let inside = values.iter().filter(|value| (bin.low..=bin.high).contains(*value));
                prop_assert_eq!(bin.count, inside.count() as u64);
            }
            let total: u64 = histogram(&values).bins().iter().map(|bin| bin.count).sum();
            prop_assert_eq!(total, values.len() as u64);
        }
    }

    #[test]
    fn cells_follow_each_other_without_gap_or_overlap() {
        let edges = (0..200).chain((6..40).flat_map(|bits| {
            let power = 1_u64 << bits;
            [power - 1, power, power + power / 64 - 1, power + power / 64]
        }));
        for value in edges {
            let (cell, next) = (cell_of(value), cell_of(value + 1));
            assert!(next == cell || next == cell + 1, "at {value}");
            assert_eq!(cell_of(middle_of(cell)), cell, "at {value}");
        }
        assert_eq!(CELLS_MAX, 2240);
    }

    #[test]
    fn values_beyond_the_range_keep_their_extremes() {
        let found = histogram(&[7, u64::MAX, u64::MAX]).distribution().unwrap();
        assert_eq!((found.min, found.p99, found.max), (7, u64::MAX, u64::MAX));
        assert!(found.p50 > VALUE_MAX / 128 * 127);
    }

    #[test]
    fn nothing_recorded_gives_nothing() {
        assert_eq!(histogram(&[]).distribution(), None);
        assert!(histogram(&[]).bins().is_empty());
    }
}
