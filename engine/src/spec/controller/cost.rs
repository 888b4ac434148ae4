//! What a pass takes, by the rows it has.
//!
//! Neighbours: part of [`super::Controller`]; times come from the caller's clock.

/// Rows up to which each count has an estimate of its own.
const ROWS_MAX: usize = 512;
/// Weight of a new time against the old estimate.
const NEWNESS: f64 = 0.03;
/// A time that much above the estimate is somebody else's doing, and counts as this.
const OUTLIER: f64 = 1.5;
/// What a row more costs as long as nobody knows, in passes of one row: less than it may turn out to
/// be, so that it is tried.
const ROW_SHARE: f64 = 0.08;

/// Running estimates.
#[derive(Clone, Debug, Default)]
pub(super) struct PassCost {
    /// By rows - 1; `None` where no pass had so many.
    micros: Vec<Option<Estimate>>,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    micros: f64,
    num_times: u32,
}

impl PassCost {
    pub(super) fn record(&mut self, num_rows: usize, duration_us: u64) {
        if num_rows == 0 || num_rows > ROWS_MAX || duration_us == 0 {
            return;
        }
        if self.micros.len() < num_rows {
            self.micros.resize(num_rows, None);
        }
        let micros = duration_us as f64;
        let place = &mut self.micros[num_rows - 1];
        *place = Some(match *place {
            None => Estimate {
                micros,
                num_times: 1,
            },
            Some(Estimate {
                micros: before,
                num_times,
            }) => {
                let weight = NEWNESS.max(1.0 / f64::from(num_times + 1));
                let bounded = micros.min(OUTLIER * before);
                Estimate {
                    micros: before + weight * (bounded - before),
                    num_times: num_times.saturating_add(1),
                }
            }
        });
    }

    /// Of passes of 1 to `rows_max` rows, at index rows - 1: in microseconds, or in passes of one row
    /// while no times are known. Between known counts it grows evenly, beyond them as it did so far,
    /// and it never falls.
    pub(super) fn write_curve(&self, rows_max: usize, curve: &mut Vec<f64>) {
        curve.clear();
        let known = self.micros.iter().enumerate();
        let mut first: Option<(usize, f64)> = None;
        let mut last: Option<(usize, f64)> = None;
        for (index, estimate) in known {
            let Some(estimate) = estimate else { continue };
            let rows = index + 1;
            let micros = last.map_or(estimate.micros, |(_, most)| estimate.micros.max(most));
            match last {
                None => {
                    let one = micros / share_of(rows);
                    curve.extend((1..=rows).map(|rows| one * share_of(rows)));
                    first = Some((rows, micros));
                }
                Some((before, least)) => {
                    let slope = (micros - least) / (rows - before) as f64;
                    let steps = 1..=rows - before;
                    curve.extend(steps.map(|step| least + slope * step as f64));
                }
            }
            last = Some((rows, micros));
        }
        let (rows, micros) = last.unwrap_or((0, 0.0));
        let slope = match first {
            Some((first, least)) if first < rows => (micros - least) / (rows - first) as f64,
            Some(_) => micros / share_of(rows) * ROW_SHARE,
            None => ROW_SHARE,
        };
        // Narrower passes than any known are as much cheaper as wider ones are dearer.
        if let Some((first, least)) = first {
            for (index, micros) in curve[..first - 1].iter_mut().enumerate() {
                let by_slope = least - slope * (first - 1 - index) as f64;
                *micros = micros.min(by_slope).max(least / first as f64);
            }
        }
        let start = if last.is_some() {
            micros
        } else {
            1.0 - ROW_SHARE
        };
        curve.extend((rows + 1..=rows_max).map(|r| start + slope * (r - rows) as f64));
    }
}

/// How many passes of one row a pass is taken to cost while nobody knows.
fn share_of(rows: usize) -> f64 {
    1.0 + ROW_SHARE * (rows - 1) as f64
}
