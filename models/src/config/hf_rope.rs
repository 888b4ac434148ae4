//! The rope fields of `config.json`: `rope_theta` with `rope_scaling`, or `rope_parameters`, which
//! may hold one set for each type of layer.
//!
//! Neighbours: [`super::hf`] (the other fields), [`super::rope`] (the result).

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::architecture::Architecture;
use super::error::ConfigError;
use super::rope::{RopeConfig, RopeScaling, YarnScaling};

const GLOBAL: &str = "full_attention";
const LOCAL: &str = "sliding_attention";
const SUPPORTED: &str = "default, linear, llama3, yarn";

/// What `config.json` says about rope, in either style.
pub(super) struct RopeFields<'a> {
    pub(super) file: &'a Path,
    /// `rope_theta` or the architecture's default.
    pub(super) base: f64,
    /// `rope_local_base_freq` or its default.
    pub(super) local_base: f64,
    pub(super) scaling: Option<&'a Map<String, Value>>,
    pub(super) parameters: Option<&'a Map<String, Value>>,
    /// Share of a head that rotates.
    pub(super) partial: Option<f64>,
    pub(super) head_dim: usize,
    /// `max_position_embeddings`.
    pub(super) max_seq_len: usize,
}

/// One set of parameters.
#[derive(Debug, Default, Deserialize)]
struct RawRope {
    rope_type: Option<String>,
    /// The name that the field had at first.
    #[serde(rename = "type")]
    old_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    truncate: Option<bool>,
    attention_factor: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

/// The rotary embeddings of a model: one, or Gemma's global and local ones in this order.
pub(super) fn ropes(
    fields: &RopeFields<'_>,
    architecture: Architecture,
) -> Result<Vec<RopeConfig>, ConfigError> {
    let (global, local) = sets(fields)?;
    let global = fields.rope(&global, fields.base)?;
    match architecture {
        Architecture::Llama => Ok(vec![global]),
        // Where there is no set for local layers, scaling is for the global ones alone.
        Architecture::Gemma3 => {
            let local = fields.rope(&local.unwrap_or_default(), fields.local_base)?;
            Ok(vec![global, local])
        }
    }
}

/// The sets of parameters for global and, where stated, local layers.
fn sets(fields: &RopeFields<'_>) -> Result<(RawRope, Option<RawRope>), ConfigError> {
    if let Some(parameters) = fields.parameters {
        if !parameters.values().any(Value::is_object) {
            return Ok((fields.parse("rope_parameters", parameters)?, None));
        }
        if let Some(other) = parameters
            .keys()
            .find(|key| ![GLOBAL, LOCAL].contains(&key.as_str()))
        {
            let expected = format!("{GLOBAL} and {LOCAL}");
            return Err(ConfigError::invalid(
                fields.file,
                "rope_parameters",
                expected,
                other,
            ));
        }
        let set = |key: &str| match parameters.get(key).and_then(Value::as_object) {
            Some(set) => fields.parse(key, set).map(Some),
            None => Ok(None),
        };
        let global = set(GLOBAL)?.ok_or_else(|| {
            ConfigError::missing(fields.file, format!("rope_parameters.{GLOBAL}"))
        })?;
        return Ok((global, set(LOCAL)?));
    }
    match fields.scaling {
        Some(scaling) => Ok((fields.parse("rope_scaling", scaling)?, None)),
        None => Ok((RawRope::default(), None)),
    }
}

impl RopeFields<'_> {
    fn parse(&self, field: &str, set: &Map<String, Value>) -> Result<RawRope, ConfigError> {
        RawRope::deserialize(set).map_err(|error| {
            ConfigError::invalid(
                self.file,
                field,
                "a set of rope parameters",
                error.to_string(),
            )
        })
    }

    fn rope(&self, raw: &RawRope, base: f64) -> Result<RopeConfig, ConfigError> {
        let partial = raw.partial_rotary_factor.or(self.partial).unwrap_or(1.0);
        Ok(RopeConfig {
            base: raw.rope_theta.unwrap_or(base),
            // As transformers does: rounded down. The sum of checks refuses what is odd or too long.
            rotary_dim: (self.head_dim as f64 * partial) as usize,
            scaling: self.scaling(raw)?,
        })
    }

    fn scaling(&self, raw: &RawRope) -> Result<RopeScaling, ConfigError> {
        let kind = raw
            .rope_type
            .as_deref()
            .or(raw.old_type.as_deref())
            .unwrap_or("default");
        match kind {
            "default" => Ok(RopeScaling::Default),
            "linear" => Ok(RopeScaling::Linear {
                factor: self.need(raw.factor, "factor")?,
            }),
            "llama3" => Ok(RopeScaling::Llama3 {
                factor: self.need(raw.factor, "factor")?,
                low_freq_factor: self.need(raw.low_freq_factor, "low_freq_factor")?,
                high_freq_factor: self.need(raw.high_freq_factor, "high_freq_factor")?,
                original_max_seq_len: self.need(
                    raw.original_max_position_embeddings,
                    "original_max_position_embeddings",
                )?,
            }),
            "yarn" => Ok(RopeScaling::Yarn(self.yarn(raw))),
            other => Err(ConfigError::UnsupportedRope {
                file: self.file.to_path_buf(),
                found: other.to_owned(),
                supported: SUPPORTED,
            }),
        }
    }

    fn yarn(&self, raw: &RawRope) -> YarnScaling {
        // Zero stands for absent in files written by transformers.
        let stated = |value: Option<f64>| value.filter(|value| *value != 0.0);
        let original = raw
            .original_max_position_embeddings
            .unwrap_or(self.max_seq_len);
        YarnScaling {
            factor: raw
                .factor
                .unwrap_or(self.max_seq_len as f64 / original as f64),
            original_max_seq_len: original,
            beta_fast: stated(raw.beta_fast).unwrap_or(32.0),
            beta_slow: stated(raw.beta_slow).unwrap_or(1.0),
            truncates_ramp: raw.truncate.unwrap_or(true),
            attention_factor: raw.attention_factor,
            mscale: stated(raw.mscale).zip(stated(raw.mscale_all_dim)),
        }
    }

    fn need<T>(&self, value: Option<T>, field: &str) -> Result<T, ConfigError> {
        value.ok_or_else(|| {
            ConfigError::missing(self.file, format!("{field} of the rope parameters"))
        })
    }
}
