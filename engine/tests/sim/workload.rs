//! What one seed asks of an engine: sizes, limits, and requests of every kind.
//!
//! Neighbours: `simulate.rs` sends what is made here.

use forerun_engine::{
    BeamParams, CacheKeys, DraftModelConfig, EngineConfig, ExecutorError, FailureScope,
    KvGroupConfig, LogprobsKind, LogprobsParams, OutputParams, PrefixCacheConfig,
    PrefixGranularity, Request, RequestId, SamplingParams, SchedulingConfig, SchedulingPolicy,
    SpecMethod, SpeculationConfig, SpeculationParams, StopParams, TokenId, WaitReason,
};

use crate::fake_grammar::FakeGrammar;
use crate::fake_model::{mix, nan_token};
use crate::faults::Fault;
use crate::job::Job;

/// Random numbers of one seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Uniform in `[low, high)`.
    pub(crate) fn within(&mut self, low: usize, high: usize) -> usize {
        self.0 = mix(self.0, 1);
        low + (self.0 % (high - low) as u64) as usize
    }

    /// Others, without using any up: what was added later leaves older seeds as they were.
    fn aside(&self, what: u64) -> Self {
        Self(mix(self.0, 1000 + what))
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.within(0, n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.within(0, of.len())]
    }
}

/// What kinds of things happen in a seed: each seed leaves some out, so that others come together
/// more often.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a kind of thing that happens or not, by itself"
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) num_requests: usize,
    pub(crate) has_faults: bool,
    pub(crate) has_aborts: bool,
    pub(crate) has_resets: bool,
    pub(crate) has_pins: bool,
    has_parked: bool,
    has_grammars: bool,
    has_samples: bool,
    has_beams: bool,
    has_penalties: bool,
    has_logprobs: bool,
    has_nan: bool,
    has_tenants: bool,
    has_drafts: bool,
}

impl Shape {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            num_requests: random.within(1, 5) * random.within(1, 12),
            has_faults: random.one_in(4),
            has_aborts: random.one_in(3),
            has_resets: random.one_in(6),
            has_pins: random.one_in(4),
            has_parked: random.one_in(3),
            has_grammars: random.one_in(3),
            has_samples: random.one_in(2),
            has_beams: random.one_in(3),
            has_penalties: random.one_in(2),
            has_logprobs: random.one_in(3),
            has_nan: random.one_in(4),
            has_tenants: random.one_in(3),
            has_drafts: random.aside(1).one_in(2),
        }
    }
}

pub(crate) fn config(random: &mut Random) -> EngineConfig {
    let block_size = 1 << random.within(0, 6);
    let vocab_size = if random.one_in(4) {
        random.within(2, 6)
    } else {
        random.within(6, 51)
    };
    let group = |random: &mut Random| KvGroupConfig {
        // From what one request needs to what all need.
        num_blocks: 1 + random.within(16, 260).div_ceil(block_size),
        window: random.one_in(3).then(|| random.within(1, 20)),
    };
    let step_seqs_max = random.within(1, 9);
    let num_eos = random.within(0, 3).min(vocab_size - 1);
    let prefix_cache = PrefixCacheConfig {
        enabled: !random.one_in(4),
        granularity: random.pick(&[PrefixGranularity::Block, PrefixGranularity::Token]),
        pinned_blocks_per_tenant_max: random.within(0, 30),
        model_keys: Vec::new(),
    };
    let scheduling = SchedulingConfig {
        policy: random.pick(&[SchedulingPolicy::Fcfs, SchedulingPolicy::Priority]),
        waiting_max: random.pick(&[3, 8, usize::MAX, usize::MAX]),
        prefill_tokens_max: random.one_in(3).then(|| random.within(1, 20)),
        wait_steps_max: random.pick(&[8, 30, 10_000, 10_000]),
        steps_in_flight_max: random.pick(&[1, 2, 2]),
    };
    let groups: Vec<_> = (0..random.within(1, 3)).map(|_| group(random)).collect();
    let mut aside = random.aside(2);
    // The draft model sees what the target sees, and has less room.
    let draft_groups = groups.iter().map(|group| KvGroupConfig {
        num_blocks: 2 + aside.within(0, group.num_blocks),
        window: group.window,
    });
    let speculation = SpeculationConfig {
        draft_model: Some(DraftModelConfig {
            groups: draft_groups.collect(),
            max_seq_len: aside.within(8, 70),
            cost: 300,
        }),
        num_tokens_max: aside.within(1, 10) as u32,
        ..SpeculationConfig::default()
    };
    EngineConfig {
        block_size,
        groups,
        step_tokens_max: step_seqs_max + random.within(0, 40),
        step_seqs_max,
        max_seq_len: random.within(8, 70),
        vocab_size,
        eos_token_ids: (0..num_eos)
            .map(|i| TokenId((vocab_size - 1 - i) as u32))
            .collect(),
        prefix_cache,
        scheduling,
        speculation,
    }
}

/// Makes requests.
pub(crate) struct Workload<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) config: &'a EngineConfig,
    pub(crate) shape: Shape,
    /// Sequences that have ended, to be gone on with.
    pub(crate) history: &'a [Vec<TokenId>],
}

impl Workload<'_> {
    pub(crate) fn job(&mut self) -> Job {
        let sampling = self.sampling();
        let output = self.output();
        let mut request = Request {
            prompt: self.prompt(),
            stop: self.stop(),
            sampling,
            output,
            priority: self.random.within(0, 3) as i32 - 1,
            cache_keys: self.keys(),
            waits_for: None,
            speculation: self.speculation(),
        };
        let vocab_size = self.config.vocab_size;
        let has_grammar = self.shape.has_grammars && self.random.one_in(3);
        let mut job = Job::new(request.clone());
        if has_grammar {
            let seed = self.random.within(0, 1000) as u64;
            let can_fail = self.random.one_in(3);
            let eos = &self.config.eos_token_ids;
            job.grammar = Some(FakeGrammar::new(seed, vocab_size, eos, can_fail));
            request.waits_for = Some(WaitReason::Grammar);
        } else if self.shape.has_parked && self.random.one_in(3) {
            let streams = self.random.one_in(2) && request.prompt.len() > 1;
            request.waits_for = Some(if streams {
                let first = self.random.within(1, request.prompt.len());
                let size = self.random.within(1, 9);
                job.pieces = request.prompt[first..]
                    .chunks(size)
                    .map(<[_]>::to_vec)
                    .collect();
                WaitReason::StreamingInput
            } else {
                WaitReason::RemoteKv
            });
        }
        // A failing grammar beside logits that are not finite: which comes first is open.
        let has_nan = self.shape.has_nan && !has_grammar && self.random.one_in(8);
        if let Some(nan) = nan_token(vocab_size).filter(|_| has_nan && job.pieces.is_empty()) {
            let place = if self.random.one_in(2) {
                request.prompt.len() - 1
            } else {
                self.random.within(0, request.prompt.len())
            };
            request.prompt[place] = TokenId(nan);
        }
        job.request = request;
        job
    }

    /// Begins like others of its family, or goes on with a sequence that has ended.
    fn prompt(&mut self) -> Vec<TokenId> {
        let limit = self.config.seq_len_max() - 1;
        let num_tokens = self.random.within(1, limit + 1);
        let vocab_size = self.config.vocab_size as u64;
        let nan = nan_token(self.config.vocab_size);
        let token = |hash: u64| {
            let id = (hash % vocab_size) as u32;
            TokenId(if Some(id) == nan { id - 1 } else { id })
        };
        let mut prompt = Vec::new();
        if !self.history.is_empty() && self.random.one_in(3) {
            let place = self.random.within(0, self.history.len());
            prompt.clone_from(&self.history[place]);
            prompt.retain(|token| Some(token.0) != nan);
            prompt.truncate(limit - 1);
            if self.random.one_in(3) {
                prompt.truncate(self.random.within(0, prompt.len() + 1));
            }
        } else {
            let family = self.random.within(0, 4) as u64;
            let num_shared = self
                .random
                .pick(&[0, num_tokens, num_tokens / 2, num_tokens]);
            prompt.extend((0..num_shared as u64).map(|i| token(mix(family, i))));
        }
        let num_more = num_tokens.saturating_sub(prompt.len()).max(1);
        let own = self.random.within(0, 1_000_000) as u64;
        prompt.extend((0..num_more as u64).map(|i| token(mix(own, i))));
        prompt.truncate(limit);
        prompt
    }

    fn stop(&mut self) -> StopParams {
        let random = &mut *self.random;
        let max_tokens = (!random.one_in(4)).then(|| random.within(1, 30) as u32);
        let min_tokens = if random.one_in(3) {
            random.within(0, 6).min(max_tokens.unwrap_or(6) as usize)
        } else {
            0
        };
        let mut stop = StopParams {
            max_tokens,
            min_tokens: min_tokens as u32,
            ignore_eos: random.one_in(2),
            ..StopParams::default()
        };
        if random.one_in(3) {
            stop.stop_strings = vec![b"abab".to_vec(), b"cc".to_vec()];
        }
        if random.one_in(3) {
            let token = random.within(0, self.config.vocab_size);
            stop.stop_token_ids = vec![TokenId(token as u32)];
        }
        stop
    }

    fn sampling(&mut self) -> SamplingParams {
        let random = &mut *self.random;
        let mut params = SamplingParams {
            temperature: random.pick(&[0.0, 0.0, 0.7, 1.5]),
            seed: random.within(0, 5) as u64,
            top_k: random.pick(&[0, 0, 1, 3, 100]),
            top_p: random.pick(&[1.0, 0.9]),
            min_p: random.pick(&[0.0, 0.05]),
            typical_p: random.pick(&[1.0, 0.95]),
            ..SamplingParams::default()
        };
        if self.shape.has_penalties && random.one_in(2) {
            params.repetition_penalty = random.pick(&[1.0, 1.5, 0.8]);
            params.presence_penalty = random.pick(&[0.0, 0.5]);
            params.frequency_penalty = random.pick(&[0.0, 0.8, -0.3]);
        }
        if self.shape.has_penalties && random.one_in(3) {
            for token in 0..self.config.vocab_size as u32 {
                if random.one_in(8) {
                    let bias = random.pick(&[f32::NEG_INFINITY, 2.0, -1.0]);
                    params.logit_bias.push((TokenId(token), bias));
                }
            }
        }
        params
    }

    fn output(&mut self) -> OutputParams {
        let random = &mut *self.random;
        let seqs_max = self.config.step_seqs_max;
        let mut output = OutputParams::default();
        if self.shape.has_beams && random.one_in(3) {
            let width = random.within(1, seqs_max.min(4) + 1) as u32;
            output.num_samples = random.within(1, width as usize + 1) as u32;
            output.beam = Some(BeamParams {
                width,
                length_penalty: random.pick(&[0.0, 1.0, 1.5, -0.5]),
                early_stopping: random.one_in(3),
            });
        } else if self.shape.has_samples && random.one_in(2) {
            output.num_samples = random.within(1, seqs_max.min(4) + 1) as u32;
            let most = seqs_max.min(5) + 1;
            let best_of = random.within(output.num_samples as usize, most.max(2));
            output.best_of = random.one_in(2).then_some(best_of as u32);
        }
        if self.shape.has_logprobs && random.one_in(2) {
            output.logprobs = Some(LogprobsParams {
                num_top: random.within(0, self.config.vocab_size.min(12) + 1) as u32,
                kind: random.pick(&[LogprobsKind::Raw, LogprobsKind::Processed]),
            });
        }
        if self.shape.has_logprobs && random.one_in(3) {
            let num_top = random.within(0, self.config.vocab_size.min(4));
            output.prompt_logprobs = Some(num_top as u32);
        }
        output
    }

    fn speculation(&self) -> SpeculationParams {
        let mut random = self.random.aside(3);
        let is_drafted = self.shape.has_drafts && !random.one_in(4);
        let methods = [
            SpecMethod::Custom,
            SpecMethod::Custom,
            SpecMethod::Custom,
            SpecMethod::Custom,
            SpecMethod::DraftModel,
            SpecMethod::LayerSkip,
            SpecMethod::Ngram,
            SpecMethod::Suffix,
            SpecMethod::Auto,
        ];
        SpeculationParams {
            method: is_drafted.then(|| random.pick(&methods)),
            num_tokens: random.one_in(3).then(|| random.within(0, 5) as u32),
            ..SpeculationParams::default()
        }
    }

    fn keys(&mut self) -> CacheKeys {
        if !self.shape.has_tenants {
            return CacheKeys::default();
        }
        let name = |random: &mut Random| match random.within(0, 3) {
            0 => None,
            1 => Some("a".to_string()),
            _ => Some("b".to_string()),
        };
        CacheKeys {
            tenant: name(self.random),
            adapter: name(self.random),
            extra: Vec::new(),
        }
    }
}

/// Something that goes wrong with a step. `num_requests` is how many there have been.
pub(crate) fn fault(random: &mut Random, num_requests: usize) -> Fault {
    let scope = if random.one_in(3) || num_requests == 0 {
        FailureScope::All
    } else {
        let mut any = || RequestId(random.within(0, num_requests) as u64);
        FailureScope::Requests(vec![any(), any()])
    };
    let error = ExecutorError {
        scope,
        message: "planted".into(),
    };
    let seed = random.within(0, 1000) as u64;
    match random.within(0, 8) {
        0..=2 => Fault::Submit(error),
        3..=4 => Fault::Collect(error),
        5 if random.one_in(2) => Fault::ExtraVerdict,
        5 => Fault::MissingVerdict,
        6 => Fault::NotFinite(seed),
        _ => Fault::NoSuchToken(seed),
    }
}
