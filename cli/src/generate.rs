//! `forerun generate`: one prompt in, text out as it is made.

use std::io::{Read, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use forerun_engine::{
    Engine, Event, FinishReason, Request, SamplingParams, StopParams, Timestamp, TokenId, Usage,
    Vocabulary,
};
use forerun_models::devices::{self, DeviceEntry, DeviceHardware};
use forerun_models::model::{LoadOptions, LoadedModel, ModelFiles};
use forerun_models::text::{AddBos, GenerationPrompt, Message, SpecialTokens, Tokenizer};

use crate::args::{DtypeArg, GenerateArgs, ModelArgs, OutputFormat, SamplingArgs};
use crate::model_source;
use crate::report::{Clock, Output, Report, Timing, UsageReport};
use crate::text_sink::TextSink;

/// Most tokens of one step: longer prompts run in chunks.
const STEP_TOKENS_MAX: usize = 512;

/// Runs the command, writing text or JSON to `out`.
pub(crate) fn run(args: &GenerateArgs, out: &mut impl Write) -> Result<()> {
    let prompt = read_prompt(args)?;
    let started = Instant::now();
    let session = Session::open(args)?;
    let load = started.elapsed();

    let prompt_ids = session.encode(args, &prompt)?;
    let request = request(&prompt_ids, &args.sampling);
    let streams = args.output == OutputFormat::Text;
    let sink = TextSink::new(streams.then_some(&mut *out));
    let Session {
        name,
        device,
        loaded,
        tokenizer,
    } = session;
    let finished = generate(loaded, &tokenizer, request, sink)?;

    let Finished {
        usage,
        clock,
        text,
        token_ids,
        reason,
    } = finished;
    let report = Report {
        model: name,
        device,
        timing: Timing::new(load, clock, usage.prompt_tokens, usage.completion_tokens),
        usage: UsageReport {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.cached_tokens,
        },
        prompt_token_ids: prompt_ids.iter().map(|id| id.0).collect(),
        outputs: vec![Output {
            index: 0,
            text,
            token_ids,
            finish_reason: finish_name(&reason),
        }],
    };
    if !streams {
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)?;
    }
    if !args.quiet {
        eprintln!("{}", report.closing_line());
    }
    match reason {
        FinishReason::Error(cause) => Err(anyhow!(cause)),
        _ => Ok(()),
    }
}

/// The prompt's text, from wherever it is given.
fn read_prompt(args: &GenerateArgs) -> Result<String> {
    match (&args.prompt, &args.prompt_file) {
        (_, Some(file)) => std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the prompt from {}", file.display())),
        (Some(prompt), None) if prompt == "-" => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context("cannot read the prompt from standard input as UTF-8 text")?;
            Ok(text)
        }
        (Some(prompt), None) => Ok(prompt.clone()),
        (None, None) => bail!("give a prompt, `-`, or --prompt-file FILE"),
    }
}

/// A loaded model with its tokenizer.
struct Session {
    name: String,
    device: String,
    loaded: LoadedModel,
    tokenizer: Tokenizer,
}

impl Session {
    fn open(args: &GenerateArgs) -> Result<Self> {
        if let Some(threads) = args.model.threads {
            devices::set_cpu_threads(threads)?;
        }
        let path = model_source::resolve(&args.model.model, args.quiet)?;
        let files = ModelFiles::open(&path)?;
        let entry = devices::open(args.model.device)?;
        let tokenizer = files.tokenizer()?;
        let mut loaded = files.load(&load_options(&args.model, &entry))?;
        let eos_ids: Vec<u32> = tokenizer.eos_token_ids().iter().map(|id| id.0).collect();
        loaded.config.add_eos_ids(&eos_ids);
        let name = files.name();
        if !args.quiet {
            eprintln!("{}", opening_line(&name, &entry, &loaded));
        }
        Ok(Self {
            name,
            device: entry.id,
            loaded,
            tokenizer,
        })
    }

    fn encode(&self, args: &GenerateArgs, prompt: &str) -> Result<Vec<TokenId>> {
        if args.chat {
            let messages = [Message::new("user", prompt)];
            return Ok(self
                .tokenizer
                .encode_chat(&messages, GenerationPrompt::Add)?);
        }
        let special = if args.no_special {
            SpecialTokens::AsText
        } else {
            SpecialTokens::Recognise
        };
        Ok(self.tokenizer.encode(prompt, special, AddBos::Auto)?)
    }
}

fn load_options(args: &ModelArgs, entry: &DeviceEntry) -> LoadOptions {
    LoadOptions {
        dense_format: args.dtype.format(),
        kv_memory_bytes: args.kv_memory,
        block_size: args.block_size,
        ..LoadOptions::new(entry.device().clone())
    }
}

fn opening_line(name: &str, entry: &DeviceEntry, loaded: &LoadedModel) -> String {
    let note = match entry.hardware {
        DeviceHardware::SoftwareGpu => " (a software GPU: slow)",
        DeviceHardware::Gpu | DeviceHardware::Processor => "",
    };
    format!(
        "{name} on {} ({}){note}: {}",
        entry.id, entry.name, loaded.plan
    )
}

fn request(prompt_ids: &[TokenId], sampling: &SamplingArgs) -> Request {
    Request {
        prompt: prompt_ids.to_vec(),
        sampling: SamplingParams {
            temperature: sampling.temperature,
            seed: sampling.seed.unwrap_or_else(new_seed),
            ..SamplingParams::default()
        },
        stop: StopParams {
            max_tokens: Some(u32::try_from(sampling.max_tokens).unwrap_or(u32::MAX)),
            stop_strings: sampling
                .stop
                .iter()
                .map(|stop| stop.clone().into_bytes())
                .collect(),
            ignore_eos: sampling.ignore_eos,
            ..StopParams::default()
        },
        ..Request::default()
    }
}

/// A seed that differs from run to run.
fn new_seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
}

/// What came of a request.
struct Finished {
    text: String,
    token_ids: Vec<u32>,
    reason: FinishReason,
    usage: Usage,
    clock: Clock,
}

fn generate<W: Write>(
    loaded: LoadedModel,
    tokenizer: &Tokenizer,
    request: Request,
    mut sink: TextSink<'_, W>,
) -> Result<Finished> {
    let config = loaded.engine_config(STEP_TOKENS_MAX, 1);
    let mut engine = Engine::new(config, loaded.runner, VocabularyOf(tokenizer))?;
    let started = Instant::now();
    engine.add_request(request, Timestamp(0))?;
    let mut clock = Clock::default();
    let mut token_ids = Vec::new();
    let mut end = None;
    loop {
        for event in engine
            .step(Timestamp(started.elapsed().as_micros() as u64))
            .iter()
        {
            match event {
                Event::Token { token, text, .. } => {
                    clock.last_token = started.elapsed();
                    clock.first_token.get_or_insert(clock.last_token);
                    token_ids.push(token.0);
                    sink.push(text)?;
                }
                Event::SampleFinished { reason, text, .. } => {
                    sink.push(text)?;
                    end = Some(reason.clone());
                }
                Event::Finished { usage, .. } => {
                    let reason = end.take().unwrap_or(FinishReason::Aborted);
                    let text = sink.finish()?;
                    return Ok(Finished {
                        text,
                        token_ids,
                        reason,
                        usage,
                        clock,
                    });
                }
                Event::PromptToken { .. } => {}
            }
        }
    }
}

/// The tokenizer as the engine sees it.
struct VocabularyOf<'a>(&'a Tokenizer);

impl Vocabulary for VocabularyOf<'_> {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.0.token_bytes(id)
    }
}

fn finish_name(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::Aborted => "abort",
        FinishReason::Error(_) => "error",
    }
}

impl DtypeArg {
    fn format(self) -> Option<forerun_models::model::WeightFormat> {
        use forerun_models::model::WeightFormat;
        match self {
            Self::Auto => None,
            Self::F32 => Some(WeightFormat::F32),
            Self::F16 => Some(WeightFormat::F16),
            Self::Bf16 => Some(WeightFormat::Bf16),
        }
    }
}
