//! The fields that say how tokens are chosen, when to end, and what comes back.
//!
//! Ranges that the engine checks are left to it: it names the same fields.
//!
//! Neighbours: part of `request.rs`; fills the types of `forerun_engine`.

use forerun_engine::{
    BeamParams, LogprobsKind, LogprobsParams, OutputParams, SamplingParams, StopParams, TokenId,
};
use serde_json::Value;

use super::error::ApiError;
use super::fields::{Field, Fields, expected};
use super::request::Endpoint;

/// The fields of [`SamplingParams`], and the seed, if one was given.
pub(super) fn sampling(fields: &mut Fields) -> Result<(SamplingParams, Option<u64>), ApiError> {
    let off = SamplingParams::default();
    let sampling = SamplingParams {
        // OpenAI's default, not the engine's.
        temperature: fields.take("temperature")?.unwrap_or(1.0),
        seed: 0,
        top_k: top_k(fields)?,
        top_p: fields.take("top_p")?.unwrap_or(off.top_p),
        min_p: fields.take("min_p")?.unwrap_or(off.min_p),
        typical_p: fields.take("typical_p")?.unwrap_or(off.typical_p),
        repetition_penalty: fields
            .take("repetition_penalty")?
            .unwrap_or(off.repetition_penalty),
        presence_penalty: fields
            .take("presence_penalty")?
            .unwrap_or(off.presence_penalty),
        frequency_penalty: fields
            .take("frequency_penalty")?
            .unwrap_or(off.frequency_penalty),
        logit_bias: logit_bias(fields)?,
    };
    let seed = fields.take::<Seed>("seed")?.map(|seed| seed.0);
    Ok((sampling, seed))
}

/// Any 64-bit number: clients also send negative ones.
struct Seed(u64);

impl Field for Seed {
    const EXPECTED: &'static str = "a whole number of 64 bits";
    fn read(value: &Value) -> Option<Self> {
        let negative = || value.as_i64().map(i64::cast_unsigned);
        value.as_u64().or_else(negative).map(Self)
    }
}

/// vLLM writes "off" as -1 or 0; a count beyond any vocabulary keeps every token.
fn top_k(fields: &mut Fields) -> Result<u32, ApiError> {
    const EXPECTED: &str = "a whole number: how many tokens to keep, or -1 or 0 for all";
    let Some(value) = fields.take_value("top_k") else {
        return Ok(0);
    };
    match (value.as_u64(), value.as_i64()) {
        (Some(count), _) => Ok(u32::try_from(count).unwrap_or(u32::MAX)),
        (None, Some(-1)) => Ok(0),
        _ => Err(fields.error("top_k", expected(EXPECTED, &value))),
    }
}

fn logit_bias(fields: &mut Fields) -> Result<Vec<(TokenId, f32)>, ApiError> {
    const EXPECTED: &str = "an object from token ids to numbers";
    let map = match fields.take_value("logit_bias") {
        None => return Ok(Vec::new()),
        Some(Value::Object(map)) => map,
        Some(other) => return Err(fields.error("logit_bias", expected(EXPECTED, &other))),
    };
    let entry = |(key, value): (String, Value)| {
        let name = || format!("logit_bias[{}]", Value::from(key.as_str()));
        let token = key.parse().map_err(|_| {
            ApiError::field(name(), "the key is no token id (a whole number from 0 up)")
        })?;
        let bias = f32::read(&value)
            .ok_or_else(|| ApiError::field(name(), expected(f32::EXPECTED, &value)))?;
        Ok((TokenId(token), bias))
    };
    map.into_iter().map(entry).collect()
}

/// The fields of [`StopParams`]. `max_tokens_default` is for requests that give none.
pub(super) fn stop(
    fields: &mut Fields,
    max_tokens_default: Option<u32>,
) -> Result<StopParams, ApiError> {
    let max_tokens: Option<u32> = fields.take("max_tokens")?;
    let max_completion_tokens: Option<u32> = fields.take("max_completion_tokens")?;
    let stop_token_ids: Vec<u32> = fields.take("stop_token_ids")?.unwrap_or_default();
    Ok(StopParams {
        max_tokens: max_completion_tokens.or(max_tokens).or(max_tokens_default),
        min_tokens: fields.take("min_tokens")?.unwrap_or(0),
        stop_token_ids: stop_token_ids.into_iter().map(TokenId).collect(),
        stop_strings: stop_strings(fields)?,
        ignore_eos: fields.take("ignore_eos")?.unwrap_or(false),
    })
}

fn stop_strings(fields: &mut Fields) -> Result<Vec<Vec<u8>>, ApiError> {
    let strings = match fields.take_value("stop") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text],
        Some(value) => match Vec::<String>::read(&value) {
            Some(list) => list,
            None => return Err(fields.error("stop", expected("a text or a list of texts", &value))),
        },
    };
    Ok(strings.into_iter().map(String::into_bytes).collect())
}

/// The fields of [`OutputParams`].
pub(super) fn output(fields: &mut Fields, endpoint: Endpoint) -> Result<OutputParams, ApiError> {
    let num_samples: u32 = fields.take("n")?.unwrap_or(1);
    let best_of: Option<u32> = fields.take("best_of")?;
    let uses_beams = fields.take("use_beam_search")?.unwrap_or(false);
    let width: Option<u32> = fields.take("beam_width")?;
    let length_penalty = fields.take("length_penalty")?.unwrap_or(1.0);
    let early_stopping = fields.take("early_stopping")?.unwrap_or(false);
    let beam = uses_beams.then_some(BeamParams {
        width: width.or(best_of).unwrap_or(num_samples),
        length_penalty,
        early_stopping,
    });
    let num_top = match endpoint {
        Endpoint::Completions => fields.take("logprobs")?,
        Endpoint::Chat => chat_logprobs(fields)?,
    };
    Ok(OutputParams {
        num_samples,
        best_of: if uses_beams { None } else { best_of },
        beam,
        logprobs: num_top.map(|num_top| LogprobsParams {
            num_top,
            kind: LogprobsKind::Raw,
        }),
        prompt_logprobs: fields.take("prompt_logprobs")?,
    })
}

/// `logprobs: true` with `top_logprobs: N`.
fn chat_logprobs(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    let is_on = fields.take("logprobs")?.unwrap_or(false);
    let num_top: Option<u32> = fields.take("top_logprobs")?;
    match (is_on, num_top) {
        (true, num_top) => Ok(Some(num_top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(fields.error("top_logprobs", "needs \"logprobs\": true")),
    }
}
