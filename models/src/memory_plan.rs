//! How many KV blocks fit, decided before any weight is read.
//!
//! Bytes of a block: for each layer `2 * G * B * D` values. Block 0 is the null block, so a group
//! of N blocks serves `(N - 1) * B` token positions. Groups differ in what they need for a long
//! sequence, so memory is split among them once, in proportion to a typical one.

use std::fmt;

use forerun_kernels::spec::KvSpec;
use thiserror::Error;

/// Bytes of one KV value: pools are f32.
const KV_VALUE_BYTES: u64 = 4;

/// Length of a sequence for which the KV groups are in proportion: a group with a window needs few
/// blocks for a long sequence, but as many as the others for a short one.
const TYPICAL_SEQ_LEN: usize = 2048;
/// Tokens of a prompt that are written before blocks leave a window: two steps in flight.
const CHUNK_TOKENS: usize = 2 * 512;

/// What a plan is made from.
#[derive(Clone, Debug)]
pub struct PlanRequest<'a> {
    /// Packed weights, in bytes.
    pub weight_bytes: u64,
    /// One per layer.
    pub kv_specs: &'a [KvSpec],
    /// The window of each KV group.
    pub windows: &'a [Option<usize>],
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
    /// Tokens per block.
    pub block_size: usize,
    /// The pools of each KV group.
    pub groups: Vec<GroupPlan>,
    /// The longest sequence that fits, in tokens: the model's limit or the cache's.
    pub max_seq_len: usize,
}

/// The pools of one KV group: layers with one block table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// A token sees itself and the `window - 1` before it; `None` sees all.
    pub window: Option<usize>,
    /// Blocks, the null block included.
    pub num_blocks: usize,
    /// One block over all layers of the group, in bytes.
    pub block_bytes: u64,
    /// Layers.
    pub num_layers: usize,
}

impl MemoryPlan {
    /// Bytes of all KV pools.
    pub fn kv_bytes(&self) -> u64 {
        self.groups.iter().map(GroupPlan::bytes).sum()
    }
}

impl GroupPlan {
    /// Bytes of the group's pools.
    pub fn bytes(&self) -> u64 {
        self.block_bytes * self.num_blocks as u64
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "weights {}, KV cache {} (",
            mebibytes(self.weight_bytes),
            mebibytes(self.kv_bytes()),
        )?;
        for (index, group) in self.groups.iter().enumerate() {
            let separator = if index == 0 { "" } else { " + " };
            write!(f, "{separator}{}", group.num_blocks)?;
            if let Some(window) = group.window {
                write!(f, " for windows of {window}")?;
            }
        }
        write!(
            f,
            " blocks of {} tokens), longest sequence {} tokens",
            self.block_size, self.max_seq_len
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
    let mut groups: Vec<GroupPlan> = (0..request.windows.len())
        .map(|group| empty_group(request, group))
        .collect();
    let smallest: u64 = groups.iter().map(|group| 2 * group.block_bytes).sum();
    let granted = request.kv_memory_bytes.unwrap_or_else(|| {
        bytes_for_longest(&groups, request, block_size).min(request.kv_default_bytes_max)
    });
    if granted < smallest {
        return Err(PlanError::KvTooSmall {
            available: mebibytes(granted),
            needed: mebibytes(smallest),
            block_size,
        });
    }
    share_out(&mut groups, granted, request, block_size)?;
    let max_seq_len = groups
        .iter()
        .map(|group| group.seq_len_max(block_size))
        .fold(request.max_seq_len, usize::min);
    Ok(MemoryPlan {
        weight_bytes: request.weight_bytes,
        block_size,
        groups,
        max_seq_len,
    })
}

/// Bytes that a token takes in the pools of these layers.
pub fn token_bytes(kv_specs: &[KvSpec]) -> u64 {
    let bytes = kv_specs
        .iter()
        .map(|spec| layer_block_bytes(spec) / spec.block_size as u64);
    bytes.sum()
}

/// Group `group` without blocks.
fn empty_group(request: &PlanRequest<'_>, group: usize) -> GroupPlan {
    let layers = || request.kv_specs.iter().filter(|spec| spec.group == group);
    GroupPlan {
        window: request.windows[group],
        num_blocks: 0,
        block_bytes: layers().map(layer_block_bytes).sum(),
        num_layers: layers().count(),
    }
}

/// What the longest sequence needs when every group has its share.
fn bytes_for_longest(groups: &[GroupPlan], request: &PlanRequest<'_>, block_size: usize) -> u64 {
    let typical = request.max_seq_len.min(TYPICAL_SEQ_LEN);
    let num_typical = |group: &GroupPlan| {
        let longest = group.blocks_for(request.max_seq_len, block_size) as f64;
        longest / group.blocks_for(typical, block_size) as f64
    };
    let scale = groups.iter().map(num_typical).fold(1.0, f64::max);
    let bytes = groups.iter().map(|group| {
        let blocks = (scale * group.blocks_for(typical, block_size) as f64).ceil();
        (blocks as u64 + 1) * group.block_bytes
    });
    bytes.sum()
}

/// Gives every group a null block, and shares the rest in proportion to what a sequence of typical
/// length needs, within what the device can bind.
fn share_out(
    groups: &mut [GroupPlan],
    granted: u64,
    request: &PlanRequest<'_>,
    block_size: usize,
) -> Result<(), PlanError> {
    let typical = request.max_seq_len.min(TYPICAL_SEQ_LEN);
    let null_bytes: u64 = groups.iter().map(|group| group.block_bytes).sum();
    let typical_bytes = groups.iter().map(|group| {
        let blocks = group.blocks_for(typical, block_size) as u64;
        u128::from(blocks * group.block_bytes)
    });
    let typical_bytes: u128 = typical_bytes.sum();
    let spare = u128::from(granted - null_bytes);
    for (index, group) in groups.iter_mut().enumerate() {
        let share = group.blocks_for(typical, block_size) as u128;
        let by_memory = 1 + (spare * share / typical_bytes) as u64;
        let layers = request.kv_specs.iter().filter(|spec| spec.group == index);
        let largest_layer = layers.map(layer_block_bytes).max().unwrap_or(1);
        let by_binding = request.binding_bytes_max / largest_layer;
        if by_binding < 2 {
            return Err(PlanError::Binding {
                needed: mebibytes(2 * largest_layer),
                limit: mebibytes(request.binding_bytes_max),
            });
        }
        // Slots are u32 on the device.
        let addressable = u64::from(u32::MAX) / block_size as u64;
        group.num_blocks = by_memory.min(by_binding).min(addressable).max(2) as usize;
    }
    Ok(())
}

impl GroupPlan {
    /// Blocks a sequence of `num_tokens` needs at most at once.
    fn blocks_for(&self, num_tokens: usize, block_size: usize) -> usize {
        let all = num_tokens.div_ceil(block_size);
        match self.window {
            Some(window) => {
                all.min((window - 1).div_ceil(block_size) + CHUNK_TOKENS.div_ceil(block_size) + 1)
            }
            None => all,
        }
    }

    /// The longest sequence that fits the group alone.
    fn seq_len_max(&self, block_size: usize) -> usize {
        let num_usable = self.num_blocks - 1;
        if self.blocks_for(usize::MAX / 2, block_size) <= num_usable {
            usize::MAX
        } else {
            num_usable * block_size
        }
    }
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
            windows: &[None],
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
        assert_eq!(plan.groups[0].block_bytes, 30 * 2 * 3 * 16 * 64 * 4);
        assert_eq!(plan.groups[0].num_blocks, 513);
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
        assert_eq!(plan.groups[0].num_blocks, 22);
        assert_eq!(plan.max_seq_len, 21 * 16);
    }

    #[test]
    fn a_window_group_gets_the_blocks_of_typical_sequences_and_does_not_limit_their_length() {
        let mut specs = specs(18, 16);
        for (layer, spec) in specs.iter_mut().enumerate() {
            spec.group = usize::from((layer + 1) % 6 != 0);
        }
        let request = PlanRequest {
            windows: &[None, Some(512)],
            max_seq_len: 32_768,
            kv_default_bytes_max: u64::MAX,
            ..request(&specs)
        };
        let whole = plan(&request).unwrap();
        let [global, window] = [0, 1].map(|group| whole.groups[group].clone());
        assert_eq!((global.num_layers, window.num_layers), (3, 15));
        assert_eq!(whole.max_seq_len, 32_768);
        assert!(global.num_blocks > 32_768 / 16);
        // A sequence of 2048 tokens needs 128 blocks in one group, 97 in the other.
        let ratio = global.num_blocks as f64 / window.num_blocks as f64;
        assert!((ratio - 128.0 / 97.0).abs() < 0.01, "{ratio}");
        let half = plan(&PlanRequest {
            kv_memory_bytes: Some(whole.kv_bytes() / 2),
            ..request
        })
        .unwrap();
        assert!(half.kv_bytes() <= whole.kv_bytes() / 2);
        assert_eq!(half.max_seq_len, (half.groups[0].num_blocks - 1) * 16);
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
        assert_eq!(plan.groups[0].num_blocks, 100);
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
