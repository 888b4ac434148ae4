//! The body of a request, checked, and as the engine takes it.
//!
//! Neighbours: `prompt.rs`, `sampling.rs` and `structured.rs` read their fields; `answer.rs` gets
//! the [`AnswerHead`] back with what came of it.

use forerun_engine::{CacheKeys, Request, TokenId, Verification};
use forerun_models::grammar::GrammarSource;
use serde_json::Value;

use super::answer::AnswerHead;
use super::error::ApiError;
use super::fields::Fields;
use super::prompt::Prompt;
use super::{sampling, speculation, structured};
use crate::codec::Codec;
use crate::speculation::Settings;

/// Tokens that OpenAI generates for a completion that does not say how many.
const COMPLETION_TOKENS_DEFAULT: u32 = 16;

/// Longest `cache_salt`.
const CACHE_SALT_BYTES_MAX: usize = 512;

/// Keys of OpenAI that change nothing here.
const MEANINGLESS_KEYS: [&str; 5] = [
    "user",
    "stream_options",
    "metadata",
    "store",
    "service_tier",
];

/// Which API a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}

impl Endpoint {
    /// The endpoint at this path.
    pub(crate) fn of_url(url: &str) -> Option<Self> {
        match url {
            "/v1/completions" => Some(Self::Completions),
            "/v1/chat/completions" => Some(Self::Chat),
            _ => None,
        }
    }
}

/// What requests get that do not say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Defaults {
    /// Most tokens to generate. Without it as in OpenAI's API: 16 for completions, until the
    /// longest length for chats.
    pub(crate) max_tokens: Option<u32>,
}

/// A request whose fields are sound by themselves. What depends on the model is checked by the
/// engine.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    prompt: Prompt,
    seed: Option<u64>,
    /// How drafts are verified, if it says so.
    verification: Option<Verification>,
    /// All but prompt and seed.
    request: Request,
    grammar: Option<GrammarSource>,
    head: AnswerHead,
    echo: bool,
    unknown_keys: Vec<String>,
}

/// What goes to the engine, and what is kept for the answer.
#[derive(Debug)]
pub(crate) struct EngineRequest {
    pub(crate) request: Request,
    pub(crate) grammar: Option<GrammarSource>,
    pub(crate) head: AnswerHead,
}

impl ApiRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub(crate) fn parse(
        endpoint: Endpoint,
        body: Value,
        defaults: Defaults,
    ) -> Result<Self, ApiError> {
        let mut fields = Fields::of("body", true, body)?;
        fields.skip(&MEANINGLESS_KEYS);
        if fields.take("stream")? == Some(true) {
            return Err(fields.error("stream", "answers here are whole, leave it out"));
        }
        let prompt = match endpoint {
            Endpoint::Completions => Prompt::of_completion(&mut fields)?,
            Endpoint::Chat => Prompt::of_chat(&mut fields)?,
        };
        let echo = match endpoint {
            Endpoint::Completions => fields.take("echo")?.unwrap_or(false),
            Endpoint::Chat => false,
        };
        let max_tokens = defaults.max_tokens.or(match endpoint {
            Endpoint::Completions => Some(COMPLETION_TOKENS_DEFAULT),
            Endpoint::Chat => None,
        });
        let (sampling, seed) = sampling::sampling(&mut fields)?;
        let mut output = sampling::output(&mut fields, endpoint)?;
        let stop = sampling::stop(&mut fields, max_tokens)?;
        let head = AnswerHead {
            stop_strings: stop.stop_strings.clone(),
            endpoint,
            model: fields.take("model")?,
            echo: None,
            shows_logprobs: output.logprobs.is_some(),
            shows_prompt_logprobs: output.prompt_logprobs.is_some(),
        };
        if let Some(logprobs) = output.logprobs.filter(|_| echo) {
            // What is echoed is scored like what is generated.
            output.prompt_logprobs.get_or_insert(logprobs.num_top);
        }
        let (speculation, verification) = speculation::speculation(&mut fields)?;
        let request = Request {
            prompt: Vec::new(),
            sampling,
            stop,
            output,
            priority: fields.take("priority")?.unwrap_or(0),
            cache_keys: CacheKeys {
                tenant: cache_salt(&mut fields)?,
                ..CacheKeys::default()
            },
            waits_for: None,
            speculation,
        };
        Ok(Self {
            prompt,
            seed,
            verification,
            request,
            grammar: structured::grammar(&mut fields)?,
            head,
            echo,
            unknown_keys: fields.into_unknown().collect(),
        })
    }

    /// Keys that were not known.
    pub(crate) fn unknown_keys(&self) -> &[String] {
        &self.unknown_keys
    }

    /// The request in tokens. `seed` is for requests that give none, and `speculation` says how drafts
    /// are verified for those that do not.
    ///
    /// # Errors
    /// The prompt cannot be tokenized: no chat template, or one that refuses the conversation.
    pub(crate) fn into_engine(
        self,
        codec: &impl Codec,
        seed: u64,
        speculation: &Settings,
    ) -> Result<EngineRequest, ApiError> {
        let Self {
            prompt,
            mut request,
            mut head,
            ..
        } = self;
        let (field, tokens) = match &prompt {
            Prompt::Text(text) => ("prompt", codec.encode(text)),
            Prompt::Tokens(tokens) => ("prompt", Ok(tokens.clone())),
            Prompt::Chat(messages, start) => ("messages", codec.encode_chat(messages, *start)),
        };
        request.prompt = tokens.map_err(|error| ApiError::field(field, error))?;
        request.sampling.seed = self.seed.unwrap_or(seed);
        let verification =
            (self.verification).unwrap_or_else(|| speculation.verification(self.seed.is_some()));
        request.speculation.verification = verification;
        if self.echo {
            head.echo = Some(match prompt {
                Prompt::Text(text) => text,
                Prompt::Tokens(tokens) => text_of(codec, &tokens),
                Prompt::Chat(..) => String::new(),
            });
        }
        Ok(EngineRequest {
            request,
            grammar: self.grammar,
            head,
        })
    }
}

fn text_of(codec: &impl Codec, tokens: &[TokenId]) -> String {
    let mut bytes = Vec::new();
    for &token in tokens {
        bytes.extend_from_slice(codec.token_bytes(token));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Requests with different salts share no cached prefix.
fn cache_salt(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    match fields.take::<String>("cache_salt")? {
        Some(salt) if salt.is_empty() => Err(fields.error("cache_salt", "is empty, leave it out")),
        // It is kept as a name in statistics.
        Some(salt) if salt.len() > CACHE_SALT_BYTES_MAX => {
            let found = salt.len();
            let problem = format!("has {found} bytes, may have {CACHE_SALT_BYTES_MAX}");
            Err(fields.error("cache_salt", problem))
        }
        salt => Ok(salt),
    }
}
