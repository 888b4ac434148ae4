//! Configuration from the metadata of a GGUF file.
//!
//! Some of it is in no file. For Gemma 3 the rest is as llama.cpp has it (`src/models/gemma3*.cpp`)
//! and as the published `config.json` files say: every sixth layer is global, local layers have
//! base 10,000 and no scaling, and scores are divided by the square root of the head dimension but
//! for the 27B model, whose `query_pre_attn_scalar` is `d_model / num_heads`.
//!
//! Norm weights of Gemma already contain the one that is added to them.
//!
//! Neighbours: [`crate::loaders::gguf`] (the file), [`super::hf`], [`super::architecture`].

use std::path::Path;

use forerun_kernels::spec::Activation;

use super::architecture::{Architecture, ArchitectureEntry, ENTRIES, by_gguf_name};
use super::error::ConfigError;
use super::names::{LayerTensor, ModelTensor, NameStyle, ROPE_FACTORS, TensorNames};
use super::rope::{RopeConfig, RopeScaling, YarnScaling};
use super::{Biases, LAYERS_MAX, LayerAttention, ModelConfig, check_size};
use crate::loaders::Checkpoint;
use crate::loaders::gguf::{GgufFile, MetaType, MetaValue, Metadata};

/// Layers of the one Gemma 3 model with its own query scale, 27B.
const GEMMA3_27B_LAYERS: usize = 62;
const SUPPORTED_ROPE: &str = "none, linear, yarn";
const EOS_KEYS: [&str; 3] = [
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
];

/// Metadata under the prefix of an architecture.
struct Keys<'a> {
    file: &'a GgufFile,
    metadata: Metadata<'a>,
    entry: &'static ArchitectureEntry,
}

/// The configuration of an open file.
///
/// # Errors
/// Any [`ConfigError`].
pub fn load(file: &GgufFile) -> Result<ModelConfig, ConfigError> {
    let metadata = file.metadata();
    let name = metadata.architecture()?;
    let entry = by_gguf_name(name).ok_or_else(|| ConfigError::UnsupportedArchitecture {
        file: file.path().to_path_buf(),
        found: name.to_owned(),
        supported: ENTRIES.map(|entry| entry.gguf_name).join(", "),
    })?;
    let keys = Keys {
        file,
        metadata,
        entry,
    };
    keys.refuse_variants()?;
    keys.build()?.check(file.path())
}

impl<'a> Keys<'a> {
    fn path(&self) -> &'a Path {
        self.file.path()
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.entry.gguf_name)
    }

    fn size(&self, name: &str) -> Result<Option<usize>, ConfigError> {
        Ok(self
            .metadata
            .u32(&self.key(name))?
            .map(|size| size as usize))
    }

    fn needed_size(&self, name: &str) -> Result<usize, ConfigError> {
        self.size(name)?
            .ok_or_else(|| self.metadata.missing(&self.key(name)).into())
    }

    fn float(&self, name: &str) -> Result<Option<f32>, ConfigError> {
        Ok(self.metadata.f32(&self.key(name))?)
    }

    /// A size that some files give for each layer. Only equal ones are supported.
    fn layer_size(&self, name: &str) -> Result<Option<usize>, ConfigError> {
        let key = self.key(name);
        if self.metadata.stored_type(&key) != Some(MetaType::Array) {
            return self.size(name);
        }
        let sizes = self.metadata.i32s(&key)?.unwrap_or_default();
        match sizes.first() {
            Some(first) if *first >= 0 && sizes.iter().all(|size| size == first) => {
                Ok(Some(*first as usize))
            }
            _ => {
                let found = format!("{} sizes that are not all equal", sizes.len());
                Err(ConfigError::invalid(
                    self.path(),
                    key,
                    "one size for all layers",
                    found,
                ))
            }
        }
    }

    fn refuse_variants(&self) -> Result<(), ConfigError> {
        let num_experts = self.size("expert_count")?.unwrap_or(0);
        if num_experts > 0 {
            let found = num_experts.to_string();
            return Err(ConfigError::invalid(
                self.path(),
                self.key("expert_count"),
                "0",
                found,
            ));
        }
        if let Some(cap) = self.float("final_logit_softcapping")? {
            let key = self.key("final_logit_softcapping");
            return Err(ConfigError::invalid(
                self.path(),
                key,
                "no such key",
                cap.to_string(),
            ));
        }
        Ok(())
    }

    fn build(&self) -> Result<ModelConfig, ConfigError> {
        let architecture = self.entry.architecture;
        let num_layers = self.needed_size("block_count")?;
        check_size(self.path(), "number of layers", num_layers, LAYERS_MAX)?;
        let d_model = self.needed_size("embedding_length")?;
        let num_heads = self
            .layer_size("attention.head_count")?
            .ok_or_else(|| self.metadata.missing(&self.key("attention.head_count")))?;
        check_size(self.path(), "number of heads", num_heads, super::SIZE_MAX)?;
        let head_dim = self.head_dim(d_model / num_heads)?;
        let names = TensorNames {
            style: NameStyle::Gguf,
            architecture,
        };
        let mut config = ModelConfig {
            architecture,
            name_style: NameStyle::Gguf,
            vocab_size: self.vocab_size(names)?,
            d_model,
            d_ff: self
                .layer_size("feed_forward_length")?
                .ok_or_else(|| self.metadata.missing(&self.key("feed_forward_length")))?,
            num_layers,
            num_heads,
            num_kv_heads: self
                .layer_size("attention.head_count_kv")?
                .unwrap_or(num_heads),
            head_dim,
            rms_epsilon: self.needed_float("attention.layer_norm_rms_epsilon")?,
            max_seq_len: self.needed_size("context_length")?,
            tie_embeddings: !self.file.contains(&names.model(ModelTensor::Output)),
            biases: self.biases(names),
            activation: match architecture {
                Architecture::Llama => Activation::Silu,
                Architecture::Gemma3 => Activation::GeluTanh,
            },
            embedding_scale: architecture.embedding_scale(d_model),
            query_scale: self.query_scale(d_model / num_heads, head_dim, num_layers)?,
            qk_norm: self.entry.has_qk_norm,
            sandwich_norms: self.entry.has_sandwich_norms,
            norm_weight_offset: 0.0,
            attention_soft_cap: self.float("attn_logit_softcapping")?,
            rope_pairing: self.entry.gguf_pairing,
            ropes: self.ropes(head_dim)?,
            layers: self.layers(num_layers)?,
            eos_ids: Vec::new(),
            bos_id: self.metadata.u32("tokenizer.ggml.bos_token_id")?,
        };
        for key in EOS_KEYS {
            config.add_eos_ids(self.metadata.u32(key)?.as_slice());
        }
        Ok(config)
    }

    fn needed_float(&self, name: &str) -> Result<f32, ConfigError> {
        self.float(name)?
            .ok_or_else(|| self.metadata.missing(&self.key(name)).into())
    }

    fn head_dim(&self, default: usize) -> Result<usize, ConfigError> {
        let head_dim = self.size("attention.key_length")?.unwrap_or(default);
        let value_dim = self.size("attention.value_length")?.unwrap_or(head_dim);
        if head_dim == value_dim {
            return Ok(head_dim);
        }
        let expected = format!("{head_dim}, the length of keys");
        let key = self.key("attention.value_length");
        Err(ConfigError::invalid(
            self.path(),
            key,
            expected,
            value_dim.to_string(),
        ))
    }

    /// The key is missing from many files; the tokenizer's list is there, or the matrix itself.
    fn vocab_size(&self, names: TensorNames) -> Result<usize, ConfigError> {
        if let Some(size) = self.size("vocab_size")? {
            return Ok(size);
        }
        if let Some(MetaValue::Array(tokens)) = self.metadata.get("tokenizer.ggml.tokens")? {
            return Ok(tokens.len());
        }
        let shape = self
            .file
            .shape_of(&names.model(ModelTensor::TokenEmbedding));
        let rows = shape.and_then(|shape| shape.first().copied());
        rows.ok_or_else(|| self.metadata.missing(&self.key("vocab_size")).into())
    }

    /// No key says so: a file has the tensors, in every layer, or not.
    fn biases(&self, names: TensorNames) -> Biases {
        let has = |tensor| self.file.contains(&names.bias(0, tensor));
        Biases {
            qkv: has(LayerTensor::Query),
            attention_output: has(LayerTensor::AttentionOutput),
            mlp: has(LayerTensor::Up),
        }
    }

    fn query_scale(
        &self,
        d_model_per_head: usize,
        head_dim: usize,
        num_layers: usize,
    ) -> Result<f32, ConfigError> {
        if let Some(scale) = self.float("attention.scale")? {
            return Ok(scale);
        }
        let scalar = match self.entry.architecture {
            Architecture::Gemma3 if num_layers == GEMMA3_27B_LAYERS => d_model_per_head,
            _ => head_dim,
        };
        Ok((1.0 / (scalar as f64).sqrt()) as f32)
    }

    fn ropes(&self, head_dim: usize) -> Result<Vec<RopeConfig>, ConfigError> {
        let rotary_dim = self.size("rope.dimension_count")?.unwrap_or(head_dim);
        let base = self.float("rope.freq_base")?;
        let scaling = self.scaling()?;
        match self.entry.architecture {
            Architecture::Llama => {
                let base = f64::from(base.unwrap_or(10_000.0));
                Ok(vec![RopeConfig {
                    base,
                    rotary_dim,
                    scaling,
                }])
            }
            Architecture::Gemma3 => {
                let base = f64::from(base.unwrap_or(1_000_000.0));
                let local = self.float("rope.freq_base_swa")?.map(f64::from);
                let local = RopeConfig {
                    base: local.unwrap_or(super::GEMMA3_LOCAL_ROPE_BASE),
                    rotary_dim,
                    scaling: RopeScaling::Default,
                };
                Ok(vec![
                    RopeConfig {
                        base,
                        rotary_dim,
                        scaling,
                    },
                    local,
                ])
            }
        }
    }

    fn scaling(&self) -> Result<RopeScaling, ConfigError> {
        let kind = self.metadata.string(&self.key("rope.scaling.type"))?;
        // The first files had only this key.
        let factor = match self.float("rope.scaling.factor")? {
            Some(factor) => Some(f64::from(factor)),
            None => self.float("rope.scale_linear")?.map(f64::from),
        };
        let has_factors = self.file.contains(ROPE_FACTORS);
        match (kind, factor) {
            (Some(other), _) if !["none", "linear", "yarn"].contains(&other) => {
                Err(ConfigError::UnsupportedRope {
                    file: self.path().to_path_buf(),
                    found: other.to_owned(),
                    supported: SUPPORTED_ROPE,
                })
            }
            (Some("linear" | "yarn"), _) | (None, Some(_)) if has_factors => {
                let found = format!("rope scaling as well as a tensor `{ROPE_FACTORS}`");
                let field = self.key("rope.scaling.type");
                Err(ConfigError::invalid(
                    self.path(),
                    field,
                    "one of the two",
                    found,
                ))
            }
            (Some("linear"), None) => Err(self
                .metadata
                .missing(&self.key("rope.scaling.factor"))
                .into()),
            (Some("linear") | None, Some(factor)) => Ok(RopeScaling::Linear { factor }),
            (Some("yarn"), factor) => self.yarn(factor),
            _ if has_factors => Ok(RopeScaling::FrequencyFactors(
                self.file.tensor(ROPE_FACTORS)?.to_f32_vec()?,
            )),
            _ => Ok(RopeScaling::Default),
        }
    }

    fn yarn(&self, factor: Option<f64>) -> Result<RopeScaling, ConfigError> {
        let factor =
            factor.ok_or_else(|| self.metadata.missing(&self.key("rope.scaling.factor")))?;
        let float = |name: &str| Ok::<_, ConfigError>(self.float(name)?.map(f64::from));
        // llama.cpp multiplies YaRN's own factor by this one.
        let attention_factor = float("rope.scaling.attn_factor")?.map(|given| {
            given
                * if factor > 1.0 {
                    0.1 * factor.ln() + 1.0
                } else {
                    1.0
                }
        });
        Ok(RopeScaling::Yarn(YarnScaling {
            factor,
            original_max_seq_len: self.needed_size("rope.scaling.original_context_length")?,
            beta_fast: float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            truncates_ramp: true,
            attention_factor,
            mscale: None,
        }))
    }

    fn layers(&self, num_layers: usize) -> Result<Vec<LayerAttention>, ConfigError> {
        let global = LayerAttention {
            window: None,
            rope: 0,
        };
        match self.entry.architecture {
            Architecture::Llama => Ok(vec![global; num_layers]),
            Architecture::Gemma3 => {
                let window = self.needed_size("attention.sliding_window")?;
                let local = LayerAttention {
                    window: Some(window),
                    rope: 1,
                };
                let is_global = self.is_global(num_layers)?;
                Ok(is_global
                    .into_iter()
                    .map(|all| if all { global } else { local })
                    .collect())
            }
        }
    }

    /// Newer files state the pattern: as a period, or as a flag "sliding" for each layer.
    fn is_global(&self, num_layers: usize) -> Result<Vec<bool>, ConfigError> {
        let key = self.key("attention.sliding_window_pattern");
        if self.metadata.stored_type(&key) != Some(MetaType::Array) {
            let pattern = self
                .metadata
                .u32(&key)?
                .map_or(super::GEMMA3_PATTERN, |p| p as usize);
            check_size(self.path(), &key, pattern, super::SIZE_MAX)?;
            return Ok((1..=num_layers)
                .map(|number| number.is_multiple_of(pattern))
                .collect());
        }
        let slides = self.metadata.bools(&key)?.unwrap_or_default();
        if slides.len() != num_layers {
            let expected = format!("{num_layers} flags, one for each layer");
            return Err(ConfigError::invalid(
                self.path(),
                key,
                expected,
                slides.len().to_string(),
            ));
        }
        Ok(slides.into_iter().map(|slides| !slides).collect())
    }
}
