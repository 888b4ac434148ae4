//! What a sequence has to say before it may say it: samples among which the best are chosen are told
//! at the end.
//!
//! Neighbours: kept by `sequence/mod.rs`, replayed by `finish.rs` as events.

use crate::executor::RowLogprobs;
use crate::{TokenId, TokenLogprob};

/// Log-probabilities of each generated token, and their sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputLog {
    rows: Vec<LoggedRow>,
    top: Vec<TokenLogprob>,
    sum: f64,
}

#[derive(Clone, Copy, Debug)]
struct LoggedRow {
    chosen: TokenLogprob,
    rank: u32,
    top_end: usize,
}

impl OutputLog {
    /// The next token's.
    pub(crate) fn push(&mut self, logprobs: RowLogprobs<'_>) {
        self.top.extend_from_slice(logprobs.top);
        self.sum += f64::from(logprobs.chosen.logprob);
        self.rows.push(LoggedRow {
            chosen: logprobs.chosen,
            rank: logprobs.rank,
            top_end: self.top.len(),
        });
    }

    /// Tokens logged.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Natural logarithm of the probability of all tokens together.
    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }

    /// Sum per token; `-inf` of nothing.
    pub(crate) fn mean(&self) -> f64 {
        if self.rows.is_empty() {
            f64::NEG_INFINITY
        } else {
            self.sum / self.rows.len() as f64
        }
    }

    /// Generated tokens with the first `num_top` of the likeliest kept for each.
    pub(crate) fn iter(&self, num_top: usize) -> impl Iterator<Item = (TokenId, RowLogprobs<'_>)> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let top = &self.top[start..row.top_end];
            start = row.top_end;
            let logprobs = RowLogprobs {
                chosen: row.chosen,
                rank: row.rank,
                top: &top[..num_top.min(top.len())],
            };
            (row.chosen.token, logprobs)
        })
    }
}
