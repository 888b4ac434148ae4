//! Where the keys and values of a tile lie in the pool.

use std::ops::Range;

use super::plan::Run;
use super::{Inputs, TILE};

/// Where the rows of K and V of a tile are.
pub(super) struct TileRows {
    /// Position of the tile.
    pub(super) start: usize,
    /// The positions, relative to the tile, that any row of the run sees.
    pub(super) visible: Range<usize>,
    /// Addresses of the rows of K.
    pub(super) keys: [*const f32; TILE],
    /// Addresses of the rows of V.
    pub(super) values: [*const f32; TILE],
}

impl TileRows {
    /// Addresses of the rows, block by block, and in a tail of drafts one by one. Hidden rows of K get the address of a visible one, so
    /// that whole vectors can be read; hidden rows of V are not read.
    pub(super) fn find(
        inputs: &Inputs<'_>,
        run: &Run,
        start: usize,
        visible: Range<usize>,
    ) -> Self {
        let kv = &inputs.spec.kv;
        let (block_size, d) = (kv.block_size, kv.head_dim);
        let table = inputs.step.block_table(kv.group, run.seq);
        let head_len = block_size * d;
        let tail_base = inputs.step.tail_base(run.seq);
        let mut keys = [std::ptr::null(); TILE];
        let mut values = [std::ptr::null(); TILE];
        let mut j = visible.start;
        while j < visible.end {
            let place = inputs.step.place_of(run.seq, start + j);
            let block = table[place / block_size] as usize;
            let offset = place % block_size;
            let num_in_order = tail_base.saturating_sub(start + j).max(1);
            let len = (block_size - offset).min(visible.end - j).min(num_in_order);
            let head = 2 * block * kv.num_kv_heads + run.kv_head;
            let k = &inputs.kv_pool[head * head_len + offset * d..][..len * d];
            let head = head + kv.num_kv_heads;
            let v = &inputs.kv_pool[head * head_len + offset * d..][..len * d];
            for (i, (k, v)) in k.chunks_exact(d).zip(v.chunks_exact(d)).enumerate() {
                keys[j + i] = k.as_ptr();
                values[j + i] = v.as_ptr();
            }
            j += len;
        }
        let (first, last) = (keys[visible.start], keys[visible.end - 1]);
        keys[..visible.start].fill(first);
        keys[visible.end..].fill(last);
        Self {
            start,
            visible,
            keys,
            values,
        }
    }
}
