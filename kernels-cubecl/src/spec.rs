//! What each op must be told besides its tensors. All of it is fixed when a model is loaded, so
//! kernels take it at compile time and nothing here changes from step to step.

use crate::packed::format::WeightFormat;

/// One run of rows of a weight matrix: same format, one buffer.
///
/// A matrix has several parts when its rows come from tensors of different formats (a fused
/// q, k, v projection) or when one buffer would exceed what a device can bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartSpec {
    /// Format of every row in the part.
    pub format: WeightFormat,
    /// First row of the part within the matrix.
    pub row_start: usize,
    /// Rows in the part.
    pub num_rows: usize,
}

/// How native products treat activations in front of quantised weights. Device kernels take f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ActivationMode {
    /// 8-bit codes with a scale for each 32 values. Several times faster for more than a few rows.
    #[default]
    Int8,
    /// As they are: weights are decoded to f32 in registers.
    F32,
}

/// Shape and parts of a weight matrix `[d_output, d_input]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatrixSpec {
    /// Length of an input row (K).
    pub d_input: usize,
    /// Number of rows, which is the length of an output row.
    pub d_output: usize,
    /// Parts in order of rows; together they cover `0..d_output`.
    pub parts: Vec<PartSpec>,
    /// How native products treat activations.
    pub activations: ActivationMode,
}

/// Root-mean-square norm over groups of a row.
///
/// A row of `num_groups * group_len` values holds `num_groups` groups. The first `num_normed` are
/// normalised, each with its own row of `gamma [num_normed, group_len]`; the others pass through.
/// A plain norm has one group; a norm per head of a fused q, k, v row normalises `H + G` of
/// `H + 2 G` groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNormSpec {
    /// Groups in a row.
    pub num_groups: usize,
    /// Leading groups to normalise.
    pub num_normed: usize,
    /// Values in a group.
    pub group_len: usize,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Which values of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairing {
    /// `(i, i + rotary_dim / 2)`: Hugging Face checkpoints, GGUF "neox" architectures.
    Halves,
    /// `(2 i, 2 i + 1)`: GGUF files of the Llama family.
    Interleaved,
}

/// Rotary position embedding of the leading heads of a row, in place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    /// Heads in a row (`H + 2 G` of a fused q, k, v row).
    pub num_heads: usize,
    /// Leading heads that rotate (`H + G`).
    pub num_rotated: usize,
    /// D.
    pub head_dim: usize,
    /// Leading values of a head that rotate; the rest pass through.
    pub rotary_dim: usize,
    /// Pairing.
    pub pairing: RopePairing,
    /// Factor on cosine and sine (YaRN's attention factor), else 1.
    pub magnitude: f32,
}

/// Where a layer's K and V lie in a fused q, k, v row and in its pool.
///
/// The pool is `[N, 2, G, B, D]`: block, K then V, head, offset in the block, value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvSpec {
    /// KV group: which slot mapping and block tables of the step to use.
    pub group: usize,
    /// H.
    pub num_heads: usize,
    /// G.
    pub num_kv_heads: usize,
    /// D.
    pub head_dim: usize,
    /// B.
    pub block_size: usize,
}

/// Attention of the q heads of a fused q, k, v row over a paged pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Where K and V are.
    pub kv: KvSpec,
    /// Factor on q k.
    pub scale: f32,
    /// A token sees itself and the `window - 1` tokens before it; `None` sees all.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
}

/// The gate of a gated linear unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// Gaussian error linear unit, tanh approximation.
    GeluTanh,
}
