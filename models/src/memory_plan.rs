//! How many KV blocks fit, decided before any weight is read.
//!
//! Bytes of a block: for each layer `2 * G * B * D` values. Block 0 is the null block, so a plan
//! of N blocks serves `(N - 1) * B` token positions.

use std::fmt;

use forerun_kernels::spec::KvSpec;
use thiserror::Error;

/// Bytes of one KV value: pools are f32.
const KV_VALUE_BYTES: u64 = 4;

/// What a plan is made from.
#[derive(Clone, Debug)]
pub struct PlanRequest<'a> {
    /// Packed weights, in bytes.
    pub weight_bytes: u64,
    /// One per layer.
    pub kv_specs: &'a [KvSpec],
    /// The longest sequence the model allows, in tokens.
    pub max_seq_len: usize,
    /// Bytes the user grants the KV cache; `None` takes what one longest sequence needs, but at
    /// most `kv_default_bytes_max`.
    pub kv_memory_bytes: Option<u64>,
    /// Limit of the default.
    pub kv_default_bytes_max: u64,
    /// Most bytes one tensor may have on the device.
    pub binding_bytes_max: u64,
}

/// Memory of a model that is about to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Packed weights, in bytes.
    pub weight_bytes: u64,
    /// One block over all layers, in bytes.
    pub block_bytes: u64,
    /// Tokens per block.
    pub block_size: usize,
    /// Blocks, the null block included.
    pub num_blocks: usize,
    /// The longest sequence that fits, in tokens: the model's limit or the cache's.
    pub max_seq_len: usize,
}

impl MemoryPlan {
    /// Bytes of all KV pools.
    pub fn kv_bytes(&self) -> u64 {
        self.block_bytes * self.num_blocks as u64
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "weights {}, KV cache {} ({} blocks of {} tokens), longest sequence {} tokens",
            mebibytes(self.weight_bytes),
            mebibytes(self.kv_bytes()),
            self.num_blocks,
            self.block_size,
            self.max_seq_len
        )
    }
}

/// Why a model cannot run in the memory it was given.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// Not even one block besides the null block.
    #[error(
        "the KV cache has {available}, but its smallest size is {needed} \
         (2 blocks of {block_size} tokens): raise --kv-memory or lower --block-size"
    )]
    KvTooSmall {
        /// Granted.
        available: String,
        /// Smallest.
        needed: String,
        /// Tokens per block.
        block_size: usize,
    },
    /// One layer's smallest pool is larger than the device can bind.
    #[error(
        "one layer's smallest KV pool needs {needed}, the device binds at most {limit}: \
         lower --block-size"
    )]
    Binding {
        /// Smallest.
        needed: String,
        /// Device limit.
        limit: String,
    },
    /// The block size is not a power of two in `1 ..= 256`.
    #[error("block size {found} is not a power of two between 1 and 256")]
    BlockSize {
        /// Found.
        found: usize,
    },
}

/// Sizes the KV cache.
///
/// # Errors
/// [`PlanError`] with the numbers when nothing fits.
pub fn plan(request: &PlanRequest<'_>) -> Result<MemoryPlan, PlanError> {
    let block_size = request.kv_specs.first().map_or(1, |spec| spec.block_size);
    if !block_size.is_power_of_two() || block_size > 256 {
        return Err(PlanError::BlockSize { found: block_size });
    }
    let block_bytes: u64 = request.kv_specs.iter().map(layer_block_bytes).sum();
    let largest_layer = request
        .kv_specs
        .iter()
        .map(layer_block_bytes)
        .max()
        .unwrap_or(1);
    let blocks_for_longest = request.max_seq_len.div_ceil(block_size) + 1;
    let granted = request.kv_memory_bytes.unwrap_or_else(|| {
        (blocks_for_longest as u64 * block_bytes).min(request.kv_default_bytes_max)
    });
    let by_memory = granted / block_bytes;
    let by_binding = request.binding_bytes_max / largest_layer;
    if by_memory < 2 {
        return Err(PlanError::KvTooSmall {
            available: mebibytes(granted),
            needed: mebibytes(2 * block_bytes),
            block_size,
        });
    }
    if by_binding < 2 {
        return Err(PlanError::Binding {
            needed: mebibytes(2 * largest_layer),
            limit: mebibytes(request.binding_bytes_max),
        });
    }
    // Slots are u32 on the device.
    let addressable = u64::from(u32::MAX) / block_size as u64;
    let num_blocks = by_memory.min(by_binding).min(addressable) as usize;
    Ok(MemoryPlan {
        weight_bytes: request.weight_bytes,
        block_bytes,
        block_size,
        num_blocks,
        max_seq_len: request.max_seq_len.min((num_blocks - 1) * block_size),
    })
}

fn layer_block_bytes(spec: &KvSpec) -> u64 {
    let values = 2 * spec.num_kv_heads * spec.block_size * spec.head_dim;
    values as u64 * KV_VALUE_BYTES
}

/// A byte count as people read it.
pub fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(num_layers: usize, block_size: usize) -> Vec<KvSpec> {
        let spec = KvSpec {
            group: 0,
            num_heads: 9,
            num_kv_heads: 3,
            head_dim: 64,
            block_size,
        };
        vec![spec; num_layers]
    }

    fn request(kv_specs: &[KvSpec]) -> PlanRequest<'_> {
        PlanRequest {
            weight_bytes: 98_000_000,
            kv_specs,
            max_seq_len: 8192,
            kv_memory_bytes: None,
            kv_default_bytes_max: 1 << 30,
            binding_bytes_max: u64::MAX,
        }
    }

    #[test]
    fn the_default_holds_one_longest_sequence() {
        let specs = specs(30, 16);
        let plan = plan(&request(&specs)).unwrap();
        assert_eq!(plan.block_bytes, 30 * 2 * 3 * 16 * 64 * 4);
        assert_eq!(plan.num_blocks, 513);
        assert_eq!(plan.max_seq_len, 8192);
    }

    #[test]
    fn a_smaller_grant_shortens_the_longest_sequence() {
        let specs = specs(30, 16);
        let plan = plan(&PlanRequest {
            kv_memory_bytes: Some(16 << 20),
            ..request(&specs)
        })
        .unwrap();
        assert_eq!(plan.num_blocks, 22);
        assert_eq!(plan.max_seq_len, 21 * 16);
    }

    #[test]
    fn a_binding_limit_bounds_each_pool() {
        let specs = specs(30, 16);
        let limit = 100 * 2 * 3 * 16 * 64 * 4;
        let plan = plan(&PlanRequest {
            binding_bytes_max: limit,
            ..request(&specs)
        })
        .unwrap();
        assert_eq!(plan.num_blocks, 100);
    }

    #[test]
    fn too_little_memory_is_refused_with_the_numbers() {
        let specs = specs(30, 16);
        let error = plan(&PlanRequest {
            kv_memory_bytes: Some(1000),
            ..request(&specs)
        })
        .unwrap_err();
        assert!(error.to_string().contains("1.4 MiB"), "{error}");
    }

    #[test]
    fn a_block_size_must_be_a_power_of_two() {
        let specs = specs(2, 12);
        assert_eq!(
            plan(&request(&specs)),
            Err(PlanError::BlockSize { found: 12 })
        );
    }
}
