//! Checks on a step before it is packed: kernels read and write memory by these indices and trust
//! them.

use super::{
    LOGPROBS_TOP_MAX, OUTPUT_COUNT_BITS, SamplingRow, StepArrays, StepInputsError, mask_row_words,
};

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
    check_sampling(step, vocab_size)?;
    check_drafts(step)?;
    check_tails(step)?;
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
        let num_places = arrays.blocks_per_seq * arrays.block_size;
        below("tails", step.tails, num_places)?;
        for &(source, destination) in arrays.block_copies {
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

/// Checks that each tail covers its entry's positions from the tail base to the end.
fn check_tails(step: &StepArrays<'_>) -> Result<(), StepInputsError> {
    let num_seqs = step.context_lens.len();
    if step.tail_bases.is_empty() && step.tails.is_empty() {
        return length("tail_offsets", step.tail_offsets.len(), 0);
    }
    length("tail_bases", step.tail_bases.len(), num_seqs)?;
    length("tail_offsets", step.tail_offsets.len(), num_seqs + 1)?;
    let mut end = 0;
    for (seq, &context_len) in step.context_lens.iter().enumerate() {
        let base = step.tail_bases[seq];
        entry_below("tail_bases", seq, base, context_len as usize + 1)?;
        end += (context_len - base) as usize;
        let offset = step.tail_offsets[seq + 1];
        entry_below("tail_offsets", seq + 1, offset, end + 1)?;
        length("tails up to tail_offsets", offset as usize, end)?;
    }
    length("tails", step.tails.len(), end)
}

/// Checks that the rows of a draft follow their anchor's, each behind its parent's.
fn check_drafts(step: &StepArrays<'_>) -> Result<(), StepInputsError> {
    let num_rows = step.sampling.len();
    let mut row = 0;
    while row < num_rows {
        let num_drafts = step.sampling[row].num_drafts as usize;
        let limit = num_rows - row;
        entry_below("num_drafts", row, step.sampling[row].num_drafts, limit)?;
        let token = step.logit_rows[row] as usize;
        for draft in row + 1..=row + num_drafts {
            let sampling = &step.sampling[draft];
            // An anchor's row number for a draft without a parent is refused here.
            let parent = sampling.parent_row.unwrap_or(u32::MAX);
            entry_below("parent_row", draft, parent, draft)?;
            entry_below("draft parents", draft, row as u32, parent as usize + 1)?;
            let expected = token + draft - row;
            length(
                "logit rows of a draft",
                step.logit_rows[draft] as usize,
                expected,
            )?;
        }
        row += 1 + num_drafts;
    }
    Ok(())
}

/// Checks what rows refer to: history, biases, masks, targets, the previous step's verdicts.
fn check_sampling(step: &StepArrays<'_>, vocab_size: usize) -> Result<(), StepInputsError> {
    for (index, entry) in step.history.iter().enumerate() {
        entry_below("history", index, entry.token, vocab_size)?;
        let limit = OUTPUT_COUNT_BITS as usize + 1;
        entry_below("history counts", index, entry.output_count, limit)?;
    }
    for (index, &(token, _)) in step.bias.iter().enumerate() {
        entry_below("bias", index, token, vocab_size)?;
    }
    for (index, carried) in step.carried.iter().enumerate() {
        entry_below("carried", index, carried.token, step.token_ids.len())?;
        entry_below("carried rows", index, carried.row, step.previous_rows)?;
    }
    let row_words = mask_row_words(vocab_size);
    let mask_rows = step.masks.len() / row_words.max(1);
    length("masks", step.masks.len(), mask_rows * row_words)?;
    for (row, sampling) in step.sampling.iter().enumerate() {
        range(
            "sampling history",
            row,
            sampling.history,
            step.history.len(),
        )?;
        range("sampling bias", row, sampling.bias, step.bias.len())?;
        check_row(row, sampling, (vocab_size, mask_rows, step.previous_rows))?;
    }
    Ok(())
}

/// Checks the indices of one row against the vocabulary, the masks and the previous verdicts.
fn check_row(
    row: usize,
    sampling: &SamplingRow,
    (vocab_size, mask_rows, previous_rows): (usize, usize, usize),
) -> Result<(), StepInputsError> {
    let within = |array, value: Option<u32>, limit| {
        value.map_or(Ok(()), |value| entry_below(array, row, value, limit))
    };
    let num_top = sampling.logprobs.map(|logprobs| logprobs.num_top);
    within("sampling mask", sampling.mask, mask_rows)?;
    within("sampling carried_row", sampling.carried_row, previous_rows)?;
    within("sampling target", sampling.target, vocab_size)?;
    let top_max = LOGPROBS_TOP_MAX.min(vocab_size);
    within("sampling num_top", num_top, top_max + 1)
}

/// Checks that a half-open range ascends and ends inside.
fn range(
    array: &'static str,
    index: usize,
    (start, end): (u32, u32),
    len: usize,
) -> Result<(), StepInputsError> {
    entry_below(array, index, end, len + 1)?;
    entry_below(array, index, start, end as usize + 1)
}

fn entry_below(
    array: &'static str,
    index: usize,
    value: u32,
    limit: usize,
) -> Result<(), StepInputsError> {
    if (value as usize) < limit {
        Ok(())
    } else {
        Err(StepInputsError::Index {
            array,
            index,
            value,
            limit,
        })
    }
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
