//! `forerun generate`: one prompt in, text out as it is made.
//!
//! ```text
//! request.rs     what was typed, as the engine's request
//! text_sink.rs   bytes become text, shown as they come
//! report.rs      the JSON object and the closing line
//! scores.rs      log-probabilities, in JSON and as a table
//! ```
//!
//! Neighbours: `session.rs` opens the model; `driver/` runs the request.

mod report;
mod request;
mod scores;
mod text_sink;

use std::io::{IsTerminal, Read, Write, stdout};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use forerun_engine::{Engine, EngineConfig, Event, Request, TokenId};
use forerun_models::grammar::GrammarSource;
use forerun_models::text::{AddBos, GenerationPrompt, Message, SpecialTokens, Tokenizer};

use self::report::{Clock, Output, Report, Timing, UsageReport};
use self::scores::ScoreTable;
use self::text_sink::TextSink;
use crate::args::{GenerateArgs, OutputFormat};
use crate::codec::TokenizerCodec;
use crate::driver::{Driver, Outcome, Sample, finish_name};
use crate::session::{self, ModelGrammars, Session};
use crate::speculation::{DraftView, Settings, SpeculationBody};

/// Runs the command, writing text or JSON to `out`.
pub(crate) fn run(args: &GenerateArgs, out: &mut impl Write) -> Result<()> {
    let prompt = read_prompt(args)?;
    let grammar = request::grammar(&args.form)?;
    let started = Instant::now();
    let (speculation, notes) = Settings::of(&args.speculation)?;
    session::show_notes(&notes, args.messages.into());
    let session = Session::open_with(&args.model, &speculation, args.messages.into())?;
    let load = started.elapsed();

    let prompt_ids = encode(&session.tokenizer, args, &prompt)?;
    let request = request::request(prompt_ids.clone(), args, &speculation);
    let is_text = args.output == OutputFormat::Text;
    // Several texts cannot be shown at once, and those that are chosen among are known at the end.
    let is_streamed = is_text && request.output.num_samples == 1 && request.output.is_streamed();
    let mut sink = TextSink::new(is_streamed.then_some(&mut *out));
    let (name, device) = (session.name.clone(), session.device.clone());
    let config = {
        let mut config = session.engine_config(args.engine, request.output.width().max(1));
        speculation.apply(&mut config.speculation);
        config
    };
    let inputs = Inputs {
        config,
        request,
        grammar,
        view: args
            .show_drafts
            .then(|| DraftView::new(stdout().is_terminal())),
    };
    let (tokenizer, outcome, clock) = generate(session, inputs, &mut sink)?;
    sink.finish()?;
    let codec = TokenizerCodec(&tokenizer);
    let scores = ScoreTable::new(&codec, &outcome);
    let usage = outcome.usage;
    let report = Report {
        model: name,
        device,
        speculation: SpeculationBody::from(&outcome.speculation),
        timing: Timing::new(load, clock, usage.prompt_tokens, usage.completion_tokens),
        usage: UsageReport {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.cached_tokens,
        },
        prompt_token_ids: prompt_ids.iter().map(|id| id.0).collect(),
        prompt_logprobs: args.samples.prompt_logprobs.map(|_| scores.prompt()),
        outputs: outputs(&outcome, &scores, args.samples.logprobs.is_some()),
    };
    if is_text {
        if !is_streamed {
            report.write_texts(out)?;
        }
        scores.write(out)?;
    } else {
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)?;
    }
    if !args.messages.quiet {
        eprintln!("{}", report.closing_line());
    }
    match outcome.failure() {
        Some(cause) => Err(anyhow!(cause.clone())),
        None => Ok(()),
    }
}

fn outputs(outcome: &Outcome, scores: &ScoreTable<'_>, shows_logprobs: bool) -> Vec<Output> {
    let samples = outcome.samples.iter().enumerate();
    let output = |(index, sample): (usize, &Sample)| Output {
        index,
        text: sample.text(),
        token_ids: sample.tokens.iter().map(|token| token.token.0).collect(),
        finish_reason: sample.reason.as_ref().map_or("abort", finish_name),
        logprobs: shows_logprobs.then(|| scores.of(&sample.tokens)),
    };
    samples.map(output).collect()
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

fn encode(tokenizer: &Tokenizer, args: &GenerateArgs, prompt: &str) -> Result<Vec<TokenId>> {
    if args.chat {
        let messages = [Message::new("user", prompt)];
        return Ok(tokenizer.encode_chat(&messages, GenerationPrompt::Add)?);
    }
    let special = if args.no_special {
        SpecialTokens::AsText
    } else {
        SpecialTokens::Recognise
    };
    Ok(tokenizer.encode(prompt, special, AddBos::Auto)?)
}

/// What a run is made of, besides the model.
struct Inputs {
    config: EngineConfig,
    request: Request,
    grammar: Option<GrammarSource>,
    /// Shows drafts.
    view: Option<DraftView>,
}

/// Runs the request to its end, showing the text of its first sample as it comes. Gives the
/// tokenizer back.
fn generate<W: Write>(
    session: Session,
    inputs: Inputs,
    sink: &mut TextSink<'_, W>,
) -> Result<(Tokenizer, Outcome, Clock)> {
    let Inputs {
        config,
        request,
        grammar,
        mut view,
    } = inputs;
    let Session {
        loaded, tokenizer, ..
    } = session;
    let grammars = ModelGrammars::new(&tokenizer, &config);
    let engine = Engine::new(config, loaded.runner, TokenizerCodec(&tokenizer))?;
    let mut driver = Driver::new(engine, grammars);
    let started = Instant::now();
    driver.add(request, grammar)?;
    let mut clock = Clock::default();
    let outcome = loop {
        let mut shown = Ok(());
        let ended = driver.step(|event| match event {
            Event::Draft {
                draft,
                num_accepted,
                ..
            } => {
                if let Some(view) = &mut view {
                    view.take_draft(draft, *num_accepted);
                }
            }
            Event::Token { sample, text, .. } => {
                clock.last_token = started.elapsed();
                clock.first_token.get_or_insert(clock.last_token);
                if *sample == 0 && shown.is_ok() {
                    shown = match &mut view {
                        Some(view) => {
                            let text = String::from_utf8_lossy(text);
                            let codec = TokenizerCodec(&tokenizer);
                            sink.push(view.token(&text, &codec).as_bytes())
                        }
                        None => sink.push(text),
                    };
                }
            }
            Event::SampleFinished {
                sample: 0, text, ..
            } if shown.is_ok() => {
                shown = sink.push(text);
            }
            _ => {}
        });
        shown?;
        if let Some((_, outcome)) = ended.into_iter().next() {
            break outcome;
        }
    };
    drop(driver);
    Ok((tokenizer, outcome, clock))
}
