//! What a request gives when it runs alone: a list of tokens, a search of the whole text, no
//! blocks, no steps.
//!
//! Neighbours: `beam_oracle.rs` for beams; `checkers.rs` compares.

use forerun_engine::{
    EngineConfig, FailureCause, FinishReason, Grammar, LogprobsKind, LogprobsParams, StopCause,
    TokenId, Vocabulary,
};

use crate::beam_oracle;
use crate::fake_grammar::FakeGrammar;
use crate::fake_model::{
    Chain, Counts, FakeVocabulary, Scores, choose, nan_token, raw_logits, scores, see, visible,
};
use crate::job::{Job, SampleOutput};

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Those to be returned, in order.
    pub(crate) samples: Vec<SampleOutput>,
    /// Those drawn, of which the best are returned.
    pub(crate) drawn: Vec<SampleOutput>,
    pub(crate) prompt_scores: Vec<(TokenId, Option<Scores>)>,
}

/// A context, and what each of its tokens left.
#[derive(Clone)]
pub(crate) struct Walk<'a> {
    config: &'a EngineConfig,
    pub(crate) tokens: Vec<TokenId>,
    states: Vec<u64>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(config: &'a EngineConfig, tokens: &[TokenId]) -> Self {
        let mut walk = Self {
            config,
            tokens: Vec::new(),
            states: Vec::new(),
        };
        for &token in tokens {
            walk.push(token);
        }
        walk
    }

    pub(crate) fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
        let position = self.tokens.len() - 1;
        self.states
            .push(self.attend(position, |p| u64::from(self.tokens[p].0)));
    }

    fn attend(&self, position: usize, of: impl Fn(usize) -> u64) -> u64 {
        let mut hash = 0;
        for group in &self.config.groups {
            for seen in visible(position as u32, group.window) {
                hash = see(hash, seen, of(seen as usize));
            }
        }
        hash
    }

    /// The model's logits after the token at `position`; none if they are not finite.
    pub(crate) fn logits_after(&self, position: usize) -> Option<Vec<f32>> {
        let vocab_size = self.config.vocab_size;
        if Some(self.tokens[position].0) == nan_token(vocab_size) {
            return None;
        }
        let hash = self.attend(position, |p| self.states[p]);
        Some(raw_logits(hash, vocab_size))
    }
}

/// How the text of a sample grows and ends.
#[derive(Clone)]
pub(crate) struct Ending<'a> {
    job: &'a Job,
    config: &'a EngineConfig,
    pub(crate) grammar: Option<FakeGrammar>,
    pub(crate) text: Vec<u8>,
}

impl<'a> Ending<'a> {
    pub(crate) fn new(job: &'a Job, config: &'a EngineConfig) -> Self {
        Self {
            job,
            config,
            grammar: job.grammar.clone(),
            text: Vec::new(),
        }
    }

    /// Tokens that must not come after `num_generated`.
    fn banned(&self, num_generated: usize) -> Vec<TokenId> {
        let stop = &self.job.request.stop;
        let mut banned = Vec::new();
        if num_generated < stop.min_tokens as usize {
            banned.extend(&stop.stop_token_ids);
            if !stop.ignore_eos {
                banned.extend(&self.config.eos_token_ids);
            }
        }
        banned
    }

    /// Raw and processed logits after a context.
    pub(crate) fn process(
        &mut self,
        walk: &Walk<'_>,
    ) -> Result<(Vec<f32>, Vec<f32>), FinishReason> {
        let num_prompt = self.job.request.prompt.len();
        let banned = self.banned(walk.tokens.len() - num_prompt);
        let mask = self.mask(&banned)?;
        let position = walk.tokens.len() - 1;
        let not_finite = || FinishReason::Error(FailureCause::NotFinite { position });
        let raw = walk.logits_after(position).ok_or_else(not_finite)?;
        let params = &self.job.request.sampling;
        let mut counts = Counts::new();
        if params.has_penalties() {
            for (place, token) in walk.tokens.iter().enumerate() {
                let entry = counts.entry(token.0).or_default();
                entry.0 += u32::from(place >= num_prompt);
                entry.1 |= place < num_prompt;
            }
        }
        let mut bias: Vec<_> = params.logit_bias.iter().map(|&(t, b)| (t.0, b)).collect();
        if mask.is_none() {
            bias.extend(banned.iter().map(|token| (token.0, f32::NEG_INFINITY)));
        }
        let chain = Chain {
            params,
            bias: &bias,
            counts: &counts,
            mask: mask.as_deref(),
        };
        let mut logits = raw.clone();
        chain.process(&mut logits);
        if logits.iter().any(|logit| logit.is_finite()) {
            Ok((raw, logits))
        } else {
            Err(not_finite())
        }
    }

    fn mask(&mut self, banned: &[TokenId]) -> Result<Option<Vec<u32>>, FinishReason> {
        let Some(grammar) = &mut self.grammar else {
            return Ok(None);
        };
        let mut mask = vec![0; self.config.vocab_size.div_ceil(32)];
        if let Err(error) = grammar.fill_mask(&mut mask) {
            return Err(FinishReason::Error(FailureCause::Grammar(error.message)));
        }
        let mut without = mask.clone();
        for token in banned {
            without[token.0 as usize / 32] &= !(1 << (token.0 % 32));
        }
        let is_empty = without.iter().all(|&word| word == 0);
        Ok(Some(if is_empty { mask } else { without }))
    }

    /// Takes `token`, which makes the sample `num_generated` long. Why it ends, if it does.
    pub(crate) fn push(&mut self, token: TokenId, num_generated: usize) -> Option<FinishReason> {
        let stopped = self.stopped_by(token, num_generated);
        let Some(grammar) = &mut self.grammar else {
            return stopped;
        };
        if let Err(error) = grammar.accept(token) {
            return Some(FinishReason::Error(FailureCause::Grammar(error.message)));
        }
        match stopped {
            None | Some(FinishReason::Length) if grammar.is_finished() => {
                Some(FinishReason::Stop(StopCause::Grammar))
            }
            stopped => stopped,
        }
    }

    fn stopped_by(&mut self, token: TokenId, num_generated: usize) -> Option<FinishReason> {
        let stop = &self.job.request.stop;
        if self.config.eos_token_ids.contains(&token) && !stop.ignore_eos {
            return Some(FinishReason::Stop(StopCause::Eos(token)));
        }
        if stop.stop_token_ids.contains(&token) {
            return Some(FinishReason::Stop(StopCause::Token(token)));
        }
        let old_len = self.text.len();
        self.text
            .extend_from_slice(FakeVocabulary.token_bytes(token));
        for end in old_len + 1..=self.text.len() {
            let ends = |s: &&Vec<u8>| self.text[..end].ends_with(s);
            let longest = stop.stop_strings.iter().filter(ends).map(Vec::len).max();
            if let Some(len) = longest {
                let string = &self.text[end - len..end];
                let which = stop.stop_strings.iter().position(|s| s == string);
                let cause = StopCause::String(which.expect("it was just found"));
                self.text.truncate(end - len);
                return Some(FinishReason::Stop(cause));
            }
        }
        let num_tokens = self.job.request.prompt.len() + num_generated;
        let is_full = stop.max_tokens == Some(num_generated as u32)
            || num_tokens == self.config.seq_len_max();
        is_full.then_some(FinishReason::Length)
    }
}

/// The answer to `job`, one token after another.
pub(crate) fn answer(job: &Job, config: &EngineConfig) -> Answer {
    let (prompt_scores, failed) = score_prompt(job, config);
    let output = &job.request.output;
    let failed = failed.or_else(|| first_failure(job, config));
    if let Some(reason) = failed {
        let sample = SampleOutput {
            reason: Some(reason),
            ..SampleOutput::default()
        };
        let samples = vec![sample; output.num_samples as usize];
        return Answer {
            drawn: samples.clone(),
            samples,
            prompt_scores,
        };
    }
    let (drawn, mut samples) = if let Some(beam) = output.beam {
        let samples = beam_oracle::search(job, beam, config);
        (samples.clone(), samples)
    } else {
        let draw = |i| sample(job, i, config);
        let drawn: Vec<_> = (0..output.width() as u64).map(draw).collect();
        let mut best = drawn.clone();
        if !output.is_streamed() {
            let failed = |s: &SampleOutput| matches!(s.reason, Some(FinishReason::Error(_)));
            best.sort_by(|a, b| failed(a).cmp(&failed(b)).then(mean(b).total_cmp(&mean(a))));
        }
        (drawn, best)
    };
    samples.truncate(output.num_samples as usize);
    let mut answer = Answer {
        samples,
        drawn,
        prompt_scores,
    };
    if output.logprobs.is_none() {
        let all = answer.samples.iter_mut().chain(&mut answer.drawn);
        all.for_each(|sample| sample.scores.fill(None));
    }
    answer
}

/// Log-probability per token.
fn mean(sample: &SampleOutput) -> f64 {
    if sample.tokens.is_empty() {
        return f64::NEG_INFINITY;
    }
    let scores = sample.scores.iter().flatten();
    let sum: f64 = scores.map(|s| f64::from(s.chosen.logprob)).sum();
    sum / sample.tokens.len() as f64
}

fn score_prompt(
    job: &Job,
    config: &EngineConfig,
) -> (Vec<(TokenId, Option<Scores>)>, Option<FinishReason>) {
    let prompt = &job.request.prompt;
    let Some(num_top) = job.request.output.prompt_logprobs else {
        return (Vec::new(), None);
    };
    let walk = Walk::new(config, prompt);
    let mut told = vec![(prompt[0], None)];
    for (position, &token) in prompt.iter().enumerate().skip(1) {
        let Some(logits) = walk.logits_after(position - 1) else {
            let position = position - 1;
            let cause = FailureCause::NotFinite { position };
            return (told, Some(FinishReason::Error(cause)));
        };
        told.push((token, Some(scores(&logits, token, num_top as usize))));
    }
    (told, None)
}

/// Why the whole request ends before its first token, if it does: while it is one sequence still, a
/// failure is everybody's.
fn first_failure(job: &Job, config: &EngineConfig) -> Option<FinishReason> {
    let walk = Walk::new(config, &job.request.prompt);
    Ending::new(job, config).process(&walk).err()
}

/// Sample `index` of a request: the only sample of one with that seed.
fn sample(job: &Job, index: u64, config: &EngineConfig) -> SampleOutput {
    let mut walk = Walk::new(config, &job.request.prompt);
    let mut ending = Ending::new(job, config);
    let params = &job.request.sampling;
    let seed = params.seed.wrapping_add(index);
    let asked = job.request.output.logprobs.unwrap_or(LogprobsParams {
        num_top: 0,
        kind: LogprobsKind::Processed,
    });
    let mut output = SampleOutput::default();
    let reason = loop {
        let (raw, logits) = match ending.process(&walk) {
            Ok(logits) => logits,
            Err(reason) => break reason,
        };
        let position = walk.tokens.len() as u32;
        let token = choose(&logits, params, seed, position).expect("some logit is finite");
        let of = match asked.kind {
            LogprobsKind::Raw => &raw,
            LogprobsKind::Processed => &logits,
        };
        output.tokens.push(token);
        output
            .scores
            .push(Some(scores(of, token, asked.num_top as usize)));
        walk.push(token);
        if let Some(reason) = ending.push(token, output.tokens.len()) {
            break reason;
        }
    };
    output.text = ending.text;
    output.reason = Some(reason);
    output
}
