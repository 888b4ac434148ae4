//! Builds a [`Decoder`] from a checkpoint: which tensors make up which layer, with their shapes
//! checked against the config.
//!
//! Neighbours: names come from [`crate::config::names`], bytes from [`crate::loaders`], packing
//! from `forerun_kernels::matrix`.

use std::borrow::Cow;

use burn::tensor::{Device, Tensor, TensorData};
use forerun_kernels::matrix::{PackedMatrix, RawRows};
use forerun_kernels::packed::format::WeightFormat;
use forerun_kernels::spec::{ActivationMode, AttentionSpec, KvSpec, RmsNormSpec, RopeSpec};

use crate::config::names::{LayerTensor, ModelTensor, TensorNames};
use crate::config::rope::{RopeConfig, RopeTable};
use crate::config::{ModelConfig, OutputHead};
use crate::decoder::{Decoder, DecoderLayer, DecoderLayerParts};
use crate::dense;
use crate::layers::attention::{Attention, AttentionParts};
use crate::layers::embedding::Embedding;
use crate::layers::feed_forward::FeedForward;
use crate::layers::linear::Linear;
use crate::layers::norm::RmsNorm;
use crate::loaders::{Checkpoint, LoadError, TensorView};
use crate::model::ModelError;

/// Where weights come from and how they are kept.
pub(crate) struct WeightSource<'a> {
    pub(crate) checkpoint: &'a dyn Checkpoint,
    pub(crate) config: &'a ModelConfig,
    pub(crate) device: &'a Device,
    /// Format for unquantised matrices; `None` keeps the file's.
    pub(crate) dense_format: Option<WeightFormat>,
    /// How native products treat activations.
    pub(crate) activations: ActivationMode,
    /// Tokens per KV block.
    pub(crate) block_size: usize,
}

/// Where the layers of a model keep K and V, in layer order: those with one window are one KV group.
pub(crate) fn kv_specs(config: &ModelConfig, block_size: usize) -> Vec<KvSpec> {
    let windows = config.kv_windows();
    let spec = |window| KvSpec {
        group: windows
            .iter()
            .position(|&other| other == window)
            .expect("every layer's window is among the model's"),
        num_heads: config.num_heads,
        num_kv_heads: config.num_kv_heads,
        head_dim: config.head_dim,
        block_size,
    };
    config
        .layers
        .iter()
        .map(|layer| spec(layer.window))
        .collect()
}

impl WeightSource<'_> {
    /// Reads and packs every weight.
    ///
    /// # Errors
    /// The first tensor that is missing, misshapen or in an unusable format.
    pub(crate) fn decoder(&self) -> Result<Decoder, ModelError> {
        let config = self.config;
        let ropes: Vec<RopeTable> = config.ropes.iter().map(RopeConfig::table).collect();
        let embedding = Embedding::new(
            self.matrix(
                &[(
                    self.names().model(ModelTensor::TokenEmbedding),
                    config.vocab_size,
                )],
                config.d_model,
            )?,
            config.embedding_scale,
        );
        let layers = (0..config.num_layers)
            .map(|layer| self.layer(layer, &ropes))
            .collect::<Result<_, ModelError>>()?;
        let norm = self.norm(&self.names().model(ModelTensor::OutputNorm))?;
        Ok(Decoder::new(embedding, layers, norm, self.head()?))
    }

    fn head(&self) -> Result<Option<Linear>, ModelError> {
        match self.config.output_head(self.checkpoint)? {
            OutputHead::Tied => Ok(None),
            OutputHead::TiedDespiteMatrix => {
                tracing::warn!(
                    "the checkpoint has an output matrix, but its config ties the output to the \
                     embedding: the embedding is used"
                );
                Ok(None)
            }
            OutputHead::Separate => {
                let name = self.names().model(ModelTensor::Output);
                let weight = self.matrix(&[(name, self.config.vocab_size)], self.config.d_model)?;
                Ok(Some(Linear::new(weight, None)))
            }
        }
    }

    fn layer(&self, layer: usize, ropes: &[RopeTable]) -> Result<DecoderLayer, ModelError> {
        let norm = |tensor| self.norm(&self.names().weight(layer, tensor));
        let has_sandwich_norms = self.config.sandwich_norms;
        let sandwich = |tensor| has_sandwich_norms.then(|| norm(tensor)).transpose();
        Ok(DecoderLayer::new(DecoderLayerParts {
            attention_norm: norm(LayerTensor::AttentionNorm)?,
            attention: self.attention(layer, ropes)?,
            post_attention_norm: sandwich(LayerTensor::PostAttentionNorm)?,
            feed_forward_norm: norm(LayerTensor::MlpNorm)?,
            feed_forward: self.feed_forward(layer)?,
            post_feed_forward_norm: sandwich(LayerTensor::PostMlpNorm)?,
        }))
    }

    fn attention(&self, layer: usize, ropes: &[RopeTable]) -> Result<Attention, ModelError> {
        let config = self.config;
        let kind = config.layers[layer];
        let (num_heads, num_kv_heads) = (config.num_heads, config.num_kv_heads);
        let query_len = num_heads * config.head_dim;
        let kv_len = num_kv_heads * config.head_dim;
        let qkv = [
            (LayerTensor::Query, query_len),
            (LayerTensor::Key, kv_len),
            (LayerTensor::Value, kv_len),
        ];
        let output = [(LayerTensor::AttentionOutput, config.d_model)];
        let rope = &config.ropes[kind.rope];
        let table = &ropes[kind.rope];
        Ok(Attention::new(AttentionParts {
            qkv: self.linear(layer, &qkv, config.d_model, config.biases.qkv)?,
            head_norm: config.qk_norm.then(|| self.head_norm(layer)).transpose()?,
            inverse_frequencies: self.vector(table.inv_freq.clone()),
            output: self.linear(layer, &output, query_len, config.biases.attention_output)?,
            rope: RopeSpec {
                num_heads: num_heads + 2 * num_kv_heads,
                num_rotated: num_heads + num_kv_heads,
                head_dim: config.head_dim,
                rotary_dim: rope.rotary_dim,
                pairing: config.rope_pairing,
                magnitude: table.magnitude,
            },
            spec: AttentionSpec {
                kv: kv_specs(config, self.block_size)[layer],
                scale: config.query_scale,
                window: kind.window,
                soft_cap: config.attention_soft_cap,
            },
        }))
    }

    fn feed_forward(&self, layer: usize) -> Result<FeedForward, ModelError> {
        let config = self.config;
        let has_bias = config.biases.mlp;
        let gate_up = [
            (LayerTensor::Gate, config.d_ff),
            (LayerTensor::Up, config.d_ff),
        ];
        let down = [(LayerTensor::Down, config.d_model)];
        Ok(FeedForward::new(
            self.linear(layer, &gate_up, config.d_model, has_bias)?,
            self.linear(layer, &down, config.d_ff, has_bias)?,
            config.activation,
        ))
    }

    /// One projection from the rows of several tensors, each given with its number of rows.
    fn linear(
        &self,
        layer: usize,
        tensors: &[(LayerTensor, usize)],
        d_input: usize,
        has_bias: bool,
    ) -> Result<Linear, ModelError> {
        let names = self.names();
        let rows: Vec<_> = tensors
            .iter()
            .map(|&(tensor, num_rows)| (names.weight(layer, tensor), num_rows))
            .collect();
        let weight = self.matrix(&rows, d_input)?;
        if !has_bias {
            return Ok(Linear::new(weight, None));
        }
        let mut bias = Vec::new();
        for &(tensor, len) in tensors {
            bias.extend(
                self.view(&names.bias(layer, tensor), &[len])?
                    .to_f32_vec()?,
            );
        }
        Ok(Linear::new(weight, Some(self.vector(bias))))
    }

    fn matrix(
        &self,
        tensors: &[(String, usize)],
        d_input: usize,
    ) -> Result<PackedMatrix, ModelError> {
        let mut rows: Vec<(WeightFormat, usize, Cow<'_, [u8]>)> = Vec::new();
        for (name, num_rows) in tensors {
            let view = self.view(name, &[*num_rows, d_input])?;
            let (format, bytes) = dense::convert(view.format, view.bytes, self.dense_format);
            rows.push((format, *num_rows, bytes));
        }
        let raw: Vec<RawRows<'_>> = rows
            .iter()
            .map(|(format, num_rows, bytes)| RawRows {
                format: *format,
                num_rows: *num_rows,
                bytes,
            })
            .collect();
        PackedMatrix::pack(&raw, d_input, self.device, None)
            .map(|matrix| matrix.with_activations(self.activations))
            .map_err(|source| ModelError::Pack {
                tensor: tensors[0].0.clone(),
                source,
            })
    }

    fn norm(&self, name: &str) -> Result<RmsNorm, ModelError> {
        let len = self.config.d_model;
        let gamma = self.gamma(name, len)?;
        let spec = RmsNormSpec {
            num_groups: 1,
            num_normed: 1,
            group_len: len,
            epsilon: self.config.rms_epsilon,
        };
        Ok(RmsNorm::new(self.vector(gamma), spec))
    }

    /// The norm of each q and k head of a fused row: q's gamma once per q head, then k's.
    fn head_norm(&self, layer: usize) -> Result<RmsNorm, ModelError> {
        let config = self.config;
        let gamma = |tensor| self.gamma(&self.names().weight(layer, tensor), config.head_dim);
        let query = gamma(LayerTensor::QueryNorm)?.repeat(config.num_heads);
        let key = gamma(LayerTensor::KeyNorm)?.repeat(config.num_kv_heads);
        let spec = RmsNormSpec {
            num_groups: config.num_heads + 2 * config.num_kv_heads,
            num_normed: config.num_heads + config.num_kv_heads,
            group_len: config.head_dim,
            epsilon: config.rms_epsilon,
        };
        Ok(RmsNorm::new(self.vector([query, key].concat()), spec))
    }

    fn gamma(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let mut gamma = self.view(name, &[len])?.to_f32_vec()?;
        for value in &mut gamma {
            *value += self.config.norm_weight_offset;
        }
        Ok(gamma)
    }

    fn view(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, LoadError> {
        self.checkpoint.tensor(name)?.expect_shape(shape)
    }

    fn vector(&self, values: Vec<f32>) -> Tensor<1> {
        let len = values.len();
        Tensor::from_data(TensorData::new(values, [len]), self.device)
    }

    fn names(&self) -> TensorNames {
        self.config.names()
    }
}
