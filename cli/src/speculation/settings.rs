//! What was asked for by flags and by `--speculative-config`, as one.
//!
//! Neighbours: `session.rs` opens the draft model and makes the engine's configuration of it.

use std::fmt::Display;

use anyhow::{Context, Result, anyhow, bail};
use forerun_engine::{SpecMethod, SpeculationConfig, SpeculationParams, Verification};
use serde_json::Value;

use crate::args::{MethodArg, SpeculationArgs};

/// Keys of vLLM's that have a meaning here.
const KEYS: [&str; 6] = [
    "method",
    "model",
    "num_speculative_tokens",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "rejection_sample_method",
];

/// Keys of vLLM's that mean nothing here: batches are ragged, one device runs everything, and a draft
/// model is loaded as any other.
const MEANINGLESS_KEYS: [&str; 21] = [
    "attention_backend",
    "code_revision",
    "disable_by_batch_size",
    "disable_padded_drafter_batch",
    "draft_load_config",
    "draft_sample_method",
    "draft_tensor_parallel_size",
    "enforce_eager",
    "max_model_len",
    "moe_backend",
    "parallel_drafting",
    "quantization",
    "revision",
    "speculative_token_tree",
    "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor",
    "suffix_decoding_max_tree_depth",
    "suffix_decoding_min_token_prob",
    "target_model_config",
    "target_parallel_config",
    "use_local_argmax_reduction",
];

/// Longest draft that can be asked for.
const DRAFT_LEN_MAX: u32 = 64;
/// Longest n-gram that can be looked up.
const NGRAM_LEN_MAX: u32 = 64;

/// Who drafts, how long, and how drafts are verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    method: Option<SpecMethod>,
    /// The draft model's name or path.
    pub(crate) model: Option<String>,
    num_tokens: Option<u32>,
    width: Option<u32>,
    ngram_lens: (Option<u32>, Option<u32>),
    verification: Option<Verification>,
    /// Layers that draft with layer skip.
    pub(crate) num_layers: Option<u32>,
}

impl Settings {
    /// Reads the flags. Gives notes for the user, about keys that mean nothing here.
    ///
    /// # Errors
    /// What is wrong, unknown, or said twice and differently.
    pub(crate) fn of(args: &SpeculationArgs) -> Result<(Self, Vec<String>)> {
        let (from_json, notes) = match &args.speculative_config {
            Some(text) => Self::of_json(text)?,
            None => (Self::default(), Vec::new()),
        };
        let method = args.spec_method.map(SpecMethod::from);
        let settings = Self {
            method: one("--spec-method", method, "method", from_json.method)?,
            model: one(
                "--spec-model",
                args.spec_model.clone(),
                "model",
                from_json.model,
            )?,
            num_tokens: one(
                "--spec-tokens",
                args.spec_tokens,
                "num_speculative_tokens",
                from_json.num_tokens,
            )?,
            verification: one(
                "--spec-verify",
                args.spec_verify.map(Verification::from),
                "rejection_sample_method",
                from_json.verification,
            )?,
            width: args.spec_tree,
            ngram_lens: from_json.ngram_lens,
            num_layers: args.spec_layers,
        };
        settings.check()?;
        Ok((settings, notes))
    }

    fn check(&self) -> Result<()> {
        let has_model = self.model.is_some();
        match self.method {
            Some(SpecMethod::DraftModel) if !has_model => {
                bail!("the method draft-model needs a model: name one with --spec-model")
            }
            Some(SpecMethod::Ngram | SpecMethod::Suffix | SpecMethod::LayerSkip) if has_model => {
                bail!(
                    "--spec-model is for the methods draft-model and auto: leave it out, or the method"
                )
            }
            _ => Ok(()),
        }
    }

    /// Settings under which everything is opened that these methods need: a bench compares several.
    ///
    /// # Errors
    /// A draft model that is not named, or a method that was named besides them.
    pub(crate) fn for_methods(mut self, methods: &[MethodArg]) -> Result<Self> {
        let has = |method| methods.contains(&method);
        if self.method.is_some() {
            bail!("the bench compares drafters: name them with --methods, and no other method");
        }
        if has(MethodArg::DraftModel) && self.model.is_none() {
            bail!("the method draft-model needs a model: name one with --spec-model");
        }
        if has(MethodArg::LayerSkip) {
            self.method = Some(SpecMethod::LayerSkip);
        }
        Ok(self)
    }

    fn of_json(text: &str) -> Result<(Self, Vec<String>)> {
        let value: Value =
            serde_json::from_str(text).context("--speculative-config is not JSON")?;
        let Value::Object(map) = value else {
            bail!("--speculative-config must be a JSON object, found {value}");
        };
        let mut settings = Self::default();
        let mut notes = Vec::new();
        for (key, value) in map {
            if MEANINGLESS_KEYS.contains(&key.as_str()) {
                notes.push(format!(
                    "speculative-config: {key} means nothing here, it is ignored"
                ));
                continue;
            }
            if value.is_null() && KEYS.contains(&key.as_str()) {
                continue;
            }
            settings.set(&key, &value)?;
        }
        let (min, max) = settings.ngram_lens;
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            bail!("speculative-config: prompt_lookup_min is {min}, above prompt_lookup_max, {max}");
        }
        Ok((settings, notes))
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<()> {
        match key {
            "method" => self.method = Some(method(value)?),
            "model" => self.model = Some(text(key, value)?.to_owned()),
            "num_speculative_tokens" => {
                self.num_tokens = Some(number(key, value, 0, DRAFT_LEN_MAX)?);
            }
            "prompt_lookup_min" => {
                self.ngram_lens.0 = Some(number(key, value, 1, NGRAM_LEN_MAX)?);
            }
            "prompt_lookup_max" => {
                self.ngram_lens.1 = Some(number(key, value, 1, NGRAM_LEN_MAX)?);
            }
            "rejection_sample_method" => self.verification = Some(verification(value)?),
            _ => bail!(
                "speculative-config: unknown key {key:?}; valid keys are {}, and, without effect, {}",
                KEYS.join(", "),
                MEANINGLESS_KEYS.join(", ")
            ),
        }
        Ok(())
    }

    /// Changes the configuration of an engine accordingly.
    pub(crate) fn apply(&self, config: &mut SpeculationConfig) {
        config.method = self.method.unwrap_or(SpecMethod::Auto);
        config.num_tokens = self.num_tokens;
        if let Some(num_tokens) = self.num_tokens {
            config.num_tokens_max = config.num_tokens_max.max(num_tokens);
        }
        config.width_max = self.width.unwrap_or(config.width_max);
        let (min, max) = self.ngram_lens;
        config.ngram_len_min = min.unwrap_or(config.ngram_len_min.min(max.unwrap_or(u32::MAX)));
        config.ngram_len_max = max.unwrap_or(config.ngram_len_max.max(config.ngram_len_min));
    }

    /// Whether the target's first layers are to draft.
    pub(crate) fn wants_layers(&self) -> bool {
        self.method == Some(SpecMethod::LayerSkip)
    }

    /// Makes [`Verification::SharedNoise`] the default for requests without a seed of their own.
    pub(crate) fn prefer_shared_noise(&mut self) {
        self.verification.get_or_insert(Verification::SharedNoise);
    }

    /// What a request gets that says nothing else.
    pub(crate) fn params(&self, has_seed: bool) -> SpeculationParams {
        SpeculationParams {
            verification: self.verification(has_seed),
            ..SpeculationParams::default()
        }
    }

    /// How drafts of a sampling request are verified.
    pub(crate) fn verification(&self, has_seed: bool) -> Verification {
        self.verification.unwrap_or(if has_seed {
            Verification::SharedNoise
        } else {
            Verification::Rejection
        })
    }
}

/// The method of a name, vLLM's or ours.
pub(crate) fn method_of(name: &str) -> Option<SpecMethod> {
    let method = match name {
        "none" | "off" => MethodArg::None,
        "ngram" | "ngram_gpu" => MethodArg::Ngram,
        "suffix" => MethodArg::Suffix,
        "draft_model" | "draft-model" => MethodArg::DraftModel,
        "layer-skip" | "layer_skip" => MethodArg::LayerSkip,
        "auto" => MethodArg::Auto,
        _ => return None,
    };
    Some(method.into())
}

/// The names that [`method_of`] understands.
pub(crate) const METHODS: &str = "none, ngram, suffix, draft_model, layer-skip, auto";

fn method(value: &Value) -> Result<SpecMethod> {
    let name = text("method", value)?;
    method_of(name).ok_or_else(|| {
        anyhow!("speculative-config: method is {name:?}, valid methods are {METHODS}")
    })
}

/// The verification of a name, vLLM's or ours.
pub(crate) fn verification_of(name: &str) -> Option<Verification> {
    match name {
        "shared-noise" | "shared_noise" | "strict" => Some(Verification::SharedNoise),
        "rejection" | "standard" | "probabilistic" => Some(Verification::Rejection),
        "block" => Some(Verification::Block),
        _ => None,
    }
}

/// The names that [`verification_of`] understands.
pub(crate) const VERIFICATIONS: &str =
    "shared-noise (strict), rejection (standard, probabilistic), block";

fn verification(value: &Value) -> Result<Verification> {
    let name = text("rejection_sample_method", value)?;
    verification_of(name).ok_or_else(|| {
        anyhow!(
            "speculative-config: rejection_sample_method is {name:?}, valid are {VERIFICATIONS}"
        )
    })
}

fn text<'a>(key: &str, value: &'a Value) -> Result<&'a str> {
    value
        .as_str()
        .ok_or_else(|| anyhow!("speculative-config: {key} is {value}, expected a text"))
}

fn number(key: &str, value: &Value, least: u32, most: u32) -> Result<u32> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| {
            anyhow!(
                "speculative-config: {key} is {value}, expected a whole number from {least} to {most}"
            )
        })
}

/// What a flag or a key says, if they do not differ.
fn one<T: PartialEq + std::fmt::Debug>(
    flag: impl Display,
    typed: Option<T>,
    key: &str,
    configured: Option<T>,
) -> Result<Option<T>> {
    match (typed, configured) {
        (Some(typed), Some(configured)) if typed != configured => bail!(
            "{flag} says {typed:?} and {key} of --speculative-config says {configured:?}: \
             leave one of them out"
        ),
        (typed, configured) => Ok(typed.or(configured)),
    }
}
