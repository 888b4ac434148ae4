//! One step of the engine without a model: plan, build, commit, at 256 running sequences.
//!
//! `cargo bench -p forerun-benches --bench engine_step`

use divan::Bencher;
use forerun_engine::{
    Engine, EngineConfig, Executor, ExecutorError, KvGroupConfig, PrefixCacheConfig, Request,
    SamplingParams, SchedulingConfig, StepBatch, StepOutput, StopParams, Timestamp, TokenId,
    Verdict, Vocabulary,
};

const NUM_SEQS: usize = 256;

fn main() {
    divan::main();
}

/// Gives token 1 for every row.
struct Constant {
    depth: usize,
    /// Rows of the steps in flight, oldest first.
    num_rows: Vec<usize>,
}

impl Executor for Constant {
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError> {
        self.num_rows.push(batch.num_logit_rows());
        Ok(())
    }

    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        for _ in 0..self.num_rows.remove(0) {
            output.push(Verdict::Token(TokenId(1)));
        }
        Ok(())
    }

    fn steps_in_flight_max(&self) -> usize {
        self.depth
    }
}

/// Every token is the letter b.
struct Letters;

impl Vocabulary for Letters {
    fn token_bytes(&self, _: TokenId) -> &[u8] {
        b"b"
    }
}

/// 256 sequences of 128 tokens of prompt, decoding.
fn decoding(depth: usize) -> Engine<Constant, Letters> {
    let config = EngineConfig {
        block_size: 16,
        groups: vec![KvGroupConfig {
            num_blocks: 65_537,
            window: None,
        }],
        step_tokens_max: 8192,
        step_seqs_max: NUM_SEQS,
        max_seq_len: 1 << 20,
        vocab_size: 50_000,
        eos_token_ids: vec![TokenId(0)],
        prefix_cache: PrefixCacheConfig::default(),
        scheduling: SchedulingConfig::default(),
        speculation: forerun_engine::SpeculationConfig::default(),
    };
    let executor = Constant {
        depth,
        num_rows: Vec::new(),
    };
    let mut engine = Engine::new(config, executor, Letters).expect("the configuration is sound");
    for index in 0..NUM_SEQS as u32 {
        let request = Request {
            prompt: (0..128)
                .map(|i| TokenId(1 + (i * 256 + index) % 49_999))
                .collect(),
            sampling: SamplingParams {
                temperature: 0.7,
                ..SamplingParams::default()
            },
            stop: StopParams {
                max_tokens: Some(4000),
                ..StopParams::default()
            },
            ..Request::default()
        };
        engine
            .add_request(request, Timestamp(0))
            .expect("the request fits");
    }
    for now in 0..20 {
        engine.step(Timestamp(now));
    }
    engine
}

/// With one step in flight and with two.
#[divan::bench(args = [1, 2], sample_count = 100, sample_size = 20)]
fn decode_step_of_256(bencher: Bencher<'_, '_>, depth: usize) {
    let mut engine = decoding(depth);
    let mut now = 20;
    bencher.bench_local(|| {
        now += 1;
        engine.step(Timestamp(now)).len()
    });
}
