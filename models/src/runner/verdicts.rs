//! Reads the rows that come down from the device.
//!
//! Neighbours: the words are those of the ops `sample` and `logprobs` of `forerun_kernels`; the
//! engine takes them as a [`StepOutput`].

use forerun_engine::{StepBatch, StepOutput, TokenId, TokenLogprob, Verdict};
use forerun_kernels::logprobs;
use forerun_kernels::verify::{STATUS_TOKEN, STATUS_UNREACHED};

use super::RunnerError;
use super::upload::RowPadding;

/// Words of a row that is a verdict and nothing else: token id, status.
const VERDICT_WORDS: usize = 2;

/// How the rows of a step look.
#[derive(Clone, Debug)]
pub(super) struct RowFormat {
    /// Likeliest tokens in each row; `None` where no row asks for log-probabilities.
    num_top: Option<usize>,
    /// What each row asked for.
    rows: Vec<RowRequest>,
}

#[derive(Clone, Copy, Debug)]
struct RowRequest {
    /// Likeliest tokens, if log-probabilities were asked for.
    num_top: Option<u32>,
    /// Token that was scored.
    target: Option<TokenId>,
}

impl RowFormat {
    pub(super) fn of(batch: &StepBatch, padding: RowPadding, vocab_size: usize) -> Self {
        let rows: Vec<_> = batch
            .sampling
            .iter()
            .map(|row| RowRequest {
                num_top: row.logprobs.map(|asked| asked.num_top),
                target: row.target,
            })
            .collect();
        let num_top = rows.iter().filter_map(|row| row.num_top).max();
        Self {
            num_top: num_top.map(|num_top| padding.round(num_top as usize).min(vocab_size)),
            rows,
        }
    }

    pub(super) fn num_top(&self) -> Option<usize> {
        self.num_top
    }

    /// Reads `words [R, W]`, rows past the live ones included.
    pub(super) fn read(&self, words: &[u32], output: &mut StepOutput) -> Result<(), RunnerError> {
        let row_words = self
            .num_top
            .map_or(VERDICT_WORDS, |num_top| logprobs::ROW_WORDS + 2 * num_top);
        let expected = self.rows.len() * row_words;
        let live = words.get(..expected).ok_or(RunnerError::Verdicts {
            expected,
            found: words.len(),
        })?;
        for (row, words) in self.rows.iter().zip(live.chunks_exact(row_words)) {
            row.read(words, output);
        }
        Ok(())
    }
}

impl RowRequest {
    fn read(self, words: &[u32], output: &mut StepOutput) {
        let verdict = match words[1] {
            STATUS_TOKEN => Verdict::Token(TokenId(words[0])),
            STATUS_UNREACHED => Verdict::Unreached,
            _ => Verdict::NotFinite,
        };
        let (Some(num_top), Verdict::Token(token)) = (self.num_top, verdict) else {
            return output.push(verdict);
        };
        let chosen = TokenLogprob {
            token: self.target.unwrap_or(token),
            logprob: f32::from_bits(words[2]),
        };
        let pairs = words[logprobs::ROW_WORDS..].chunks_exact(2);
        let top = pairs.take(num_top as usize).map(|pair| TokenLogprob {
            token: TokenId(pair[0]),
            logprob: f32::from_bits(pair[1]),
        });
        output.push_with_logprobs(verdict, chosen, words[3], top);
    }
}
