//! The configuration of a model, the same whatever file it came from.
//!
//! [`hf`] reads `config.json` in both of its styles, [`gguf`] reads metadata; both give a
//! [`ModelConfig`], which is all that the decoder knows about a model besides its tensors.
//!
//! Neighbours: [`crate::loaders`] (files), [`names`] (tensor names), [`rope`] (frequencies).

pub mod architecture;
pub mod error;
pub mod gguf;
pub mod hf;
mod hf_rope;
pub mod names;
pub mod rope;

#[cfg(test)]
mod tests;

use std::path::Path;

use forerun_kernels::spec::{Activation, RopePairing};

use self::names::{ModelTensor, NameStyle, TensorNames};
use self::rope::{RopeConfig, RopeScaling};
use crate::loaders::Checkpoint;

pub use self::architecture::Architecture;
pub use self::error::ConfigError;

/// More layers than any model has: a list of them is made before anything else is checked.
const LAYERS_MAX: usize = 4096;
/// Above every size of a model, and small enough that products of two do not overflow.
const SIZE_MAX: usize = 1 << 31;

/// Rope base of Gemma 3's local layers where a file does not say.
const GEMMA3_LOCAL_ROPE_BASE: f64 = 10_000.0;
/// One layer in so many of Gemma 3 is global where a file does not say.
const GEMMA3_PATTERN: usize = 6;

/// Everything that decides the computation, apart from weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Kind of model.
    pub architecture: Architecture,
    /// How the checkpoint names its tensors.
    pub name_style: NameStyle,
    /// V.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Width of the MLP.
    pub d_ff: usize,
    /// Decoder layers.
    pub num_layers: usize,
    /// H, query heads.
    pub num_heads: usize,
    /// G, key and value heads; divides H.
    pub num_kv_heads: usize,
    /// D, as stated by the file; need not be `d_model / num_heads`.
    pub head_dim: usize,
    /// Added to the mean square in every norm.
    pub rms_epsilon: f32,
    /// Longest context, in tokens.
    pub max_seq_len: usize,
    /// Whether the output matrix is the embedding. See [`ModelConfig::output_head`].
    pub tie_embeddings: bool,
    /// Which projections have biases.
    pub biases: Biases,
    /// Gate of the MLP.
    pub activation: Activation,
    /// Factor on the rows of the embedding.
    pub embedding_scale: f32,
    /// Factor on q k, `1 / sqrt(head_dim)` unless the model says otherwise.
    pub query_scale: f32,
    /// RMS norm on each head of q and k.
    pub qk_norm: bool,
    /// Norms after attention and after the MLP, besides those before them.
    pub sandwich_norms: bool,
    /// To be added to every norm weight as stored, when it is loaded.
    pub norm_weight_offset: f32,
    /// Attention scores become `cap * tanh(score / cap)`.
    pub attention_soft_cap: Option<f32>,
    /// Which values of a head rotate together in this checkpoint.
    pub rope_pairing: RopePairing,
    /// The different rotary embeddings of the model.
    pub ropes: Vec<RopeConfig>,
    /// One for each layer.
    pub layers: Vec<LayerAttention>,
    /// Tokens that end a text, sorted.
    pub eos_ids: Vec<u32>,
    /// Token that begins a text. Whether it is prepended is for the tokenizer to say.
    pub bos_id: Option<u32>,
}

/// What one layer's attention sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerAttention {
    /// A token sees itself and the `window - 1` before it; `None` sees all.
    pub window: Option<usize>,
    /// Place in [`ModelConfig::ropes`].
    pub rope: usize,
}

/// Which projections add a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Query, key and value.
    pub qkv: bool,
    /// Output of attention.
    pub attention_output: bool,
    /// Gate, up and down.
    pub mlp: bool,
}

/// Which matrix gives the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputHead {
    /// The embedding.
    Tied,
    /// The embedding, although the checkpoint holds another matrix too: worth a warning.
    TiedDespiteMatrix,
    /// A matrix of its own.
    Separate,
}

impl ModelConfig {
    /// The windows of the KV groups: layers that see the same share block tables. The unlimited one
    /// comes first.
    pub fn kv_windows(&self) -> Vec<Option<usize>> {
        let mut windows: Vec<_> = self.layers.iter().map(|layer| layer.window).collect();
        windows.sort_unstable();
        windows.dedup();
        windows
    }

    /// Names of the tensors.
    pub fn names(&self) -> TensorNames {
        TensorNames {
            style: self.name_style,
            architecture: self.architecture,
        }
    }

    /// Adds tokens that end a text, from another source. No source replaces another.
    pub fn add_eos_ids(&mut self, ids: &[u32]) {
        self.eos_ids.extend_from_slice(ids);
        self.eos_ids.sort_unstable();
        self.eos_ids.dedup();
    }

    /// Which matrix gives the logits: the configuration decides, if the checkpoint allows. To tie a
    /// model whose configuration is wrong, set [`ModelConfig::tie_embeddings`] first.
    ///
    /// A needless output matrix counts as read afterwards.
    ///
    /// # Errors
    /// [`ConfigError::MissingOutputMatrix`].
    pub fn output_head(&self, checkpoint: &dyn Checkpoint) -> Result<OutputHead, ConfigError> {
        let tensor = self.names().model(ModelTensor::Output);
        match (self.tie_embeddings, checkpoint.contains(&tensor)) {
            (true, false) => Ok(OutputHead::Tied),
            (false, true) => Ok(OutputHead::Separate),
            (false, false) => {
                let location = checkpoint.location().to_path_buf();
                Err(ConfigError::MissingOutputMatrix { location, tensor })
            }
            (true, true) => {
                let embedding = self.names().model(ModelTensor::TokenEmbedding);
                let same =
                    checkpoint.tensor(&tensor)?.bytes == checkpoint.tensor(&embedding)?.bytes;
                Ok(if same {
                    OutputHead::Tied
                } else {
                    OutputHead::TiedDespiteMatrix
                })
            }
        }
    }

    /// Checks that sizes are possible and fit each other.
    fn check(self, file: &Path) -> Result<Self, ConfigError> {
        let sizes = [
            ("vocabulary size", self.vocab_size, SIZE_MAX),
            ("model width", self.d_model, SIZE_MAX),
            ("MLP width", self.d_ff, SIZE_MAX),
            ("number of layers", self.num_layers, LAYERS_MAX),
            ("number of heads", self.num_heads, SIZE_MAX),
            ("number of key-value heads", self.num_kv_heads, SIZE_MAX),
            ("head dimension", self.head_dim, SIZE_MAX),
            ("context length", self.max_seq_len, SIZE_MAX),
        ];
        for (field, size, max) in sizes {
            check_size(file, field, size, max)?;
        }
        if !self.num_heads.is_multiple_of(self.num_kv_heads) {
            let expected = format!("a divisor of the {} query heads", self.num_heads);
            let found = self.num_kv_heads.to_string();
            return Err(ConfigError::invalid(
                file,
                "number of key-value heads",
                expected,
                found,
            ));
        }
        let factors = [
            ("RMS norm epsilon", self.rms_epsilon),
            ("embedding scale", self.embedding_scale),
            ("query scale", self.query_scale),
            ("attention soft cap", self.attention_soft_cap.unwrap_or(1.0)),
        ];
        for (field, factor) in factors {
            check_above(file, field, f64::from(factor), 0.0)?;
        }
        for layer in &self.layers {
            check_size(file, "sliding window", layer.window.unwrap_or(1), SIZE_MAX)?;
        }
        self.ropes
            .iter()
            .try_for_each(|rope| check_rope(file, rope, self.head_dim))?;
        Ok(self)
    }
}

fn check_size(file: &Path, field: &str, size: usize, max: usize) -> Result<(), ConfigError> {
    if (1..=max).contains(&size) {
        return Ok(());
    }
    Err(ConfigError::invalid(
        file,
        field,
        format!("1 to {max}"),
        size.to_string(),
    ))
}

fn check_above(file: &Path, field: &str, value: f64, min: f64) -> Result<(), ConfigError> {
    if value.is_finite() && value > min {
        return Ok(());
    }
    Err(ConfigError::invalid(
        file,
        field,
        format!("a number above {min}"),
        value.to_string(),
    ))
}

fn check_rope(file: &Path, rope: &RopeConfig, head_dim: usize) -> Result<(), ConfigError> {
    if !rope.rotary_dim.is_multiple_of(2) || !(2..=head_dim).contains(&rope.rotary_dim) {
        let expected = format!("an even number from 2 to {head_dim}");
        return Err(ConfigError::invalid(
            file,
            "rotary values of a head",
            expected,
            rope.rotary_dim.to_string(),
        ));
    }
    check_above(file, "rope base", rope.base, 1.0)?;
    match &rope.scaling {
        RopeScaling::Default => Ok(()),
        RopeScaling::Linear { factor } => check_above(file, "rope factor", *factor, 0.0),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_seq_len,
        } => {
            check_above(file, "rope factor", *factor, 0.0)?;
            check_above(file, "rope low_freq_factor", *low_freq_factor, 0.0)?;
            check_above(
                file,
                "rope high_freq_factor",
                *high_freq_factor,
                *low_freq_factor,
            )?;
            check_size(
                file,
                "rope original context",
                *original_max_seq_len,
                SIZE_MAX,
            )
        }
        RopeScaling::Yarn(yarn) => {
            check_above(file, "rope factor", yarn.factor, 0.0)?;
            check_above(file, "rope beta_slow", yarn.beta_slow, 0.0)?;
            check_above(file, "rope beta_fast", yarn.beta_fast, yarn.beta_slow)?;
            check_above(file, "rope attention factor", rope.magnitude(), 0.0)?;
            check_size(
                file,
                "rope original context",
                yarn.original_max_seq_len,
                SIZE_MAX,
            )
        }
        RopeScaling::FrequencyFactors(factors) => {
            if factors.len() != rope.rotary_dim / 2 {
                let expected = format!("{} values", rope.rotary_dim / 2);
                let found = factors.len().to_string();
                return Err(ConfigError::invalid(
                    file,
                    names::ROPE_FACTORS,
                    expected,
                    found,
                ));
            }
            factors.iter().try_for_each(|factor| {
                check_above(file, names::ROPE_FACTORS, f64::from(*factor), 0.0)
            })
        }
    }
}
