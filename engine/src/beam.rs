//! Beam search as a pure rule: from every beam's candidates to the beams of the next step.
//!
//! Neighbours: `beam_step.rs` applies the choice to sequences and blocks; parameters are
//! [`BeamParams`].
//!
//! Per step each beam offers its 2 x width likeliest tokens. All offers are ranked by the
//! log-probability of the whole continuation (of equals: the earlier beam, the likelier token). In
//! that order those that end the text become hypotheses, the others beams, until there are `width`
//! beams. A hypothesis of n generated tokens scores `sum / n^length_penalty`.

use crate::executor::RowLogprobs;
use crate::output_log::OutputLog;
use crate::{BeamParams, FinishReason, SeqId, TokenLogprob};

/// A beam search in progress.
#[derive(Clone, Debug)]
pub(crate) struct BeamSearch {
    params: BeamParams,
    /// In order of the last ranking.
    beams: Vec<Beam>,
    /// Ended continuations, best first; at most `width`.
    hypotheses: Vec<Hypothesis>,
}

/// A continuation that still grows.
#[derive(Clone, Debug)]
pub(crate) struct Beam {
    pub(crate) seq: SeqId,
    /// Log-probability of its generated tokens.
    pub(crate) sum: f64,
    /// Its next tokens, once its row was collected.
    candidates: Option<Vec<TokenLogprob>>,
}

/// An ended continuation.
#[derive(Clone, Debug)]
struct Hypothesis {
    /// Generated tokens.
    log: OutputLog,
    reason: FinishReason,
    score: f64,
}

/// One candidate of one beam.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offer {
    /// Index of the beam.
    pub(crate) beam: usize,
    /// How many tokens are at least as likely after that beam: 1 is the likeliest.
    pub(crate) rank: u32,
    pub(crate) token: TokenLogprob,
    /// Log-probability of the beam with it.
    pub(crate) sum: f64,
}

impl Beam {
    /// Its next tokens, best first.
    pub(crate) fn candidates(&self) -> &[TokenLogprob] {
        self.candidates.as_deref().unwrap_or_default()
    }
}

impl Offer {
    /// As log-probabilities of a row with these candidates, of which `num_top` were asked for.
    pub(crate) fn row_logprobs(
        self,
        candidates: &[TokenLogprob],
        num_top: usize,
    ) -> RowLogprobs<'_> {
        RowLogprobs {
            chosen: self.token,
            rank: self.rank,
            top: &candidates[..num_top.min(candidates.len())],
        }
    }
}

impl BeamSearch {
    /// Begins with the sequence that holds the prompt.
    pub(crate) fn new(params: BeamParams, seq: SeqId) -> Self {
        Self {
            params,
            beams: vec![Beam {
                seq,
                sum: 0.0,
                candidates: None,
            }],
            hypotheses: Vec::new(),
        }
    }

    /// So many candidates each beam is asked for, if `num_top` of them are to be told.
    pub(crate) fn num_candidates(params: BeamParams, num_top: u32, vocab_size: usize) -> u32 {
        params
            .width
            .saturating_mul(2)
            .max(num_top)
            .min(vocab_size as u32)
    }

    pub(crate) fn width(&self) -> usize {
        self.params.width as usize
    }

    pub(crate) fn beams(&self) -> &[Beam] {
        &self.beams
    }

    /// The candidates of the beam in sequence `seq`.
    pub(crate) fn set_candidates(&mut self, seq: SeqId, candidates: &[TokenLogprob]) {
        let beam = self.beams.iter_mut().find(|beam| beam.seq == seq);
        let beam = beam.expect("rows for candidates belong to beams");
        beam.candidates = Some(candidates.to_vec());
    }

    /// Whether every beam has its candidates.
    pub(crate) fn is_ready(&self) -> bool {
        self.beams.iter().all(|beam| beam.candidates.is_some())
    }

    /// Takes the candidates of every beam.
    pub(crate) fn take_candidates(&mut self) -> Vec<Vec<TokenLogprob>> {
        let beams = self.beams.iter_mut();
        beams
            .map(|beam| beam.candidates.take().unwrap_or_default())
            .collect()
    }

    /// All offers, best first. Masked tokens are none.
    pub(crate) fn ranked_offers(&self) -> Vec<Offer> {
        let mut offers = Vec::new();
        for (index, beam) in self.beams.iter().enumerate() {
            // More may have come, where the caller wants to see more.
            let candidates = beam.candidates.iter().flatten();
            offers.extend(
                candidates
                    .take(2 * self.width())
                    .enumerate()
                    .filter(|(_, token)| token.logprob > f32::NEG_INFINITY)
                    .map(|(place, &token)| Offer {
                        beam: index,
                        rank: place as u32 + 1,
                        token,
                        sum: beam.sum + f64::from(token.logprob),
                    }),
            );
        }
        // Stable: of equals the earlier beam and the likelier token stay first.
        offers.sort_by(|a, b| b.sum.total_cmp(&a.sum));
        offers
    }

    /// Whether an ended continuation with this log-probability would be kept.
    pub(crate) fn would_keep(&self, sum: f64, num_generated: usize) -> bool {
        let score = self.score(sum, num_generated);
        let worst = self.hypotheses.get(self.width() - 1);
        worst.is_none_or(|worst| score > worst.score)
    }

    /// Adds an ended continuation; only the best `width` are kept, of equals the earlier.
    pub(crate) fn add_hypothesis(&mut self, log: OutputLog, reason: FinishReason) {
        let score = self.score(log.sum(), log.len());
        let place = self.hypotheses.partition_point(|h| h.score >= score);
        let hypothesis = Hypothesis { log, reason, score };
        self.hypotheses.insert(place, hypothesis);
        self.hypotheses.truncate(self.width());
    }

    /// The beams of the next step, as sequences with the log-probability of what they generated.
    pub(crate) fn set_beams(&mut self, beams: impl IntoIterator<Item = (SeqId, f64)>) {
        self.beams.clear();
        self.beams.extend(beams.into_iter().map(|(seq, sum)| Beam {
            seq,
            sum,
            candidates: None,
        }));
    }

    /// Whether a beam, which has generated `num_generated` tokens and may reach `num_generated_max`,
    /// cannot beat the hypotheses that have ended, so that the search ends.
    pub(crate) fn is_decided(&self, num_generated: usize, num_generated_max: usize) -> bool {
        if self.beams.is_empty() {
            return true;
        }
        if self.hypotheses.len() < self.width() {
            return false;
        }
        if self.params.early_stopping {
            return true;
        }
        let worst = self.hypotheses[self.width() - 1].score;
        let best_sum = self.beams.iter().map(|beam| beam.sum);
        let best_sum = best_sum.fold(f64::NEG_INFINITY, f64::max);
        // A sum only falls. Dividing it by a greater power brings it nearer to zero, so with a
        // positive penalty the longest, else the shortest end is the best that can come.
        let at_end = self.score(best_sum, num_generated_max);
        let at_once = self.score(best_sum, num_generated + 1);
        at_end.max(at_once) < worst
    }

    /// Ended continuations, best first.
    pub(crate) fn into_hypotheses(self) -> impl Iterator<Item = (OutputLog, FinishReason)> {
        self.hypotheses.into_iter().map(|h| (h.log, h.reason))
    }

    fn score(&self, sum: f64, num_generated: usize) -> f64 {
        sum / (num_generated as f64).powf(f64::from(self.params.length_penalty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenId;

    fn params(width: u32, length_penalty: f32) -> BeamParams {
        BeamParams {
            width,
            length_penalty,
            early_stopping: false,
        }
    }

    fn token(token: u32, logprob: f32) -> TokenLogprob {
        TokenLogprob {
            token: TokenId(token),
            logprob,
        }
    }

    fn log(logprobs: &[f32]) -> OutputLog {
        let mut log = OutputLog::default();
        for &logprob in logprobs {
            log.push(RowLogprobs {
                chosen: token(1, logprob),
                rank: 1,
                top: &[],
            });
        }
        log
    }

    #[test]
    fn offers_are_ranked_over_all_beams_and_masked_tokens_are_none() {
        let mut search = BeamSearch::new(params(2, 1.0), SeqId(0));
        search.set_beams([(SeqId(0), -1.0), (SeqId(1), -2.0)]);
        search.set_candidates(SeqId(0), &[token(5, -2.0), token(6, f32::NEG_INFINITY)]);
        assert!(!search.is_ready());
        search.set_candidates(SeqId(1), &[token(7, -0.5), token(8, -1.0)]);
        assert!(search.is_ready());
        let offers = search.ranked_offers();
        let order: Vec<_> = offers.iter().map(|o| (o.beam, o.token.token.0)).collect();
        assert_eq!(
            order,
            [(1, 7), (0, 5), (1, 8)],
            "of equals the earlier beam"
        );
    }

    #[test]
    fn a_length_penalty_decides_between_short_and_long() {
        for (length_penalty, best_len) in [(0.0, 1), (1.0, 4)] {
            let mut search = BeamSearch::new(params(2, length_penalty), SeqId(0));
            search.add_hypothesis(log(&[-1.0]), FinishReason::Length);
            search.add_hypothesis(log(&[-0.5; 4]), FinishReason::Length);
            let (best, _) = search.into_hypotheses().next().unwrap();
            assert_eq!(best.len(), best_len);
        }
    }

    #[test]
    fn a_search_goes_on_while_a_beam_can_still_win() {
        let mut search = BeamSearch::new(params(1, 1.0), SeqId(0));
        search.set_beams([(SeqId(0), -3.0)]);
        assert!(!search.is_decided(2, 10), "nothing has ended");
        search.add_hypothesis(log(&[-0.4]), FinishReason::Length);
        // At best -3 over 10 tokens: -0.3.
        assert!(!search.is_decided(2, 10));
        assert!(search.is_decided(2, 7));
        search.set_beams([]);
        assert!(search.is_decided(2, 10));
    }
}
