//! Checks at the entry of an op. A model whose specs do not fit its tensors is a bug of ours, not
//! of a file: loaders have refused such files. So these panic, and say what was found.

use crate::KvSpec;
use burn::tensor::Tensor;

/// Panics unless a tensor of `op` has the shape it should.
#[track_caller]
pub(crate) fn shape<const D: usize>(
    op: &str,
    tensor: &str,
    found: [usize; D],
    expected: [usize; D],
) {
    assert!(
        found == expected,
        "{op}: {tensor} has shape {found:?}, expected {expected:?}"
    );
}

/// Panics unless the pool is one of the layer's.
#[track_caller]
pub(crate) fn pool(op: &str, found: &Tensor<5>, spec: &KvSpec) {
    let [num_blocks, ..] = found.dims();
    let expected = [
        num_blocks,
        2,
        spec.num_kv_heads,
        spec.block_size,
        spec.head_dim,
    ];
    shape(op, "pool", found.dims(), expected);
}
