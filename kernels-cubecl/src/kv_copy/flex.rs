//! Native block copies: see the contract in [`super`].

use crate::spec::KvSpec;

/// Copies whole blocks, K and V of every head: (source, destination).
///
/// # Shapes
/// `pool [N, 2, G, B, D]`.
pub fn kv_copy(pool: &mut [f32], copies: impl Iterator<Item = (u32, u32)>, spec: &KvSpec) {
    let block_len = 2 * spec.num_kv_heads * spec.block_size * spec.head_dim;
    for (source, destination) in copies {
        let source = source as usize * block_len;
        pool.copy_within(source..source + block_len, destination as usize * block_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::sample_values;

    #[test]
    fn destinations_become_their_sources_and_other_blocks_stay() {
        let spec = KvSpec {
            group: 0,
            num_heads: 5,
            num_kv_heads: 3,
            head_dim: 7,
            block_size: 4,
        };
        let block_len = 2 * 3 * 4 * 7;
        let before = sample_values(4, 9 * block_len);
        let mut pool = before.clone();
        kv_copy(&mut pool, [(8, 1), (3, 5)].into_iter(), &spec);
        for (block, now) in pool.chunks_exact(block_len).enumerate() {
            let source = [0, 8, 2, 3, 4, 3, 6, 7, 8][block];
            assert_eq!(now, &before[source * block_len..(source + 1) * block_len]);
        }
    }
}
