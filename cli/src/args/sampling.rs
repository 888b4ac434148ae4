//! Flags that say how tokens are chosen, when to stop, and what comes back.
//!
//! Ranges that the engine checks are left to it: it names the same fields.
//!
//! Neighbours: `generate/request.rs` makes the engine's request of them.

use std::path::PathBuf;

use clap::Args;

/// How tokens are chosen and when to stop.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Most tokens to generate. (As in llama.cpp, `-n` counts tokens; for several answers see
    /// --samples.)
    #[arg(long, short = 'n', default_value_t = 128, value_name = "TOKENS")]
    pub(crate) max_tokens: usize,
    /// Fewest tokens to generate: before, end tokens cannot be drawn.
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    pub(crate) min_tokens: u32,
    /// 0 always takes the likeliest token; 1 samples from the model's own distribution.
    #[arg(long, short = 't', default_value_t = 0.0, value_parser = parse_temperature)]
    pub(crate) temperature: f32,
    /// Seed of the sampling noise: the same seed gives the same text. Default: a new one each run.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Keep only the K likeliest tokens; 0 keeps all.
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub(crate) top_k: u32,
    /// Keep the fewest likeliest tokens whose probabilities reach P; 1 keeps all.
    #[arg(long, default_value_t = 1.0, value_name = "P")]
    pub(crate) top_p: f32,
    /// Keep tokens at least P times as likely as the likeliest; 0 keeps all.
    #[arg(long, default_value_t = 0.0, value_name = "P")]
    pub(crate) min_p: f32,
    /// Locally typical sampling; 1 keeps all.
    #[arg(long, default_value_t = 1.0, value_name = "P")]
    pub(crate) typical_p: f32,
    /// Divide logits of tokens seen in prompt or answer; 1 is off.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub(crate) repetition_penalty: f32,
    /// Subtract from logits of tokens seen in the answer; 0 is off.
    #[arg(
        long,
        default_value_t = 0.0,
        value_name = "PENALTY",
        allow_negative_numbers = true
    )]
    pub(crate) presence_penalty: f32,
    /// Subtract from logits of tokens seen in the answer, times how often; 0 is off.
    #[arg(
        long,
        default_value_t = 0.0,
        value_name = "PENALTY",
        allow_negative_numbers = true
    )]
    pub(crate) frequency_penalty: f32,
    /// Add BIAS to the logit of token ID, -inf bans it (may be given several times).
    #[arg(long, value_name = "ID=BIAS", value_parser = parse_bias)]
    pub(crate) logit_bias: Vec<(u32, f32)>,
    /// Stop before this text (may be given several times). \n, \t, \r and \\ are understood.
    #[arg(long, value_name = "TEXT", value_parser = parse_stop)]
    pub(crate) stop: Vec<String>,
    /// Stop after this token (may be given several times).
    #[arg(long, value_name = "ID")]
    pub(crate) stop_token_id: Vec<u32>,
    /// Go on when the model ends its text.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
}

/// What comes back besides one text.
#[derive(Args, Debug)]
#[command(next_help_heading = "Samples and log-probabilities")]
pub(crate) struct OutputArgs {
    /// How many answers to give; each draws with a seed of its own. They share the prompt's memory.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) samples: u32,
    /// Draw N answers and give the likeliest.
    #[arg(long, value_name = "N", conflicts_with = "beams")]
    pub(crate) best_of: Option<u32>,
    /// Beam search: keep the N likeliest beginnings instead of sampling.
    #[arg(long, value_name = "N")]
    pub(crate) beams: Option<u32>,
    /// Beam search divides log-probabilities by the length to this power: 0 favours short texts.
    #[arg(
        long,
        default_value_t = 1.0,
        value_name = "POWER",
        requires = "beams",
        allow_negative_numbers = true
    )]
    pub(crate) length_penalty: f32,
    /// Log-probabilities of the answer's tokens and of the N likeliest at each: after the text, or
    /// in the JSON object. They are the model's own, before penalties, temperature and filters.
    #[arg(long, value_name = "N")]
    pub(crate) logprobs: Option<u32>,
    /// The same for the tokens of the prompt.
    #[arg(long, value_name = "N")]
    pub(crate) prompt_logprobs: Option<u32>,
}

/// What the text must fit.
#[derive(Args, Debug)]
#[command(next_help_heading = "Form of the text")]
pub(crate) struct FormArgs {
    /// The text is JSON that fits the schema in FILE.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["regex", "grammar", "choice"])]
    pub(crate) json_schema: Option<PathBuf>,
    /// The text matches this regex, from its beginning to its end.
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["grammar", "choice"])]
    pub(crate) regex: Option<String>,
    /// The text fits the Lark grammar in FILE.
    #[arg(long, value_name = "FILE", conflicts_with = "choice")]
    pub(crate) grammar: Option<PathBuf>,
    /// The text is one of these (may be given several times).
    #[arg(long, value_name = "TEXT")]
    pub(crate) choice: Vec<String>,
}

fn parse_temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("expected a number of at least 0".to_owned()),
    }
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let (id, bias) = text
        .split_once('=')
        .ok_or("expected ID=BIAS, such as 42=-1.5")?;
    let id = id
        .trim()
        .parse()
        .map_err(|_| format!("{id:?} is no token id"))?;
    let bias = bias
        .trim()
        .parse()
        .map_err(|_| format!("{bias:?} is no number"))?;
    Ok((id, bias))
}

fn parse_stop(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("a stop text cannot be empty".to_owned());
    }
    let mut stop = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => stop.push('\n'),
                Some('t') => stop.push('\t'),
                Some('r') => stop.push('\r'),
                Some('\\') | None => stop.push('\\'),
                Some(other) => stop.extend(['\\', other]),
            },
            (c, false) => stop.push(c),
        }
    }
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_texts_understand_escapes() {
        assert_eq!(parse_stop("a\\n\\tb\\\\"), Ok("a\n\tb\\".to_owned()));
        assert_eq!(parse_stop("\\d"), Ok("\\d".to_owned()));
        assert!(parse_stop("").is_err());
    }

    #[test]
    fn temperatures_below_zero_are_refused() {
        assert!(parse_temperature("-0.1").is_err());
        assert!(parse_temperature("nan").is_err());
        assert_eq!(parse_temperature("0.7"), Ok(0.7));
    }

    #[test]
    fn a_bias_is_an_id_and_a_number() {
        assert_eq!(parse_bias("42=-1.5"), Ok((42, -1.5)));
        assert_eq!(parse_bias("7=-inf"), Ok((7, f32::NEG_INFINITY)));
        assert!(parse_bias("x=1").is_err());
        assert!(parse_bias("7").is_err());
        assert!(parse_bias("-7=1").is_err());
    }
}
