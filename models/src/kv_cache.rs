//! The KV pools of a model: one tensor per layer, blocks addressed through the engine's tables.
//!
//! Neighbours: sized by [`crate::memory_plan`], written by `kv_write` and read by
//! `paged_attention` from [`crate::layers::attention`]; owned by [`crate::runner`].

use burn::tensor::{Device, Tensor};
use forerun_kernels::kv_write;
use forerun_kernels::spec::KvSpec;

/// One layer's pool, `[N, 2, G, B, D]`.
///
/// Ops that write take the pool by value and return it: with one owner the write is in place on
/// every backend.
#[derive(Debug)]
pub struct LayerCache {
    /// Empty only while an update runs.
    pool: Option<Tensor<5>>,
}

impl LayerCache {
    /// A zeroed pool of `num_blocks` blocks.
    pub fn new(spec: &KvSpec, num_blocks: usize, device: &Device) -> Self {
        Self {
            pool: Some(kv_write::zeros(num_blocks, spec, device)),
        }
    }

    /// A handle on the pool, for reading. Drop it before the next [`update`](Self::update).
    pub fn pool(&self) -> Tensor<5> {
        self.pool
            .clone()
            .expect("the pool is only away during `update`, which borrows mutably")
    }

    /// Moves the pool through an op that writes to it.
    pub fn update(&mut self, write: impl FnOnce(Tensor<5>) -> Tensor<5>) {
        let pool = self
            .pool
            .take()
            .expect("`update` puts the pool back before it returns");
        self.pool = Some(write(pool));
    }
}

/// The pools of all layers.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
}

impl KvCache {
    /// Zeroed pools, one per entry of `specs`, each of as many blocks as its KV group has in
    /// `num_blocks`.
    pub fn new(specs: &[KvSpec], num_blocks: &[usize], device: &Device) -> Self {
        let layers = specs
            .iter()
            .map(|spec| LayerCache::new(spec, num_blocks[spec.group], device))
            .collect();
        Self { layers }
    }

    /// The pool of layer `index`.
    pub fn layer_mut(&mut self, index: usize) -> &mut LayerCache {
        &mut self.layers[index]
    }

    /// All pools in layer order.
    pub fn layers_mut(&mut self) -> impl Iterator<Item = &mut LayerCache> {
        self.layers.iter_mut()
    }
}
