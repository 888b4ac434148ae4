//! Log-probabilities in the shapes of both endpoints.
//!
//! Neighbours: `answer.rs` calls it with tokens from `driver/`; `response.rs` has the objects.

use std::collections::BTreeMap;
use std::fmt::Write;

use forerun_engine::{TokenId, TokenLogprob};

use super::response::{
    ChatLogprobs, ChatToken, CompletionLogprobs, PromptLogprob, PromptLogprobs, ScoredText,
};
use crate::codec::Codec;
use crate::driver::ScoredToken;

/// What JSON gets for `-inf`, which it cannot say: vLLM's number.
const LOGPROB_MIN: f32 = -9999.0;

fn finite(logprob: f32) -> f32 {
    logprob.max(LOGPROB_MIN)
}

/// A token's text; of a control token its name. Part of a character becomes OpenAI's
/// `bytes:\xf0\x9f`, so that different tokens have different names.
pub(super) fn token_text(codec: &impl Codec, token: TokenId) -> String {
    let bytes = codec.token_name(token);
    std::str::from_utf8(bytes).map_or_else(
        |_| {
            let mut name = String::from("bytes:");
            for byte in bytes {
                // Writing to a text cannot fail.
                let _ = write!(name, "\\x{byte:02x}");
            }
            name
        },
        str::to_owned,
    )
}

/// Lists for a completion: `tokens` in order, of the echoed prompt first.
pub(super) fn of_completion<'a>(
    codec: &impl Codec,
    tokens: impl Iterator<Item = &'a ScoredToken>,
) -> CompletionLogprobs {
    let mut lists = CompletionLogprobs::default();
    let mut num_chars = 0;
    for token in tokens {
        lists.text_offset.push(num_chars);
        num_chars += String::from_utf8_lossy(codec.token_bytes(token.token))
            .chars()
            .count();
        lists.tokens.push(token_text(codec, token.token));
        let scores = token.scores.as_ref();
        lists
            .token_logprobs
            .push(scores.map(|scores| finite(scores.logprob)));
        lists.top_logprobs.push(scores.map(|scores| {
            let top = scores.top.iter();
            top.map(|top| (token_text(codec, top.token), finite(top.logprob)))
                .collect()
        }));
    }
    lists
}

/// Objects for a chat.
pub(super) fn of_chat(codec: &impl Codec, tokens: &[ScoredToken]) -> ChatLogprobs {
    let scored = |token: TokenId, logprob: f32| ScoredText {
        token: token_text(codec, token),
        logprob: finite(logprob),
        bytes: codec.token_name(token).to_vec(),
    };
    let content = tokens.iter().filter_map(|token| {
        let scores = token.scores.as_ref()?;
        let top = scores.top.iter();
        Some(ChatToken {
            token: scored(token.token, scores.logprob),
            top_logprobs: top.map(|top| scored(top.token, top.logprob)).collect(),
        })
    });
    ChatLogprobs {
        content: content.collect(),
    }
}

/// Per prompt token the likeliest and itself.
pub(super) fn of_prompt(codec: &impl Codec, tokens: &[ScoredToken]) -> Vec<Option<PromptLogprobs>> {
    let entry = |scored: &TokenLogprob, rank| {
        let value = PromptLogprob {
            logprob: finite(scored.logprob),
            rank,
            decoded_token: token_text(codec, scored.token),
        };
        (scored.token.0, value)
    };
    let of_token = |token: &ScoredToken| {
        let scores = token.scores.as_ref()?;
        let mut map: BTreeMap<_, _> = scores
            .top
            .iter()
            .zip(1..)
            .map(|(top, rank)| entry(top, rank))
            .collect();
        let chosen = TokenLogprob {
            token: token.token,
            logprob: scores.logprob,
        };
        map.extend([entry(&chosen, scores.rank)]);
        Some(map)
    };
    tokens.iter().map(of_token).collect()
}
