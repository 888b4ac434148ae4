//! A model for tests: its next token is a function of the last one, its position and the seed.
//!
//! Neighbours: `openai/`, `driver/` and `batch/` test against it instead of a real model.

use std::collections::VecDeque;
use std::time::Duration;

use forerun_engine::{
    Engine, EngineConfig, Executor, ExecutorError, FailureScope, Grammar, GrammarError,
    KvGroupConfig, PrefixCacheConfig, SamplingRow, SchedulingConfig, StepBatch, StepOutput,
    TokenId, TokenLogprob, Verdict, Vocabulary,
};
use forerun_models::grammar::GrammarSource;
use forerun_models::text::{GenerationPrompt, Message, TextError};

use crate::codec::Codec;
use crate::driver::{Compiled, Driver, GrammarQueue};

pub(crate) const VOCAB_SIZE: usize = 64;
/// Its end token, which has a name and no text.
pub(crate) const EOS: TokenId = TokenId(0);
/// A token that is half a character.
const HALF: TokenId = TokenId(1);
/// The token that the fake grammar allows.
pub(crate) const ALLOWED: TokenId = TokenId(7);

/// Text as bytes: one token for each.
pub(crate) struct FakeCodec;

impl Vocabulary for FakeCodec {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        const LETTERS: &[u8; VOCAB_SIZE] =
            b"__abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        match id {
            EOS => b"",
            HALF => b"\xf0\x9f",
            TokenId(id) => LETTERS.get(id as usize..=id as usize).unwrap_or_default(),
        }
    }
}

impl Codec for FakeCodec {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TextError> {
        let id = |byte| TokenId(2 + u32::from(byte) % (VOCAB_SIZE as u32 - 2));
        Ok(text.bytes().map(id).collect())
    }

    fn encode_chat(
        &self,
        messages: &[Message],
        prompt: GenerationPrompt,
    ) -> Result<Vec<TokenId>, TextError> {
        let turn = |message: &Message| format!("{}:{};", message.role, message.content);
        let mut text: String = messages.iter().map(turn).collect();
        if prompt == GenerationPrompt::Add {
            text.push_str("assistant:");
        }
        self.encode(&text)
    }

    fn token_name(&self, id: TokenId) -> &[u8] {
        match id {
            EOS => b"<eos>",
            other => self.token_bytes(other),
        }
    }
}

/// Runs the fake model.
#[derive(Debug, Default)]
pub(crate) struct FakeExecutor {
    /// Outputs of steps that were not collected.
    pub(crate) submitted: VecDeque<StepOutput>,
    /// Steps from this one on fail.
    pub(crate) fails_from: Option<u32>,
    /// Every so many steps, one fails.
    pub(crate) fails_every: Option<u32>,
    /// Steps submitted.
    pub(crate) num_steps: u32,
    /// Most sequences of a step so far.
    pub(crate) num_seqs_max: usize,
}

impl Executor for FakeExecutor {
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError> {
        self.num_steps += 1;
        self.num_seqs_max = self.num_seqs_max.max(batch.num_seqs());
        let fails_now = self
            .fails_every
            .is_some_and(|n| self.num_steps.is_multiple_of(n));
        if fails_now || self.fails_from.is_some_and(|first| self.num_steps >= first) {
            return Err(ExecutorError {
                scope: FailureScope::All,
                message: "the device is gone".to_owned(),
            });
        }
        let mut output = StepOutput::default();
        for (&token, row) in batch.logit_rows.iter().zip(&batch.sampling) {
            let token = token as usize;
            let next = next_token(batch, token, row);
            let Some(asked) = row.logprobs else {
                output.push(Verdict::Token(next));
                continue;
            };
            // The last of the likeliest is masked, as after a filter.
            let top = (0..asked.num_top).map(|rank| TokenLogprob {
                token: TokenId((next.0 + rank) % VOCAB_SIZE as u32),
                logprob: match rank {
                    0 => -0.5,
                    rank if rank + 1 == asked.num_top => f32::NEG_INFINITY,
                    rank => -(rank as f32),
                },
            });
            let chosen = TokenLogprob {
                token: next,
                logprob: -0.5,
            };
            output.push_with_logprobs(Verdict::Token(next), chosen, 1, top);
        }
        self.submitted.push_back(output);
        Ok(())
    }

    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        *output = self.submitted.pop_front().expect("a step was submitted");
        Ok(())
    }
}

fn next_token(batch: &StepBatch, token: usize, row: &SamplingRow) -> TokenId {
    if let Some(target) = row.target {
        return target;
    }
    if let Some(mask) = row.mask {
        let words = &batch.masks[mask as usize * batch.mask_words..][..batch.mask_words];
        let is_set = |id: &u32| words[*id as usize / 32] >> (id % 32) & 1 == 1;
        let first = (0..VOCAB_SIZE as u32).find(is_set);
        return TokenId(first.expect("a mask allows something"));
    }
    let seed = if row.temperature > 0.0 { row.seed } else { 0 };
    let mixed = (u64::from(batch.token_ids[token]) * 31 + u64::from(row.position) * 7 + seed)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Never the end token: tests say how long answers are.
    TokenId(1 + (mixed >> 40) as u32 % (VOCAB_SIZE as u32 - 1))
}

/// Allows one token, twice.
#[derive(Clone, Debug)]
struct TwiceAllowed {
    num_left: u32,
}

impl Grammar for TwiceAllowed {
    fn fill_mask(&mut self, mask: &mut [u32]) -> Result<(), GrammarError> {
        mask[0] |= 1 << ALLOWED.0;
        Ok(())
    }

    fn accept(&mut self, _token: TokenId) -> Result<(), GrammarError> {
        self.num_left -= 1;
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.num_left == 0
    }

    fn fork(&self) -> Box<dyn Grammar> {
        Box::new(self.clone())
    }
}

/// Has a grammar ready after being asked a few times; regexes are wrong.
#[derive(Debug, Default)]
pub(crate) struct FakeGrammars {
    waiting: VecDeque<(u64, GrammarSource)>,
    num_asked: u32,
    /// How often it was waited for.
    pub(crate) num_waits: u32,
}

impl GrammarQueue for FakeGrammars {
    fn submit(&mut self, ticket: u64, source: GrammarSource) {
        self.waiting.push_back((ticket, source));
    }

    fn try_finished(&mut self) -> Option<(u64, Compiled)> {
        self.num_asked += 1;
        if !self.num_asked.is_multiple_of(5) {
            return None;
        }
        let (ticket, source) = self.waiting.pop_front()?;
        let compiled: Compiled = match source {
            GrammarSource::Regex(_) => Err("the regex is wrong".to_owned()),
            _ => Ok(Box::new(TwiceAllowed { num_left: 2 })),
        };
        Some((ticket, compiled))
    }

    fn wait_finished(&mut self, _timeout: Duration) -> Option<(u64, Compiled)> {
        self.num_waits += 1;
        self.try_finished()
    }
}

/// Four sequences at once, two more waiting.
pub(crate) fn config() -> EngineConfig {
    EngineConfig {
        block_size: 4,
        groups: vec![KvGroupConfig {
            num_blocks: 257,
            window: None,
        }],
        step_tokens_max: 64,
        step_seqs_max: 4,
        max_seq_len: 200,
        vocab_size: VOCAB_SIZE,
        eos_token_ids: vec![EOS],
        prefix_cache: PrefixCacheConfig::default(),
        scheduling: SchedulingConfig {
            waiting_max: 2,
            ..SchedulingConfig::default()
        },
        speculation: forerun_engine::SpeculationConfig::default(),
    }
}

/// A driver over the fake model.
pub(crate) fn driver() -> Driver<FakeExecutor, FakeCodec, FakeGrammars> {
    driver_over(FakeExecutor::default())
}

/// A driver over this executor.
pub(crate) fn driver_over(executor: FakeExecutor) -> Driver<FakeExecutor, FakeCodec, FakeGrammars> {
    let engine = Engine::new(config(), executor, FakeCodec).expect("the configuration is sound");
    Driver::new(engine, FakeGrammars::default())
}
