//! The logit rows of a step: whose logits are wanted, how they are processed, and what for.
//!
//! Neighbours: part of `step_batch/`; parameters come from a sequence's `sampling_params.rs`; rows of
//! drafts are in `draft_rows.rs`; `commit.rs` reads the purposes when the verdicts come.

use crate::sequence::{Draws, Sequence};
use crate::step_batch::{MaskFailure, StepBatch};
use crate::{
    Grammar, LogprobsKind, LogprobsParams, SamplingParams, TokenCount, TokenId, Verification,
};

/// How one logit row is processed and sampled. The fields of the chain are those of
/// [`SamplingParams`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingRow {
    /// 0 is greedy.
    pub temperature: f32,
    /// Seed of the row's noise.
    pub seed: u64,
    /// Position that the sampled token will take: with the seed it selects the noise.
    pub position: u32,
    /// 0 is off.
    pub top_k: u32,
    /// 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub min_p: f32,
    /// 1 is off.
    pub typical_p: f32,
    /// 1 is off.
    pub repetition_penalty: f32,
    /// 0 is off.
    pub presence_penalty: f32,
    /// 0 is off.
    pub frequency_penalty: f32,
    /// Half-open range of `StepBatch::history`; empty without penalties.
    pub history: (u32, u32),
    /// The newest token of the history is not in the range: this row of the step submitted before
    /// decides it.
    pub carried_row: Option<u32>,
    /// Half-open range of `StepBatch::bias`, each token at most once.
    pub bias: (u32, u32),
    /// Row of `StepBatch::masks`.
    pub mask: Option<u32>,
    /// Scores this token, nothing is drawn.
    pub target: Option<TokenId>,
    /// Log-probabilities wanted besides the verdict.
    pub logprobs: Option<LogprobsParams>,
    /// Rows after this one that are drafts of the same sequence, in the order of their nodes: not 0
    /// in the row of the anchor alone.
    pub num_drafts: u32,
    /// In the row of a draft: the row of its parent, earlier than its own. The draft token is the
    /// token of this row's position in the batch.
    pub parent_row: Option<u32>,
    /// In the row of a draft that was drawn: the row of the kept distributions it came from. Without
    /// it the draft is deterministic.
    pub draft_row: Option<u32>,
    /// How drafts of the sequence are verified, where it samples.
    pub verification: Verification,
    /// What the noise is for.
    pub purpose: NoisePurpose,
    /// Position of the anchor, so that noise of one step is not that of another.
    pub anchor: u32,
}

/// Draws for one position share noise only where they mean to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoisePurpose {
    /// Sampling, and drafts that are verified by shared noise. It does not depend on the anchor.
    #[default]
    Sample,
    /// Drafts that are verified by rejection.
    Draft,
}

impl SamplingRow {
    /// A row with the numbers of `params` and nothing else: no history, bias or mask.
    pub fn new(params: &SamplingParams, position: u32) -> Self {
        Self {
            temperature: params.temperature,
            seed: params.seed,
            position,
            top_k: params.top_k,
            top_p: params.top_p,
            min_p: params.min_p,
            typical_p: params.typical_p,
            repetition_penalty: params.repetition_penalty,
            presence_penalty: params.presence_penalty,
            frequency_penalty: params.frequency_penalty,
            history: (0, 0),
            carried_row: None,
            bias: (0, 0),
            mask: None,
            target: None,
            logprobs: None,
            num_drafts: 0,
            parent_row: None,
            draft_row: None,
            verification: Verification::SharedNoise,
            purpose: NoisePurpose::Sample,
            anchor: 0,
        }
    }
}

/// Added to the logit of a token: `-inf` bans it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenBias {
    /// The token.
    pub token: TokenId,
    /// The bias.
    pub bias: f32,
}

/// What comes of a logit row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowPurpose {
    /// The next token of a sample.
    Sample {
        /// Which sample of the request.
        sample: u32,
    },
    /// What follows a draft token of the sample whose row came last before.
    Draft {
        /// Index of the draft's node.
        node: u32,
    },
    /// Candidates of a beam.
    Candidates,
    /// The log-probability of a prompt token.
    PromptScore {
        /// Its position.
        position: u32,
    },
}

impl StepBatch {
    /// The rows of a sequence that runs `num_scheduled` tokens: those that score its prompt, then
    /// what its last token is for.
    pub(crate) fn push_rows(
        &mut self,
        index: u32,
        sequence: &mut Sequence,
        num_scheduled: usize,
        failures: &mut Vec<MaskFailure>,
    ) {
        self.push_prompt_scores(index, sequence, num_scheduled);
        if !sequence.is_sampled_after(num_scheduled) {
            return;
        }
        if !sequence.draft.is_empty() {
            return self.push_drafted_rows(index, sequence, failures);
        }
        let position = sequence.next_position();
        let mut grammar = sequence.grammar.take();
        let row = self.processed_row(sequence, grammar.as_mut(), (&[], position), failures);
        sequence.grammar = grammar;
        let last_token = self.token_ids.len() as u32 - 1;
        let mut push = |purpose, row| self.push_row(index, last_token, purpose, row);
        match sequence.draws {
            Draws::One => {
                let sample = sequence.sample;
                let seed = sequence.sampling.seed.wrapping_add(u64::from(sample));
                push(RowPurpose::Sample { sample }, SamplingRow { seed, ..row });
            }
            Draws::Fork(num_samples) => {
                for sample in 0..num_samples {
                    let seed = sequence.sampling.seed.wrapping_add(u64::from(sample));
                    push(RowPurpose::Sample { sample }, SamplingRow { seed, ..row });
                }
            }
            Draws::Candidates(num_top) => {
                let logprobs = Some(LogprobsParams {
                    num_top,
                    kind: LogprobsKind::Processed,
                });
                push(RowPurpose::Candidates, SamplingRow { logprobs, ..row });
            }
        }
    }

    /// A row with the whole chain of a sequence behind `path`, tokens that are not committed yet, for
    /// the token at `position`; `grammar` has taken the path. The caller sets the seed.
    pub(crate) fn processed_row(
        &mut self,
        sequence: &Sequence,
        grammar: Option<&mut Box<dyn Grammar>>,
        (path, position): (&[TokenId], usize),
        failures: &mut Vec<MaskFailure>,
    ) -> SamplingRow {
        let history_start = self.history.len();
        if let Some(counts) = &sequence.counts {
            self.history.extend(counts.iter());
            for &token in path {
                self.count(history_start, token);
            }
        }
        let has_counts = sequence.counts.is_some();
        let bias_start = self.bias.len() as u32;
        let mask = grammar.map(|grammar| self.push_mask(sequence, grammar, position, failures));
        self.push_biases(sequence, position, mask.is_some());
        SamplingRow {
            history: (history_start as u32, self.history.len() as u32),
            carried_row: sequence
                .placeholder_row
                .filter(|_| has_counts && sequence.num_placeholders > 0),
            bias: (bias_start, self.bias.len() as u32),
            mask,
            logprobs: sequence.logprobs,
            ..SamplingRow::new(&sequence.sampling, position as u32)
        }
    }

    /// One more generated token in the history that begins at `start`, which is in order of id.
    fn count(&mut self, start: usize, token: TokenId) {
        match self.history[start..].binary_search_by_key(&token, |count| count.token) {
            Ok(index) => self.history[start + index].num_output += 1,
            Err(index) => {
                let first = TokenCount {
                    token,
                    num_output: 1,
                    is_in_prompt: false,
                };
                self.history.insert(start + index, first);
            }
        }
    }

    /// The user's biases, and bans on tokens that would end the sequence too early. With a grammar
    /// these are part of its mask.
    fn push_biases(&mut self, sequence: &Sequence, position: usize, has_mask: bool) {
        let start = self.bias.len();
        if !has_mask {
            let banned = sequence.banned(position).map(|token| TokenBias {
                token,
                bias: f32::NEG_INFINITY,
            });
            for ban in banned {
                // A token may be an end token and a stop token.
                if !self.bias[start..].contains(&ban) {
                    self.bias.push(ban);
                }
            }
        }
        let num_banned = self.bias.len();
        for &(token, bias) in &sequence.sampling.logit_bias {
            let is_banned = self.bias[start..num_banned]
                .iter()
                .any(|ban| ban.token == token);
            if !is_banned {
                self.bias.push(TokenBias { token, bias });
            }
        }
    }

    /// The mask of a sequence with a grammar. End tokens that come too early are taken out, unless
    /// nothing else is left: then the grammar is at its end.
    fn push_mask(
        &mut self,
        sequence: &Sequence,
        grammar: &mut Box<dyn Grammar>,
        position: usize,
        failures: &mut Vec<MaskFailure>,
    ) -> u32 {
        let start = self.masks.len();
        let row = (start / self.mask_words) as u32;
        self.masks.resize(start + self.mask_words, 0);
        let mask = &mut self.masks[start..];
        if let Err(error) = grammar.fill_mask(mask) {
            mask.fill(0);
            let request = sequence.request;
            failures.push(MaskFailure { request, error });
            return row;
        }
        let bit = |token: TokenId| (token.0 as usize / 32, 1 << (token.0 % 32));
        let is_banned = |word: usize| {
            let bans = sequence
                .banned(position)
                .map(bit)
                .filter(|&(of, _)| of == word);
            bans.fold(0, |bits, (_, bit)| bits | bit)
        };
        let is_left = |(word, bits): (usize, &u32)| bits & !is_banned(word) != 0;
        let has_bans = sequence.banned(position).next().is_some();
        if has_bans && mask.iter().enumerate().any(is_left) {
            for (word, bit) in sequence.banned(position).map(bit) {
                mask[word] &= !bit;
            }
        }
        row
    }

    /// Rows that score the prompt tokens after those that run, as far as they were not told yet.
    fn push_prompt_scores(&mut self, index: u32, sequence: &Sequence, num_scheduled: usize) {
        let Some(scores) = sequence.prompt_scores else {
            return;
        };
        let first_token = self.token_ids.len() - num_scheduled;
        let first = sequence.num_computed + 1;
        for position in first.max(scores.num_told).max(1)..first + num_scheduled {
            if position >= sequence.num_prompt {
                return;
            }
            let row = SamplingRow {
                target: Some(sequence.tokens[position]),
                logprobs: Some(LogprobsParams {
                    num_top: scores.num_top,
                    kind: LogprobsKind::Raw,
                }),
                ..SamplingRow::new(&SamplingParams::default(), position as u32)
            };
            let token = (first_token + position - first) as u32;
            let position = position as u32;
            self.push_row(index, token, RowPurpose::PromptScore { position }, row);
        }
    }

    pub(crate) fn push_row(
        &mut self,
        index: u32,
        token: u32,
        purpose: RowPurpose,
        row: SamplingRow,
    ) {
        self.logit_rows.push(token);
        self.logit_seqs.push(index);
        self.purposes.push(purpose);
        self.sampling.push(row);
    }
}
