//! The engine's request of what was typed.
//!
//! Neighbours: `args/sampling.rs` has the flags; `mod.rs` runs the request.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use forerun_engine::{
    BeamParams, LogprobsKind, LogprobsParams, OutputParams, Request, SamplingParams, StopParams,
    TokenId,
};
use forerun_models::grammar::GrammarSource;

use crate::args::{FormArgs, GenerateArgs, OutputArgs, SamplingArgs};
use crate::session::new_seed;
use crate::speculation::Settings;

/// A request to continue `prompt`.
pub(super) fn request(prompt: Vec<TokenId>, args: &GenerateArgs, spec: &Settings) -> Request {
    Request {
        prompt,
        sampling: sampling(&args.sampling),
        stop: stop(&args.sampling),
        output: output(&args.samples),
        speculation: spec.params(args.sampling.seed.is_some()),
        ..Request::default()
    }
}

fn sampling(args: &SamplingArgs) -> SamplingParams {
    let bias = args.logit_bias.iter();
    SamplingParams {
        temperature: args.temperature,
        seed: args.seed.unwrap_or_else(new_seed),
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        typical_p: args.typical_p,
        repetition_penalty: args.repetition_penalty,
        presence_penalty: args.presence_penalty,
        frequency_penalty: args.frequency_penalty,
        logit_bias: bias.map(|&(id, bias)| (TokenId(id), bias)).collect(),
    }
}

fn stop(args: &SamplingArgs) -> StopParams {
    let strings = args.stop.iter();
    StopParams {
        max_tokens: Some(u32::try_from(args.max_tokens).unwrap_or(u32::MAX)),
        min_tokens: args.min_tokens,
        stop_token_ids: args.stop_token_id.iter().map(|&id| TokenId(id)).collect(),
        stop_strings: strings.map(|stop| stop.clone().into_bytes()).collect(),
        ignore_eos: args.ignore_eos,
    }
}

fn output(args: &OutputArgs) -> OutputParams {
    OutputParams {
        num_samples: args.samples,
        best_of: args.best_of,
        beam: args.beams.map(|width| BeamParams {
            width,
            length_penalty: args.length_penalty,
            early_stopping: false,
        }),
        logprobs: args.logprobs.map(|num_top| LogprobsParams {
            num_top,
            kind: LogprobsKind::Raw,
        }),
        prompt_logprobs: args.prompt_logprobs,
    }
}

/// The form that the text must have, if one was asked for.
pub(super) fn grammar(args: &FormArgs) -> Result<Option<GrammarSource>> {
    if let Some(file) = &args.json_schema {
        let schema = serde_json::from_str(&read(file)?)
            .with_context(|| format!("{} is not JSON", file.display()))?;
        return Ok(Some(GrammarSource::JsonSchema(schema)));
    }
    if let Some(file) = &args.grammar {
        return Ok(Some(GrammarSource::Lark(read(file)?)));
    }
    if let Some(regex) = &args.regex {
        return Ok(Some(GrammarSource::Regex(regex.clone())));
    }
    if args.choice.is_empty() {
        return Ok(None);
    }
    Ok(Some(GrammarSource::Choice(args.choice.clone())))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
