//! The one decoder-only transformer, driven by its config.
//!
//! `tokens -> embedding -> layers -> last norm -> logits`. Models differ in data: sizes, windows,
//! RoPE per layer, optional norms, activation ([`crate::config::ModelConfig`]). Weights come from
//! [`crate::decoder_weights`]; KV pools and step inputs are arguments.

use burn::module::Module;
use burn::tensor::Tensor;
use forerun_kernels::gather_rows;

use crate::forward_context::ForwardContext;
use crate::kv_cache::{KvCache, LayerCache};
use crate::layers::attention::Attention;
use crate::layers::embedding::Embedding;
use crate::layers::feed_forward::FeedForward;
use crate::layers::linear::Linear;
use crate::layers::norm::RmsNorm;
use crate::layers::residual::ResidualStream;

/// A decoder-only transformer.
#[derive(Module, Debug)]
pub struct Decoder {
    embedding: Embedding,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
    /// `None` when the embedding table is also the output projection.
    head: Option<Linear>,
}

impl Decoder {
    /// Puts the parts together.
    pub fn new(
        embedding: Embedding,
        layers: Vec<DecoderLayer>,
        norm: RmsNorm,
        head: Option<Linear>,
    ) -> Self {
        Self {
            embedding,
            layers,
            norm,
            head,
        }
    }

    /// Runs the step's tokens through all layers, writing their K and V into `cache`, and returns
    /// the logits `[R, V]` of the rows the step asks for: `None` if it asks for none, which is a
    /// prompt's chunk that is not its last.
    pub fn forward(&self, context: &ForwardContext, cache: &mut KvCache) -> Option<Tensor<2>> {
        self.forward_layers(context, cache, self.layers.len())
    }

    /// [`Self::forward`] through the first `num_layers` layers alone: a rough guess at what all of
    /// them say.
    pub fn forward_layers(
        &self,
        context: &ForwardContext,
        cache: &mut KvCache,
        num_layers: usize,
    ) -> Option<Tensor<2>> {
        let mut stream = ResidualStream::new(self.embedding.forward(context));
        for (index, layer) in self.layers.iter().take(num_layers).enumerate() {
            stream = layer.forward(stream, context, cache.layer_mut(index));
        }
        let num_rows = context.num_logit_rows();
        (num_rows > 0).then(|| self.logits(stream, context))
    }

    fn logits(&self, stream: ResidualStream, context: &ForwardContext) -> Tensor<2> {
        let rows = context.num_logit_rows();
        let stream = stream.map_rows(|x| gather_rows::gather_rows(x, context.step(), rows));
        let (_, normed) = stream.normed(&self.norm);
        match &self.head {
            Some(head) => head.forward(normed),
            None => self.embedding.project(normed),
        }
    }

    /// The residual stream after the last layer. `observe` sees the stream that enters each layer
    /// (index `0 .. num_layers`); draft heads and tests read hidden states there.
    pub fn hidden_states(
        &self,
        context: &ForwardContext,
        cache: &mut KvCache,
        mut observe: impl FnMut(usize, &ResidualStream),
    ) -> ResidualStream {
        let mut stream = ResidualStream::new(self.embedding.forward(context));
        for (index, layer) in self.layers.iter().enumerate() {
            observe(index, &stream);
            stream = layer.forward(stream, context, cache.layer_mut(index));
        }
        stream
    }

    /// The norm before the output projection.
    pub fn last_norm(&self) -> &RmsNorm {
        &self.norm
    }

    /// Layers.
    pub fn num_layers(&self) -> usize {
        self.layers.len()
    }

    /// Bytes of weights that one decode step reads.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes_of(self.layers.len())
    }

    /// The same for the first `num_layers` layers alone.
    pub fn weight_bytes_of(&self, num_layers: usize) -> u64 {
        let layers = self.layers.iter().take(num_layers);
        let layers: u64 = layers.map(DecoderLayer::weight_bytes).sum();
        let head = match &self.head {
            Some(head) => head.weight_bytes(),
            None => self.embedding.table_bytes(),
        };
        layers + head
    }
}

/// Attention and feed-forward with their norms.
///
/// Llama has a norm before each half; Gemma also one after each (sandwich norms).
#[derive(Module, Debug)]
pub struct DecoderLayer {
    attention_norm: RmsNorm,
    attention: Attention,
    post_attention_norm: Option<RmsNorm>,
    feed_forward_norm: RmsNorm,
    feed_forward: FeedForward,
    post_feed_forward_norm: Option<RmsNorm>,
}

/// The parts a [`DecoderLayer`] is made of.
#[derive(Debug)]
pub struct DecoderLayerParts {
    /// Before attention.
    pub attention_norm: RmsNorm,
    /// Attention.
    pub attention: Attention,
    /// After attention (Gemma).
    pub post_attention_norm: Option<RmsNorm>,
    /// Before the feed-forward network.
    pub feed_forward_norm: RmsNorm,
    /// Feed-forward network.
    pub feed_forward: FeedForward,
    /// After the feed-forward network (Gemma).
    pub post_feed_forward_norm: Option<RmsNorm>,
}

impl DecoderLayer {
    /// Puts the parts together.
    pub fn new(parts: DecoderLayerParts) -> Self {
        Self {
            attention_norm: parts.attention_norm,
            attention: parts.attention,
            post_attention_norm: parts.post_attention_norm,
            feed_forward_norm: parts.feed_forward_norm,
            feed_forward: parts.feed_forward,
            post_feed_forward_norm: parts.post_feed_forward_norm,
        }
    }

    /// # Shapes
    /// - stream: `[T, M]`
    /// - output: the same
    pub fn forward(
        &self,
        stream: ResidualStream,
        context: &ForwardContext,
        cache: &mut LayerCache,
    ) -> ResidualStream {
        let (sum, normed) = stream.normed(&self.attention_norm);
        let attended = self.attention.forward(normed, context, cache);
        let attended = optional_norm(self.post_attention_norm.as_ref(), attended);

        let (sum, normed) = ResidualStream::pending(sum, attended).normed(&self.feed_forward_norm);
        let fed = self.feed_forward.forward(normed);
        let fed = optional_norm(self.post_feed_forward_norm.as_ref(), fed);
        ResidualStream::pending(sum, fed)
    }

    fn weight_bytes(&self) -> u64 {
        self.attention.weight_bytes() + self.feed_forward.weight_bytes()
    }
}

fn optional_norm(norm: Option<&RmsNorm>, x: Tensor<2>) -> Tensor<2> {
    match norm {
        Some(norm) => norm.forward(x),
        None => x,
    }
}
