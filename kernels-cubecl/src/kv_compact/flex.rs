//! Native compaction: see the contract in [`super`].

use crate::spec::KvSpec;
use crate::step_inputs::StepView;
use crate::verify::STATUS_UNREACHED;

/// Moves K and V of every head, tree by tree.
///
/// # Shapes
/// `pool [N, 2, G, B, D]`, `verdicts [R, 2]`.
pub fn kv_compact(pool: &mut [f32], step: StepView<'_>, verdicts: &[u32], spec: &KvSpec) {
    let slots = step.slot_mapping(spec.group);
    for anchor in 0..step.num_logit_rows() {
        let first = step.logit_rows()[anchor] as usize + 1;
        let num_drafts = step.sampling(anchor).num_drafts as usize;
        let reached = (0..num_drafts)
            .filter(|draft| verdicts[2 * (anchor + 1 + draft) + 1] != STATUS_UNREACHED);
        for (index, draft) in reached.enumerate() {
            if draft != index {
                let (from, to) = (slots[first + draft], slots[first + index]);
                copy(pool, from as usize, to as usize, spec);
            }
        }
    }
}

fn copy(pool: &mut [f32], from: usize, to: usize, spec: &KvSpec) {
    let (block_size, d) = (spec.block_size, spec.head_dim);
    for head in 0..2 * spec.num_kv_heads {
        let start = |slot: usize| {
            let head = slot / block_size * 2 * spec.num_kv_heads + head;
            (head * block_size + slot % block_size) * d
        };
        let from = start(from);
        pool.copy_within(from..from + d, start(to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::sample_values;
    use crate::step_inputs::{GroupArrays, SamplingRow, StepArrays, StepCapacity, StepInputs};

    #[test]
    fn the_accepted_path_comes_to_lie_in_order_and_nothing_else_moves() {
        let spec = KvSpec {
            group: 0,
            num_heads: 6,
            num_kv_heads: 3,
            head_dim: 5,
            block_size: 4,
        };
        // An anchor and five drafts, of which 1, 2 and 4 are accepted: 2 goes to 1 after that moved.
        let slots = [7, 16, 17, 18, 19, 8];
        let row = SamplingRow::greedy(0);
        let mut sampling = [row; 6];
        sampling[0].num_drafts = 5;
        for (row, parent) in [(1, 0), (2, 0), (3, 2), (4, 0), (5, 3)] {
            sampling[row].parent_row = Some(parent);
        }
        let group = GroupArrays {
            slot_mapping: &slots,
            block_tables: &[1, 4, 2],
            blocks_per_seq: 3,
            num_blocks: 5,
            block_size: 4,
            block_copies: &[],
        };
        let mut inputs = StepInputs::new(StepCapacity {
            tokens: 6,
            seqs: 1,
            logit_rows: 6,
            blocks_per_seq: vec![3],
            copies: vec![0],
            ..StepCapacity::default()
        });
        let step = StepArrays {
            token_ids: &[0; 6],
            positions: &[3, 4, 4, 5, 4, 6],
            seq_of_token: &[0; 6],
            query_offsets: &[0, 6],
            context_lens: &[9],
            logit_rows: &[0, 1, 2, 3, 4, 5],
            sampling: &sampling,
            groups: &[group],
            ..StepArrays::default()
        };
        inputs.fill(&step, 1).unwrap();
        let row_len = 2 * 3 * 4 * 5;
        let before = sample_values(3, 5 * row_len);
        let mut pool = before.clone();
        let verdicts = [0, 0, 0, 2, 0, 0, 0, 0, 0, 2, 0, 0];
        kv_compact(&mut pool, StepView::new(inputs.words()), &verdicts, &spec);
        let value = |pool: &[f32], slot: usize, head: usize, i: usize| {
            pool[((slot / 4 * 6 + head) * 4 + slot % 4) * 5 + i].to_bits()
        };
        for slot in 0..20 {
            // Drafts 1, 2 and 4 lay in slots 17, 18 and 8.
            let source = match slot {
                16 => 17,
                17 => 18,
                18 => 8,
                other => other,
            };
            for head in 0..6 {
                for i in 0..5 {
                    let (found, expected) =
                        (value(&pool, slot, head, i), value(&before, source, head, i));
                    assert_eq!(found, expected, "slot {slot}");
                }
            }
        }
    }
}
