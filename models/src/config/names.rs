//! What the tensors of a model are called in each kind of file: a table.
//!
//! Neighbours: [`super::architecture`], the decoder (who asks for tensors by role).

use super::architecture::Architecture;

/// Which convention the names in a checkpoint follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameStyle {
    /// `model.layers.0.self_attn.q_proj.weight`.
    HuggingFace,
    /// `blk.0.attn_q.weight`.
    Gguf,
}

/// A tensor that a model has once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelTensor {
    /// `[vocab_size, d_model]`.
    TokenEmbedding,
    /// `[d_model]`, before the output matrix.
    OutputNorm,
    /// `[vocab_size, d_model]`; absent where embeddings are tied.
    Output,
}

/// A tensor that each layer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerTensor {
    /// `[d_model]`, before attention.
    AttentionNorm,
    /// `[num_heads * head_dim, d_model]`.
    Query,
    /// `[num_kv_heads * head_dim, d_model]`.
    Key,
    /// `[num_kv_heads * head_dim, d_model]`.
    Value,
    /// `[head_dim]`, on each head of q.
    QueryNorm,
    /// `[head_dim]`, on each head of k.
    KeyNorm,
    /// `[d_model, num_heads * head_dim]`.
    AttentionOutput,
    /// `[d_model]`, after attention, before the residual sum.
    PostAttentionNorm,
    /// `[d_model]`, before the MLP.
    MlpNorm,
    /// `[d_ff, d_model]`.
    Gate,
    /// `[d_ff, d_model]`.
    Up,
    /// `[d_model, d_ff]`.
    Down,
    /// `[d_model]`, after the MLP, before the residual sum.
    PostMlpNorm,
}

/// Once per model: role, Hugging Face name, GGUF name.
const MODEL_NAMES: [(ModelTensor, &str, &str); 3] = [
    (
        ModelTensor::TokenEmbedding,
        "model.embed_tokens",
        "token_embd",
    ),
    (ModelTensor::OutputNorm, "model.norm", "output_norm"),
    (ModelTensor::Output, "lm_head", "output"),
];

/// Per layer: role, Hugging Face name after `model.layers.N.`, GGUF name after `blk.N.`.
const LAYER_NAMES: [(LayerTensor, &str, &str); 13] = [
    (LayerTensor::AttentionNorm, "input_layernorm", "attn_norm"),
    (LayerTensor::Query, "self_attn.q_proj", "attn_q"),
    (LayerTensor::Key, "self_attn.k_proj", "attn_k"),
    (LayerTensor::Value, "self_attn.v_proj", "attn_v"),
    (LayerTensor::QueryNorm, "self_attn.q_norm", "attn_q_norm"),
    (LayerTensor::KeyNorm, "self_attn.k_norm", "attn_k_norm"),
    (
        LayerTensor::AttentionOutput,
        "self_attn.o_proj",
        "attn_output",
    ),
    (
        LayerTensor::PostAttentionNorm,
        "post_attention_layernorm",
        "post_attention_norm",
    ),
    (
        LayerTensor::MlpNorm,
        "pre_feedforward_layernorm",
        "ffn_norm",
    ),
    (LayerTensor::Gate, "mlp.gate_proj", "ffn_gate"),
    (LayerTensor::Up, "mlp.up_proj", "ffn_up"),
    (LayerTensor::Down, "mlp.down_proj", "ffn_down"),
    (
        LayerTensor::PostMlpNorm,
        "post_feedforward_layernorm",
        "post_ffw_norm",
    ),
];

/// Hugging Face names of one architecture that differ from [`LAYER_NAMES`].
const HF_EXCEPTIONS: [(Architecture, LayerTensor, &str); 1] = [
    // Without sandwich norms the norm that follows attention is the one before the MLP.
    (
        Architecture::Llama,
        LayerTensor::MlpNorm,
        "post_attention_layernorm",
    ),
];

/// The frequency factors of `llama3` scaling in GGUF, which the configuration reads.
pub const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Ends of names that some exporters write and no model needs: they follow from the configuration.
const IGNORABLE_ENDS: [&str; 3] = [
    "rotary_emb.inv_freq",
    "self_attn.masked_bias",
    "self_attn.attention_mask",
];

/// Names of a model's tensors in its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorNames {
    /// Convention of the checkpoint.
    pub style: NameStyle,
    /// Kind of model.
    pub architecture: Architecture,
}

impl TensorNames {
    /// Weight of a tensor that the model has once.
    pub fn model(self, tensor: ModelTensor) -> String {
        let (_, hf, gguf) = MODEL_NAMES[tensor as usize];
        let name = match self.style {
            NameStyle::HuggingFace => hf,
            NameStyle::Gguf => gguf,
        };
        format!("{name}.weight")
    }

    /// Weight of a layer's tensor.
    pub fn weight(self, layer: usize, tensor: LayerTensor) -> String {
        format!("{}.weight", self.stem(layer, tensor))
    }

    /// Bias that belongs to a layer's matrix.
    pub fn bias(self, layer: usize, tensor: LayerTensor) -> String {
        format!("{}.bias", self.stem(layer, tensor))
    }

    fn stem(self, layer: usize, tensor: LayerTensor) -> String {
        let (_, hf, gguf) = LAYER_NAMES[tensor as usize];
        match self.style {
            NameStyle::Gguf => format!("blk.{layer}.{gguf}"),
            NameStyle::HuggingFace => {
                let exception = HF_EXCEPTIONS.iter().find(|(architecture, of, _)| {
                    (*architecture, *of) == (self.architecture, tensor)
                });
                let name = exception.map_or(hf, |(.., name)| name);
                format!("model.layers.{layer}.{name}")
            }
        }
    }

    /// Whether a tensor may stay unread.
    pub fn is_ignorable(self, name: &str) -> bool {
        IGNORABLE_ENDS.iter().any(|end| name.ends_with(end))
    }
}
