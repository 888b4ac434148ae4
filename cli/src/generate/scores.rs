//! Log-probabilities of a run: in the JSON object, and as a table after the text.
//!
//! Neighbours: `mod.rs` asks for both; the scores come from `driver/outcome.rs`.

use std::io::{self, Write};

use serde::Serialize;

use crate::codec::Codec;
use crate::driver::{Outcome, ScoredToken};

/// Characters of a token that the table shows.
const SHOWN_CHARS_MAX: usize = 20;

/// A token with its score.
#[derive(Debug, Serialize)]
pub(super) struct TokenScore {
    token_id: u32,
    token: String,
    /// Nothing for the first token of a prompt, and where it is minus infinity.
    logprob: Option<f32>,
    /// 1 is the likeliest.
    rank: Option<u32>,
    /// The likeliest, in descending order.
    top: Vec<TopScore>,
}

#[derive(Debug, Serialize)]
struct TopScore {
    token_id: u32,
    token: String,
    logprob: Option<f32>,
}

/// The scores of an outcome, with the texts of their tokens.
pub(super) struct ScoreTable<'a> {
    name: Box<dyn Fn(forerun_engine::TokenId) -> String + 'a>,
    outcome: &'a Outcome,
}

impl<'a> ScoreTable<'a> {
    pub(super) fn new(codec: &'a impl Codec, outcome: &'a Outcome) -> Self {
        let name = |id| String::from_utf8_lossy(codec.token_name(id)).into_owned();
        Self {
            name: Box::new(name),
            outcome,
        }
    }

    /// Of the prompt.
    pub(super) fn prompt(&self) -> Vec<TokenScore> {
        self.of(&self.outcome.prompt)
    }

    /// Of these tokens.
    pub(super) fn of(&self, tokens: &[ScoredToken]) -> Vec<TokenScore> {
        let finite = |logprob: f32| logprob.is_finite().then_some(logprob);
        let score = |scored: &ScoredToken| {
            let scores = scored.scores.as_ref();
            let top = scores.map_or(&[][..], |scores| &scores.top);
            let top_score = |top: &forerun_engine::TokenLogprob| TopScore {
                token_id: top.token.0,
                token: (self.name)(top.token),
                logprob: finite(top.logprob),
            };
            TokenScore {
                token_id: scored.token.0,
                token: (self.name)(scored.token),
                logprob: scores.and_then(|scores| finite(scores.logprob)),
                rank: scores.map(|scores| scores.rank),
                top: top.iter().map(top_score).collect(),
            }
        };
        tokens.iter().map(score).collect()
    }

    /// A table per text that has scores.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write_table(out, "prompt", &self.prompt())?;
        for (index, sample) in self.outcome.samples.iter().enumerate() {
            let scores = self.of(&sample.tokens);
            if scores.iter().any(|score| score.logprob.is_some()) {
                write_table(out, &format!("sample {index}"), &scores)?;
            }
        }
        Ok(())
    }
}

fn write_table(out: &mut impl Write, title: &str, scores: &[TokenScore]) -> io::Result<()> {
    if scores.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(out, "{title:<22} {:>9} {:>7}  likeliest", "logprob", "rank")?;
    let number = |logprob: Option<f32>| {
        logprob.map_or_else(|| "-".to_owned(), |logprob| format!("{logprob:.4}"))
    };
    for score in scores {
        let rank = score
            .rank
            .map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let top: Vec<String> = score
            .top
            .iter()
            .map(|top| format!("{} {}", shown(&top.token), number(top.logprob)))
            .collect();
        writeln!(
            out,
            "{:<22} {:>9} {rank:>7}  {}",
            shown(&score.token),
            number(score.logprob),
            top.join(", ")
        )?;
    }
    Ok(())
}

/// A token in quotes, with white space visible.
fn shown(token: &str) -> String {
    let mut escaped = token.escape_debug().to_string();
    if let Some((end, _)) = escaped.char_indices().nth(SHOWN_CHARS_MAX - 1) {
        escaped.truncate(end);
        escaped.push('…');
    }
    format!("\"{escaped}\"")
}
