//! An engine over the fake executor, checked after every step.

use std::collections::BTreeMap;

use forerun_engine::{
    AdmissionError, Engine, EngineConfig, Event, FinishReason, KvGroupConfig, Request, RequestId,
    SamplingParams, StopParams, TokenId, Usage, Vocabulary,
};

use crate::fake_executor::FakeExecutor;
use crate::fake_model::{EOS, FakeVocabulary, VOCAB_SIZE};
use crate::oracle::{self, Answer};

pub(crate) type FakeEngine = Engine<FakeExecutor, FakeVocabulary>;

/// One group of `num_blocks` usable blocks, all else ample.
pub(crate) fn config(block_size: usize, num_blocks: usize) -> EngineConfig {
    EngineConfig {
        block_size,
        groups: vec![KvGroupConfig {
            num_blocks: num_blocks + 1,
            window: None,
        }],
        step_tokens_max: 512,
        step_seqs_max: 16,
        max_seq_len: 512,
        vocab_size: VOCAB_SIZE as usize,
        eos_token_ids: EOS.to_vec(),
        prefix_cache: forerun_engine::PrefixCacheConfig::default(),
    }
}

/// A greedy request whose prompt depends on `salt`, which goes on past end tokens.
pub(crate) fn request(salt: u64, num_prompt: usize, max_tokens: u32) -> Request {
    let token = |i| TokenId((crate::fake_model::mix(salt, i as u64) % 37) as u32);
    Request {
        prompt: (0..num_prompt).map(token).collect(),
        sampling: SamplingParams {
            temperature: 0.0,
            seed: salt,
        },
        stop: StopParams {
            max_tokens: Some(max_tokens),
            ignore_eos: true,
            ..Default::default()
        },
    }
}

/// What came of a request so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) text: Vec<u8>,
    pub(crate) end: Option<(FinishReason, Usage)>,
}

pub(crate) struct Harness {
    pub(crate) engine: FakeEngine,
    pub(crate) requests: BTreeMap<RequestId, Request>,
    pub(crate) progress: BTreeMap<RequestId, Progress>,
    pub(crate) num_preemptions: usize,
}

impl Harness {
    pub(crate) fn new(config: EngineConfig) -> Self {
        let executor = FakeExecutor::new(&config);
        let engine = Engine::new(config, executor, FakeVocabulary).unwrap();
        Self {
            engine,
            requests: BTreeMap::new(),
            progress: BTreeMap::new(),
            num_preemptions: 0,
        }
    }

    pub(crate) fn try_add(&mut self, request: Request) -> Result<RequestId, AdmissionError> {
        let id = self.engine.add_request(request.clone())?;
        self.requests.insert(id, request);
        self.progress.insert(id, Progress::default());
        self.engine.check_integrity().unwrap();
        Ok(id)
    }

    pub(crate) fn add(&mut self, request: Request) -> RequestId {
        self.try_add(request).unwrap()
    }

    pub(crate) fn abort(&mut self, id: RequestId) {
        self.engine.abort(id);
        self.engine.check_integrity().unwrap();
    }

    /// One step; its events are added to the progress.
    pub(crate) fn step(&mut self) {
        for event in self.engine.step().iter() {
            match event {
                Event::Token {
                    request,
                    token,
                    text,
                } => {
                    let progress = self.progress.get_mut(&request).unwrap();
                    assert!(progress.end.is_none(), "a token after the end of {request}");
                    progress.tokens.push(token);
                    progress.text.extend_from_slice(text);
                }
                Event::Finished {
                    request,
                    reason,
                    usage,
                    text,
                } => {
                    let progress = self.progress.get_mut(&request).unwrap();
                    progress.text.extend_from_slice(text);
                    let before = progress.end.replace((reason.clone(), usage));
                    assert!(before.is_none(), "{request} ended twice");
                }
            }
        }
        self.num_preemptions += self.engine.last_plan().preempted.len();
        self.engine.check_integrity().unwrap();
    }

    /// Steps until nothing is left to do; then the pool must be whole.
    pub(crate) fn run(&mut self) {
        let work =
            |request: &Request, config: &EngineConfig| request.prompt.len() + config.seq_len_max();
        let bound: usize = 10
            + self
                .requests
                .values()
                .map(|r| work(r, self.engine.config()))
                .sum::<usize>()
                * 4;
        for _ in 0..bound {
            if !self.engine.has_work() {
                self.check_idle();
                return;
            }
            self.step();
        }
        panic!(
            "{} requests still there after {bound} steps",
            self.engine.num_requests()
        );
    }

    fn check_idle(&self) {
        for group in 0..self.engine.config().groups.len() {
            let blocks = self.engine.blocks();
            assert_eq!(
                blocks.num_free(group),
                blocks.num_usable(group),
                "blocks were lost"
            );
        }
        for (id, progress) in &self.progress {
            let (_, usage) = progress
                .end
                .as_ref()
                .unwrap_or_else(|| panic!("{id} never ended"));
            assert_eq!(usage.prompt_tokens, self.requests[id].prompt.len());
            assert_eq!(usage.completion_tokens, progress.tokens.len());
        }
    }

    pub(crate) fn reason(&self, id: RequestId) -> &FinishReason {
        &self.progress[&id].end.as_ref().expect("it has ended").0
    }

    pub(crate) fn oracle(&self, id: RequestId) -> Answer {
        oracle::answer(&self.requests[&id], self.engine.config())
    }

    /// `id` ended exactly as it does alone.
    pub(crate) fn assert_oracle(&self, id: RequestId) {
        let progress = &self.progress[&id];
        let answer = Answer {
            tokens: progress.tokens.clone(),
            text: progress.text.clone(),
            reason: self.reason(id).clone(),
        };
        assert_eq!(answer, self.oracle(id), "{id}: {:?}", self.requests[&id]);
    }

    /// `id` was stopped from outside: it has the beginning of its answer, and no text is lost.
    pub(crate) fn assert_cut_short(&self, id: RequestId) {
        let Progress { tokens, text, .. } = &self.progress[&id];
        assert!(self.oracle(id).tokens.starts_with(tokens));
        let bytes = tokens
            .iter()
            .flat_map(|&token| FakeVocabulary.token_bytes(token));
        assert!(bytes.eq(text), "{id}: text and tokens end apart");
    }

    /// Every request ended exactly as it does alone.
    pub(crate) fn assert_all_oracle(&self) {
        for &id in self.requests.keys() {
            self.assert_oracle(id);
        }
    }
}
