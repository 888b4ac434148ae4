//! Native carrying of tokens: see the contract in [`super`].

use crate::step_inputs::{CARRIED_WORDS, SAMPLING_WORDS, StepView, flag, header, word};

/// Fills in the carried tokens.
///
/// # Shapes
/// `step` as [`crate::step_inputs`] packs it, `previous [R', row_words]`.
pub fn advance(step: &mut [u32], previous: &[u32], row_words: usize) {
    let view = StepView::new(step);
    let (num_carried, num_rows) = (view.carried().count(), view.num_logit_rows());
    let token_of = |row: u32| previous[row as usize * row_words];
    let carried = step[header::CARRIED] as usize;
    let token_ids = step[header::TOKEN_IDS] as usize;
    for i in 0..num_carried {
        let entry = carried + i * CARRIED_WORDS;
        let (token, row) = (step[entry] as usize, step[entry + 1]);
        step[token_ids + token] = token_of(row);
    }
    let sampling = step[header::SAMPLING] as usize;
    for row in 0..num_rows {
        let words = &mut step[sampling + row * SAMPLING_WORDS..][..SAMPLING_WORDS];
        if words[word::FLAGS] & flag::CARRIED != 0 {
            words[word::CARRIED_TOKEN] = token_of(words[word::CARRIED_ROW]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_inputs::{CarriedToken, SamplingRow, StepArrays, StepCapacity, StepInputs};

    #[test]
    fn carried_tokens_come_from_their_rows_and_everything_else_stays() {
        let row = |carried_row| SamplingRow {
            carried_row,
            ..SamplingRow::greedy(0)
        };
        let mut inputs = StepInputs::new(StepCapacity {
            tokens: 5,
            seqs: 2,
            logit_rows: 4,
            carried: 3,
            ..StepCapacity::default()
        });
        let carried = |token, row| CarriedToken { token, row };
        let step = StepArrays {
            token_ids: &[1, 2, 3, 4],
            positions: &[0, 1, 0, 1],
            seq_of_token: &[0, 0, 1, 1],
            query_offsets: &[0, 2, 4],
            context_lens: &[2, 2],
            logit_rows: &[1, 2, 3],
            sampling: &[row(Some(2)), row(None), row(Some(0))],
            carried: &[carried(3, 2), carried(0, 1)],
            previous_rows: 3,
            ..StepArrays::default()
        };
        inputs.fill(&step, 100).unwrap();
        let before = inputs.words().to_vec();
        let mut words = before.clone();
        advance(&mut words, &[70, 0, 9, 80, 0, 9, 90, 0, 9], 3);
        let view = StepView::new(&words);
        assert_eq!(view.token_ids(), [80, 2, 3, 90]);
        let tokens: Vec<_> = (0..3).map(|row| view.carried_token(row)).collect();
        assert_eq!(tokens, [Some(90), None, Some(70)]);
        let num_changed = before.iter().zip(&words).filter(|(a, b)| a != b).count();
        assert_eq!(num_changed, 4);
    }
}
