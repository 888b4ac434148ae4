//! Checks on a step before it is packed: kernels read and write memory by these indices and trust
//! them.

use super::{StepArrays, StepInputsError};

/// Checks lengths, indices, and that each position lies inside its context and block table.
pub(super) fn check(step: &StepArrays<'_>, vocab_size: usize) -> Result<(), StepInputsError> {
    let num_tokens = step.token_ids.len();
    let num_seqs = step.context_lens.len();
    let num_rows = step.logit_rows.len();
    length("positions", step.positions.len(), num_tokens)?;
    length("seq_of_token", step.seq_of_token.len(), num_tokens)?;
    length("query_offsets", step.query_offsets.len(), num_seqs + 1)?;
    length("sampling", step.sampling.len(), num_rows)?;
    below("token_ids", step.token_ids, vocab_size)?;
    below("seq_of_token", step.seq_of_token, num_seqs)?;
    below("query_offsets", step.query_offsets, num_tokens + 1)?;
    below("logit_rows", step.logit_rows, num_tokens)?;
    for arrays in step.groups {
        length("slot_mapping", arrays.slot_mapping.len(), num_tokens)?;
        length(
            "block_tables",
            arrays.block_tables.len(),
            num_seqs * arrays.blocks_per_seq,
        )?;
        below(
            "slot_mapping",
            arrays.slot_mapping,
            arrays.num_blocks * arrays.block_size,
        )?;
        below("block_tables", arrays.block_tables, arrays.num_blocks)?;
        for &(source, destination) in step.block_copies {
            below("block_copies", &[source, destination], arrays.num_blocks)?;
        }
        for (token, &position) in step.positions.iter().enumerate() {
            let seq = step.seq_of_token[token] as usize;
            let covered = arrays.blocks_per_seq * arrays.block_size;
            let limit = covered.min(step.context_lens[seq] as usize);
            if position as usize >= limit {
                let array = "positions";
                return Err(StepInputsError::Index {
                    array,
                    index: token,
                    value: position,
                    limit,
                });
            }
        }
    }
    Ok(())
}

fn length(array: &'static str, found: usize, expected: usize) -> Result<(), StepInputsError> {
    if found == expected {
        Ok(())
    } else {
        Err(StepInputsError::Length {
            array,
            found,
            expected,
        })
    }
}

fn below(array: &'static str, values: &[u32], limit: usize) -> Result<(), StepInputsError> {
    match values.iter().position(|&value| value as usize >= limit) {
        None => Ok(()),
        Some(index) => Err(StepInputsError::Index {
            array,
            index,
            value: values[index],
            limit,
        }),
    }
}
