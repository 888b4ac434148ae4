//! Native writing of K and V: see the contract in [`super`].

use crate::simd::shared::SharedMut;
use crate::spec::KvSpec;
use crate::threads::Threads;

/// Values from which heads are split over threads.
const PARALLEL_LEN: usize = 1 << 15;

/// Writes K and V of each fused row to its slot.
///
/// # Shapes
/// `pool [N, 2, G, B, D]`, `qkv [T, (H + 2 G) * D]`, `slots [T]`.
pub fn kv_write(threads: &Threads, pool: &mut [f32], qkv: &[f32], slots: &[u32], spec: &KvSpec) {
    let (d, num_kv_heads, block_size) = (spec.head_dim, spec.num_kv_heads, spec.block_size);
    let row_len = (spec.num_heads + 2 * num_kv_heads) * d;
    let block_len = 2 * num_kv_heads * block_size * d;
    let num_slots = pool.len() / block_len * block_size;
    if let Some(&slot) = slots.iter().find(|&&slot| slot as usize >= num_slots) {
        panic!("slot {slot} in a pool of {num_slots}");
    }
    assert!(
        qkv.len() >= slots.len() * row_len,
        "{} values in rows of {row_len}",
        qkv.len()
    );
    let pool = SharedMut::new(pool);
    let num_heads = 2 * num_kv_heads;
    let copy = |heads: std::ops::Range<usize>| {
        for (row, &slot) in qkv.chunks_exact(row_len).zip(slots) {
            let (block, offset) = (slot as usize / block_size, slot as usize % block_size);
            // K heads, then V heads: in the row as in a block.
            for head in heads.clone() {
                let from = &row[(spec.num_heads + head) * d..][..d];
                let start = ((block * num_heads + head) * block_size + offset) * d;
                // SAFETY: tasks have heads of their own, and one task copies one row at a time.
                unsafe { pool.part(start, d) }.copy_from_slice(from);
            }
        }
    };
    if slots.len() * num_heads * d < PARALLEL_LEN {
        copy(0..num_heads);
    } else {
        threads.run(num_heads, |head| copy(head..head + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::sample_values;
    use std::num::NonZeroUsize;

    #[test]
    fn every_row_lands_in_its_slot_and_nothing_else_changes() {
        let threads = Threads::new(NonZeroUsize::new(3).unwrap());
        for (num_heads, num_kv_heads, head_dim, block_size, num_tokens) in [
            (5, 3, 7, 4, 1),
            (9, 3, 64, 16, 5),
            (4, 1, 256, 1, 90),
            (6, 2, 80, 32, 150),
        ] {
            let spec = KvSpec {
                group: 0,
                num_heads,
                num_kv_heads,
                head_dim,
                block_size,
            };
            let num_blocks = 2 + 160 / block_size;
            let block_len = 2 * num_kv_heads * block_size * head_dim;
            let row_len = (num_heads + 2 * num_kv_heads) * head_dim;
            let before = sample_values(1, num_blocks * block_len);
            let qkv = sample_values(2, num_tokens * row_len);
            // 7 and the number of slots have no common factor in these cases: slots are distinct.
            let num_slots = num_blocks * block_size;
            let slots: Vec<u32> = (0..num_tokens)
                .map(|t| ((t * 7 + 3) % num_slots) as u32)
                .collect();
            let mut want = before.clone();
            for (token, &slot) in slots.iter().enumerate() {
                for k_or_v in 0..2 {
                    for head in 0..num_kv_heads {
                        for i in 0..head_dim {
                            let block = slot as usize / block_size;
                            let place = (block * 2 + k_or_v) * num_kv_heads + head;
                            let place = place * block_size + slot as usize % block_size;
                            let column = num_heads + k_or_v * num_kv_heads + head;
                            want[place * head_dim + i] =
                                qkv[token * row_len + column * head_dim + i];
                        }
                    }
                }
            }
            let mut pool = before;
            kv_write(&threads, &mut pool, &qkv, &slots, &spec);
            assert_eq!(pool, want);
        }
    }

    #[test]
    #[should_panic(expected = "slot 12 in a pool of 12")]
    fn a_slot_past_the_pool_is_refused() {
        let threads = Threads::new(NonZeroUsize::MIN);
        let spec = KvSpec {
            group: 0,
            num_heads: 1,
            num_kv_heads: 1,
            head_dim: 2,
            block_size: 4,
        };
        kv_write(&threads, &mut [0.0; 48], &[0.0; 6], &[12], &spec);
    }
}
