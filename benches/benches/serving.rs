//! Many requests on the CPU: 16 at once against the same 16 one after another, and what the engine
//! itself takes beside the model.
//!
//! `cargo bench -p forerun-benches --bench serving -- MODEL.gguf ..`
//!
//! Each request has a prompt of its own of 128 tokens and generates 128. Both ways run in turns on one
//! loaded model without prefix cache; the numbers are medians.

#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::path::Path;
use std::time::Instant;

use forerun_engine::{
    Engine, EngineConfig, Executor, ExecutorError, Request, StepBatch, StepOutput, StopParams,
    Timestamp, TokenId, Vocabulary,
};
use forerun_models::devices::{self, DeviceChoice};
use forerun_models::model::{LoadOptions, LoadedModel, ModelFiles};

const NUM_REQUESTS: usize = 16;
const PROMPT_TOKENS: u32 = 128;
const OUTPUT_TOKENS: u32 = 128;
const ROUNDS: usize = 3;

/// Measures the time spent in the executor.
struct Timed<'a, E> {
    executor: &'a mut E,
    seconds: f64,
}

impl<E: Executor> Executor for Timed<'_, E> {
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError> {
        let started = Instant::now();
        let result = self.executor.submit(batch);
        self.seconds += started.elapsed().as_secs_f64();
        result
    }

    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        let started = Instant::now();
        let result = self.executor.collect(output);
        self.seconds += started.elapsed().as_secs_f64();
        result
    }
}

/// Tokens without text.
struct NoText;

impl Vocabulary for NoText {
    fn token_bytes(&self, _: TokenId) -> &[u8] {
        &[]
    }
}

/// What a way of running took.
#[derive(Clone, Copy)]
struct Times {
    whole_s: f64,
    executor_s: f64,
}

fn main() {
    let models: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    if models.is_empty() {
        eprintln!("usage: cargo bench -p forerun-benches --bench serving -- MODEL.gguf ..");
        return;
    }
    for model in &models {
        measure(Path::new(model));
    }
}

fn measure(path: &Path) {
    let entry = devices::open(DeviceChoice::Cpu).expect("there is always a CPU");
    let files = ModelFiles::open(path).unwrap_or_else(|error| panic!("{error}"));
    let options = LoadOptions::new(entry.device().clone());
    let mut model = files
        .load(&options)
        .unwrap_or_else(|error| panic!("{error}"));
    let requests = requests(model.config.vocab_size as u32);
    let (mut together, mut apart) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        together.push(run(&mut model, &requests));
        let singles: Vec<Times> = requests
            .iter()
            .map(|request| run(&mut model, std::slice::from_ref(request)))
            .collect();
        apart.push(Times {
            whole_s: singles.iter().map(|times| times.whole_s).sum(),
            executor_s: singles.iter().map(|times| times.executor_s).sum(),
        });
    }
    println!(
        "{}: {NUM_REQUESTS} requests of {PROMPT_TOKENS} + {OUTPUT_TOKENS} tokens",
        files.name()
    );
    let together = report("at once", &mut together);
    let apart = report("one after another", &mut apart);
    println!("  ratio {:.2}", apart / together);
}

/// Prints the median and returns its seconds.
fn report(what: &str, times: &mut [Times]) -> f64 {
    times.sort_by(|a, b| a.whole_s.total_cmp(&b.whole_s));
    let Times {
        whole_s,
        executor_s,
    } = times[times.len() / 2];
    let tokens = f64::from(OUTPUT_TOKENS) * NUM_REQUESTS as f64;
    println!(
        "  {what}: {whole_s:.2} s, {:.0} generated tokens/s, {:.2} % outside the model",
        tokens / whole_s,
        100.0 * (whole_s - executor_s) / whole_s
    );
    whole_s
}

fn requests(vocab_size: u32) -> Vec<Request> {
    (0..NUM_REQUESTS as u32)
        .map(|index| Request {
            prompt: (0..PROMPT_TOKENS)
                .map(|i| TokenId((1000 + 977 * index + 7 * i) % vocab_size))
                .collect(),
            stop: StopParams {
                max_tokens: Some(OUTPUT_TOKENS),
                ignore_eos: true,
                ..StopParams::default()
            },
            ..Request::default()
        })
        .collect()
}

fn run(model: &mut LoadedModel, requests: &[Request]) -> Times {
    let mut config: EngineConfig = model.engine_config(512, NUM_REQUESTS);
    config.prefix_cache.enabled = false;
    let executor = Timed {
        executor: &mut model.runner,
        seconds: 0.0,
    };
    let mut engine = Engine::new(config, executor, NoText).expect("the configuration is sound");
    let started = Instant::now();
    for request in requests {
        engine
            .add_request(request.clone(), Timestamp(0))
            .expect("the requests fit");
    }
    while engine.has_work() {
        engine.step(Timestamp(started.elapsed().as_micros() as u64));
    }
    Times {
        whole_s: started.elapsed().as_secs_f64(),
        executor_s: engine.executor().seconds,
    }
}
