//! `config.json` of Hugging Face models, in both of its styles:
//!
//! | | published checkpoints | transformers 5 |
//! |---|---|---|
//! | rope base | `rope_theta` | `rope_parameters.rope_theta` |
//! | rope scaling | `rope_scaling` (`type` or `rope_type`) | `rope_parameters` |
//! | Gemma's local base | `rope_local_base_freq` | `rope_parameters.sliding_attention.rope_theta` |
//! | windows | `sliding_window_pattern` | `layer_types` |
//!
//! Defaults are those of transformers' configuration classes, since `config.json` leaves out what
//! equals them. `generation_config.json` adds tokens that end a text.
//!
//! Neighbours: [`super::hf_rope`] (the rope fields), [`super::architecture`], [`super::gguf`].

use std::path::Path;

use forerun_kernels::spec::{Activation, RopePairing};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::architecture::{Architecture, ArchitectureEntry, ENTRIES, by_hf_model_type};
use super::error::ConfigError;
use super::hf_rope::{RopeFields, ropes};
use super::names::NameStyle;
use super::{Biases, LAYERS_MAX, LayerAttention, ModelConfig, check_size};
use crate::loaders::LoadError;

/// Fields of `config.json` that decide the computation.
#[derive(Debug, Deserialize)]
struct RawConfig {
    model_type: Option<String>,
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    rms_norm_eps: Option<f32>,
    max_position_embeddings: Option<usize>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    hidden_act: Option<String>,
    hidden_activation: Option<String>,
    rope_theta: Option<f64>,
    rope_local_base_freq: Option<f64>,
    rope_scaling: Option<Map<String, Value>>,
    rope_parameters: Option<Map<String, Value>>,
    partial_rotary_factor: Option<f64>,
    sliding_window: Option<usize>,
    sliding_window_pattern: Option<usize>,
    /// The same under the name that transformers 5 gives it; files may hold both.
    #[serde(rename = "_sliding_window_pattern")]
    private_pattern: Option<usize>,
    layer_types: Option<Vec<String>>,
    query_pre_attn_scalar: Option<f64>,
    attn_logit_softcapping: Option<f32>,
    final_logit_softcapping: Option<f32>,
    use_bidirectional_attention: Option<bool>,
    quantization_config: Option<Value>,
    eos_token_id: Option<TokenIds>,
    bos_token_id: Option<u32>,
}

/// One id or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TokenIds {
    One(u32),
    Several(Vec<u32>),
}

impl TokenIds {
    fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Several(ids) => ids,
        }
    }
}

/// The field of `generation_config.json` that is read.
#[derive(Debug, Deserialize)]
struct RawGenerationConfig {
    eos_token_id: Option<TokenIds>,
}

/// What transformers assumes for fields that a file leaves out.
struct Defaults {
    head_dim: Option<usize>,
    max_seq_len: usize,
    activation: &'static str,
    rope_base: f64,
}

/// Reads `config.json` and, if there is one, `generation_config.json` of a model's folder.
///
/// # Errors
/// Any [`ConfigError`]; an absent `config.json` is [`LoadError::Io`].
pub fn load(folder: &Path) -> Result<ModelConfig, ConfigError> {
    let file = folder.join("config.json");
    let json = std::fs::read(&file).map_err(|source| LoadError::io(&file, source))?;
    let mut config = parse(&file, &json)?;
    let file = folder.join("generation_config.json");
    if file.is_file() {
        let json = std::fs::read(&file).map_err(|source| LoadError::io(&file, source))?;
        config.add_eos_ids(&parse_generation_config(&file, &json)?);
    }
    Ok(config)
}

/// Parses `config.json`; `file` is for messages.
///
/// # Errors
/// Any [`ConfigError`].
pub fn parse(file: &Path, json: &[u8]) -> Result<ModelConfig, ConfigError> {
    let raw: RawConfig = serde_json::from_slice(json).map_err(|source| ConfigError::Json {
        file: file.to_path_buf(),
        source,
    })?;
    let name = raw
        .model_type
        .as_deref()
        .ok_or_else(|| ConfigError::missing(file, "model_type"))?;
    let entry = by_hf_model_type(name).ok_or_else(|| ConfigError::UnsupportedArchitecture {
        file: file.to_path_buf(),
        found: name.to_owned(),
        supported: ENTRIES.map(|entry| entry.hf_model_type).join(", "),
    })?;
    refuse_variants(file, &raw)?;
    build(file, &raw, entry)?.check(file)
}

/// The tokens that end a text according to `generation_config.json`.
///
/// # Errors
/// [`ConfigError::Json`].
pub fn parse_generation_config(file: &Path, json: &[u8]) -> Result<Vec<u32>, ConfigError> {
    let raw: RawGenerationConfig =
        serde_json::from_slice(json).map_err(|source| ConfigError::Json {
            file: file.to_path_buf(),
            source,
        })?;
    Ok(raw
        .eos_token_id
        .map_or_else(Vec::new, |ids| ids.as_slice().to_vec()))
}

/// Settings that would change the computation in ways the decoder does not know.
fn refuse_variants(file: &Path, raw: &RawConfig) -> Result<(), ConfigError> {
    if let Some(method) = &raw.quantization_config {
        let expected = "none (quantised weights are read from GGUF files)";
        let found = method.get("quant_method").unwrap_or(method).to_string();
        return Err(ConfigError::invalid(
            file,
            "quantization_config",
            expected,
            found,
        ));
    }
    if let Some(cap) = raw.final_logit_softcapping {
        let found = cap.to_string();
        return Err(ConfigError::invalid(
            file,
            "final_logit_softcapping",
            "null",
            found,
        ));
    }
    if raw.use_bidirectional_attention == Some(true) {
        return Err(ConfigError::invalid(
            file,
            "use_bidirectional_attention",
            "false",
            "true",
        ));
    }
    Ok(())
}

fn defaults(architecture: Architecture) -> Defaults {
    match architecture {
        Architecture::Llama => Defaults {
            head_dim: None,
            max_seq_len: 2048,
            activation: "silu",
            rope_base: 10_000.0,
        },
        Architecture::Gemma3 => Defaults {
            head_dim: Some(256),
            max_seq_len: 131_072,
            activation: "gelu_pytorch_tanh",
            rope_base: 1_000_000.0,
        },
    }
}

fn build(
    file: &Path,
    raw: &RawConfig,
    entry: &ArchitectureEntry,
) -> Result<ModelConfig, ConfigError> {
    let need =
        |value: Option<usize>, field: &str| value.ok_or_else(|| ConfigError::missing(file, field));
    let defaults = defaults(entry.architecture);
    let d_model = need(raw.hidden_size, "hidden_size")?;
    let num_heads = need(raw.num_attention_heads, "num_attention_heads")?;
    let num_layers = need(raw.num_hidden_layers, "num_hidden_layers")?;
    check_size(file, "num_attention_heads", num_heads, super::SIZE_MAX)?;
    check_size(file, "num_hidden_layers", num_layers, LAYERS_MAX)?;
    let head_dim = raw
        .head_dim
        .or(defaults.head_dim)
        .unwrap_or(d_model / num_heads);
    let max_seq_len = raw.max_position_embeddings.unwrap_or(defaults.max_seq_len);
    let layers = layers(file, raw, entry.architecture, num_layers)?;
    let rope_fields = RopeFields {
        file,
        base: raw.rope_theta.unwrap_or(defaults.rope_base),
        local_base: raw
            .rope_local_base_freq
            .unwrap_or(super::GEMMA3_LOCAL_ROPE_BASE),
        scaling: raw.rope_scaling.as_ref(),
        parameters: raw.rope_parameters.as_ref(),
        partial: raw.partial_rotary_factor,
        head_dim,
        max_seq_len,
    };
    let ropes = ropes(&rope_fields, entry.architecture)?;
    let activation = raw
        .hidden_activation
        .as_deref()
        .or(raw.hidden_act.as_deref());
    let mut config = ModelConfig {
        architecture: entry.architecture,
        name_style: NameStyle::HuggingFace,
        vocab_size: need(raw.vocab_size, "vocab_size")?,
        d_model,
        d_ff: need(raw.intermediate_size, "intermediate_size")?,
        num_layers,
        num_heads,
        num_kv_heads: raw.num_key_value_heads.unwrap_or(num_heads),
        head_dim,
        rms_epsilon: raw.rms_norm_eps.unwrap_or(1e-6),
        max_seq_len,
        tie_embeddings: raw.tie_word_embeddings.unwrap_or(entry.ties_embeddings),
        biases: biases(raw),
        activation: parse_activation(file, activation.unwrap_or(defaults.activation))?,
        embedding_scale: entry.architecture.embedding_scale(d_model),
        query_scale: query_scale(raw, entry.architecture, head_dim),
        qk_norm: entry.has_qk_norm,
        sandwich_norms: entry.has_sandwich_norms,
        norm_weight_offset: entry.hf_norm_offset,
        attention_soft_cap: raw.attn_logit_softcapping,
        rope_pairing: RopePairing::Halves,
        ropes,
        layers,
        eos_ids: Vec::new(),
        bos_id: raw.bos_token_id,
    };
    config.add_eos_ids(raw.eos_token_id.as_ref().map_or(&[], TokenIds::as_slice));
    Ok(config)
}

fn biases(raw: &RawConfig) -> Biases {
    let attention = raw.attention_bias.unwrap_or(false);
    Biases {
        qkv: attention,
        attention_output: attention,
        mlp: raw.mlp_bias.unwrap_or(false),
    }
}

fn parse_activation(file: &Path, name: &str) -> Result<Activation, ConfigError> {
    match name {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        _ => Err(ConfigError::invalid(
            file,
            "hidden_act",
            "silu or gelu_pytorch_tanh",
            name,
        )),
    }
}

/// Llama has no scalar of its own; Gemma's default is 256 whatever the head dimension.
fn query_scale(raw: &RawConfig, architecture: Architecture, head_dim: usize) -> f32 {
    let scalar = match architecture {
        Architecture::Llama => head_dim as f64,
        Architecture::Gemma3 => raw.query_pre_attn_scalar.unwrap_or(256.0),
    };
    (1.0 / scalar.sqrt()) as f32
}

fn layers(
    file: &Path,
    raw: &RawConfig,
    architecture: Architecture,
    num_layers: usize,
) -> Result<Vec<LayerAttention>, ConfigError> {
    let global = LayerAttention {
        window: None,
        rope: 0,
    };
    let is_global = match (&raw.layer_types, architecture) {
        (Some(types), _) => layer_types(file, types, num_layers)?,
        (None, Architecture::Llama) => vec![true; num_layers],
        (None, Architecture::Gemma3) => {
            let pattern = raw.sliding_window_pattern.or(raw.private_pattern);
            let pattern = pattern.unwrap_or(super::GEMMA3_PATTERN);
            check_size(file, "sliding_window_pattern", pattern, super::SIZE_MAX)?;
            (1..=num_layers)
                .map(|number| number.is_multiple_of(pattern))
                .collect()
        }
    };
    if architecture == Architecture::Llama {
        if is_global.contains(&false) {
            let expected = "full_attention in every layer of a llama model";
            return Err(ConfigError::invalid(
                file,
                "layer_types",
                expected,
                "sliding_attention",
            ));
        }
        return Ok(vec![global; num_layers]);
    }
    let local = LayerAttention {
        window: Some(raw.sliding_window.unwrap_or(4096)),
        rope: 1,
    };
    Ok(is_global
        .into_iter()
        .map(|is_global| if is_global { global } else { local })
        .collect())
}

fn layer_types(file: &Path, types: &[String], num_layers: usize) -> Result<Vec<bool>, ConfigError> {
    if types.len() != num_layers {
        let expected = format!("{num_layers} entries, one for each layer");
        return Err(ConfigError::invalid(
            file,
            "layer_types",
            expected,
            types.len().to_string(),
        ));
    }
    let parse = |name: &String| match name.as_str() {
        "full_attention" => Ok(true),
        "sliding_attention" => Ok(false),
        other => {
            let expected = "full_attention or sliding_attention";
            Err(ConfigError::invalid(file, "layer_types", expected, other))
        }
    };
    types.iter().map(parse).collect()
}
