//! The filters of one row: which tokens they keep, as limits that a last pass applies.
//!
//! Neighbours: [`super`] runs both; [`super::threshold`] finds limits.

use super::threshold::{Masses, Weighted, threshold};
use crate::simd::{Isa, Kernel, LANES, Simd, math};
use crate::step_inputs::SamplingRow;

/// From here on logits no longer matter; keeps `-inf / temperature` from being NaN.
const TEMPERATURE_MAX: f32 = 1e30;

/// What a token must meet to be kept. With nothing but the defaults all are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Of the row, before any filter.
    maximum: f32,
    temperature: f32,
    /// The least logit.
    lowest: f32,
    /// Of `(logit - maximum) / temperature`: what is most typical, and how far from it a token may be.
    typical: Option<(f32, f32)>,
    /// The greatest logit that other filters keep, and the least share of its probability.
    min_p: Option<(f32, f32)>,
}

/// Memory for one row.
#[derive(Default)]
pub(super) struct Buffers {
    values: Vec<f32>,
    masses: Vec<f32>,
    distances: Vec<f32>,
}

/// Limits of a row whose greatest logit is `maximum`, finite.
pub(super) fn limits(
    isa: Isa,
    logits: &[f32],
    maximum: f32,
    sampling: &SamplingRow,
    buffers: &mut Buffers,
) -> Limits {
    let mut limits = Limits {
        maximum,
        temperature: sampling.temperature.min(TEMPERATURE_MAX),
        lowest: f32::MIN,
        typical: None,
        min_p: None,
    };
    let top_k = sampling.top_k as usize;
    let Buffers {
        values: kept,
        masses,
        distances,
    } = buffers;
    let mut values = logits;
    if (1..logits.len()).contains(&top_k) {
        let all = Weighted {
            values: logits,
            weights: None,
            greatest: maximum,
        };
        limits.lowest = threshold(isa, all, top_k as f64);
        kept.clear();
        kept.extend(logits.iter().filter(|&&logit| logit >= limits.lowest));
        values = kept;
    }
    if sampling.top_p < 1.0 || sampling.typical_p < 1.0 {
        masses.resize(values.len(), 0.0);
        let mass = isa.run(Masses {
            values,
            maximum,
            temperature: limits.temperature,
            out: masses,
        });
        let weighted = Weighted {
            values,
            weights: Some(masses),
            greatest: maximum,
        };
        if sampling.top_p < 1.0 {
            let nucleus = threshold(isa, weighted, f64::from(sampling.top_p) * mass);
            limits.lowest = limits.lowest.max(nucleus);
        }
        if sampling.typical_p < 1.0 {
            let target = f64::from(sampling.typical_p);
            limits.typical = Some(typical(isa, weighted, &limits, target, distances));
        }
    }
    if sampling.min_p > 0.0 {
        let greatest = limits.typical.map_or(maximum, |_| {
            let kept = values.iter().copied().filter(|&logit| limits.keep(logit));
            kept.fold(f32::NEG_INFINITY, f32::max)
        });
        limits.min_p = Some((greatest, sampling.min_p.min(1.0)));
    }
    limits
}

impl Limits {
    /// Whether a token passes all filters but min-p.
    fn keep(&self, logit: f32) -> bool {
        let scaled = (logit - self.maximum) / self.temperature;
        let near = |(centre, farthest): (f32, f32)| (scaled - centre).abs() <= farthest;
        logit >= self.lowest && self.typical.is_none_or(near)
    }
}

/// What is most typical, and how far from it tokens are kept.
fn typical(
    isa: Isa,
    weighted: Weighted<'_>,
    limits: &Limits,
    target: f64,
    distances: &mut Vec<f32>,
) -> (f32, f32) {
    let masses = weighted.weights.unwrap_or_default();
    let (mut mass, mut moment) = (0.0_f64, 0.0_f64);
    for (&logit, &weight) in weighted.values.iter().zip(masses) {
        if logit >= limits.lowest {
            let scaled = (logit - limits.maximum) / limits.temperature;
            mass += f64::from(weight);
            moment += f64::from(weight) * f64::from(scaled);
        }
    }
    let centre = (moment / mass) as f32;
    distances.resize(weighted.values.len(), 0.0);
    let nearest = isa.run(Nearness {
        values: weighted.values,
        limits,
        centre,
        out: distances,
    });
    let by_distance = Weighted {
        values: distances,
        weights: Some(masses),
        greatest: nearest,
    };
    (centre, -threshold(isa, by_distance, target * mass))
}

/// Writes minus the distance of each kept value from the most typical one, `-inf` for others, and gives
/// the greatest.
struct Nearness<'a> {
    values: &'a [f32],
    limits: &'a Limits,
    centre: f32,
    out: &'a mut [f32],
}

impl Kernel for Nearness<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let lowest = s.splat(self.limits.lowest);
        let (maximum, divisor) = (
            s.splat(self.limits.maximum),
            s.splat(self.limits.temperature),
        );
        let (centre, masked) = (s.splat(self.centre), s.splat(f32::NEG_INFINITY));
        let mut greatest = masked;
        let rows = self.values.chunks(LANES).zip(self.out.chunks_mut(LANES));
        for (values, places) in rows {
            let x = s.load_part(values, f32::NEG_INFINITY);
            let offset = s.sub(s.div(s.sub(x, maximum), divisor), centre);
            let near = s.min(offset, s.sub(s.splat(0.0), offset));
            let near = s.select_less(x, lowest, masked, near);
            greatest = s.max(near, greatest);
            s.store_part(places, near);
        }
        s.greatest(greatest)
    }
}

/// Masks what is not within the limits, in a part of a row.
pub(super) struct Keep<'a> {
    pub(super) logits: &'a mut [f32],
    pub(super) limits: &'a Limits,
}

impl Kernel for Keep<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let limits = self.limits;
        let masked = s.splat(f32::NEG_INFINITY);
        let lowest = s.splat(limits.lowest);
        let (maximum, divisor) = (s.splat(limits.maximum), s.splat(limits.temperature));
        for lanes in self.logits.chunks_mut(LANES) {
            let x = if lanes.len() == LANES {
                s.load(lanes)
            } else {
                s.load_part(lanes, f32::NEG_INFINITY)
            };
            let mut kept = s.select_less(x, lowest, masked, x);
            if let Some((centre, farthest)) = limits.typical {
                let offset = s.sub(s.div(s.sub(x, maximum), divisor), s.splat(centre));
                let near = s.min(offset, s.sub(s.splat(0.0), offset));
                kept = s.select_less(near, s.splat(-farthest), masked, kept);
            }
            if let Some((greatest, share)) = limits.min_p {
                let mass = math::exp(s, s.div(s.sub(x, s.splat(greatest)), divisor));
                kept = s.select_less(mass, s.splat(share), masked, kept);
            }
            if lanes.len() == LANES {
                s.store(lanes, kept);
            } else {
                s.store_part(lanes, kept);
            }
        }
    }
}
