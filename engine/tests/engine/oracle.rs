//! What a request gives when it runs alone: a list of tokens, a search of the whole text, no
//! blocks.

use forerun_engine::{
    EngineConfig, FailureCause, FinishReason, Request, SamplingRow, StopCause, TokenId, Vocabulary,
};

use crate::fake_model::{EOS, FakeVocabulary, NAN_TOKEN, mix, next_token, visible};

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) text: Vec<u8>,
    pub(crate) reason: FinishReason,
}

/// The answer to `request`, one token after another, everything recomputed each time.
pub(crate) fn answer(request: &Request, config: &EngineConfig) -> Answer {
    let mut context = request.prompt.clone();
    let mut text = Vec::new();
    let done = |context: &[TokenId], text: &[u8], reason| Answer {
        tokens: context[request.prompt.len()..].to_vec(),
        text: text.to_vec(),
        reason,
    };
    loop {
        if context[context.len() - 1].0 == NAN_TOKEN {
            let cause = FailureCause::NotFinite {
                position: context.len() - 1,
            };
            return done(&context, &text, FinishReason::Error(cause));
        }
        let token = forward(&context, request, config);
        context.push(token);
        let stop = &request.stop;
        if EOS.contains(&token) && !stop.ignore_eos {
            return done(&context, &text, FinishReason::Stop(StopCause::Eos(token)));
        }
        if stop.stop_token_ids.contains(&token) {
            return done(&context, &text, FinishReason::Stop(StopCause::Token(token)));
        }
        let old_len = text.len();
        text.extend_from_slice(FakeVocabulary.token_bytes(token));
        for end in old_len + 1..=text.len() {
            let ends = |s: &&Vec<u8>| text[..end].ends_with(s);
            let longest = stop.stop_strings.iter().filter(ends).map(Vec::len).max();
            if let Some(len) = longest {
                let string = &text[end - len..end];
                let which = stop.stop_strings.iter().position(|s| s == string).unwrap();
                let reason = FinishReason::Stop(StopCause::String(which));
                return done(&context, &text[..end - len], reason);
            }
        }
        let num_generated = context.len() - request.prompt.len();
        if stop.max_tokens == Some(num_generated as u32) || context.len() == config.seq_len_max() {
            return done(&context, &text, FinishReason::Length);
        }
    }
}

/// The fake model over a plain list.
fn forward(context: &[TokenId], request: &Request, config: &EngineConfig) -> TokenId {
    let attend = |position: usize, of: &dyn Fn(usize) -> u64| {
        let mut hash = 0;
        for group in &config.groups {
            for seen in visible(position as u32, group.window) {
                hash = mix(mix(hash, u64::from(seen)), of(seen as usize));
            }
        }
        hash
    };
    let token_of = |position: usize| u64::from(context[position].0);
    let states: Vec<_> = (0..context.len())
        .map(|position| attend(position, &token_of))
        .collect();
    let sampling = SamplingRow {
        temperature: request.sampling.temperature,
        seed: request.sampling.seed,
        position: context.len() as u32,
    };
    next_token(
        attend(context.len() - 1, &|position| states[position]),
        &sampling,
    )
}
