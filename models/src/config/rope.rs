//! Rotary position embedding: base and scaling of a model, and the inverse frequencies that follow.
//!
//! The maths is done in f64 and rounded once, so every backend gets the same table.
//!
//! Sources: RoFormer (Su et al., 2104.09864); YaRN (Peng et al., 2309.00071, section 3); the
//! `llama3` bands as in Meta's Llama 3.1 reference code; conventions where they differ as in
//! `modeling_rope_utils.py` of Hugging Face transformers, which the goldens were made with.
//! Neighbours: [`super::hf`] and [`super::gguf`] (who parse it), `forerun_kernels::spec::RopeSpec`.

use std::f64::consts::PI;

/// Rotary embedding of some of a model's layers.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the geometric series of frequencies, above 1.
    pub base: f64,
    /// Leading values of a head that rotate, even.
    pub rotary_dim: usize,
    /// How the series is stretched for longer contexts.
    pub scaling: RopeScaling,
}

/// How frequencies are changed for contexts longer than those of training.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    Default,
    /// All are divided by `factor`.
    Linear {
        /// Above 0.
        factor: f64,
    },
    /// Long waves are divided by `factor`, short ones kept, those between blended.
    Llama3 {
        /// Above 0.
        factor: f64,
        /// Waves longer than the original context divided by this are long.
        low_freq_factor: f64,
        /// Waves shorter than the original context divided by this are short.
        high_freq_factor: f64,
        /// Context length of training.
        original_max_seq_len: usize,
    },
    /// As [`RopeScaling::Linear`] for slow dimensions, unchanged for fast ones, a ramp between,
    /// and cosine and sine scaled.
    Yarn(YarnScaling),
    /// Each frequency is divided by its own factor (GGUF tensor `rope_freqs.weight`).
    FrequencyFactors(Vec<f32>),
}

/// Parameters of YaRN.
#[derive(Clone, Debug, PartialEq)]
pub struct YarnScaling {
    /// Above 0.
    pub factor: f64,
    /// Context length of training.
    pub original_max_seq_len: usize,
    /// Rotations over the original context above which a dimension is unchanged; usually 32.
    pub beta_fast: f64,
    /// Rotations below which a dimension is divided by the factor; usually 1.
    pub beta_slow: f64,
    /// Whether the ends of the ramp are rounded to whole dimensions.
    pub truncates_ramp: bool,
    /// Factor on cosine and sine, where the file states it.
    pub attention_factor: Option<f64>,
    /// Numerator and denominator of that factor, where the file states both.
    pub mscale: Option<(f64, f64)>,
}

/// What a kernel needs of a [`RopeConfig`].
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Angle per position of each rotating pair, `[rotary_dim / 2]`.
    pub inv_freq: Vec<f32>,
    /// Factor on cosine and sine.
    pub magnitude: f32,
}

impl RopeConfig {
    /// Inverse frequencies and magnitude.
    pub fn table(&self) -> RopeTable {
        let num_pairs = self.rotary_dim / 2;
        let plain = |pair: usize| {
            self.base
                .powf(-(2.0 * pair as f64) / self.rotary_dim as f64)
        };
        let pairs = 0..num_pairs;
        let inv_freq = match &self.scaling {
            RopeScaling::Default => pairs.map(plain).collect(),
            RopeScaling::Linear { factor } => pairs.map(|pair| plain(pair) / factor).collect(),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_seq_len,
            } => {
                let bands = (*low_freq_factor, *high_freq_factor);
                let context = *original_max_seq_len as f64;
                pairs
                    .map(|pair| llama3(plain(pair), *factor, bands, context))
                    .collect()
            }
            RopeScaling::Yarn(yarn) => {
                let (low, high) = yarn.ramp(self.base, self.rotary_dim);
                let blend = |pair: usize| {
                    let slowness = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    plain(pair) * (1.0 - slowness + slowness / yarn.factor)
                };
                pairs.map(blend).collect()
            }
            RopeScaling::FrequencyFactors(factors) => pairs
                .zip(factors)
                .map(|(pair, factor)| plain(pair) / f64::from(*factor))
                .collect(),
        };
        let inv_freq: Vec<f64> = inv_freq;
        RopeTable {
            inv_freq: inv_freq.into_iter().map(|value| value as f32).collect(),
            magnitude: self.magnitude() as f32,
        }
    }

    /// Factor on cosine and sine.
    pub(super) fn magnitude(&self) -> f64 {
        match &self.scaling {
            RopeScaling::Yarn(yarn) => yarn.magnitude(),
            _ => 1.0,
        }
    }
}

/// `inv_freq` after the bands of Llama 3.1. `bands` are the low and the high frequency factor.
fn llama3(inv_freq: f64, factor: f64, bands: (f64, f64), context: f64) -> f64 {
    let (low, high) = bands;
    let rotations = context * inv_freq / (2.0 * PI);
    if rotations < low {
        inv_freq / factor
    } else if rotations > high {
        inv_freq
    } else {
        let smooth = (rotations - low) / (high - low);
        inv_freq * ((1.0 - smooth) / factor + smooth)
    }
}

impl YarnScaling {
    /// First and last pair of the ramp, not necessarily whole.
    fn ramp(&self, base: f64, rotary_dim: usize) -> (f64, f64) {
        let dim = rotary_dim as f64;
        let pair_of = |rotations: f64| {
            let wave = self.original_max_seq_len as f64 / (rotations * 2.0 * PI);
            dim * wave.ln() / (2.0 * base.ln())
        };
        let (mut low, mut high) = (pair_of(self.beta_fast), pair_of(self.beta_slow));
        if self.truncates_ramp {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dim - 1.0));
        // Both ends on one pair make a step.
        let step = if high > low { 0.0 } else { 0.001 };
        (low, high.max(low) + step)
    }

    fn magnitude(&self) -> f64 {
        if let Some(factor) = self.attention_factor {
            return factor;
        }
        let scale = |mscale: f64| {
            if self.factor <= 1.0 {
                1.0
            } else {
                0.1 * mscale * self.factor.ln() + 1.0
            }
        };
        match self.mscale {
            Some((mscale, mscale_all_dim)) => scale(mscale) / scale(mscale_all_dim),
            None => scale(1.0),
        }
    }
}
