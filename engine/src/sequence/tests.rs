//! One cut: whatever ends a sequence first ends its ids, text and usage together.

use super::*;
use crate::rank::Urgency;
use crate::{BlockManager, CacheKeys, EngineConfig, Event, KvGroupConfig, StopCause, StopParams};

/// Token t is the character `a + t`, except end tokens, which have no text.
struct Letters;

const EOS: TokenId = TokenId(30);
const STOP: TokenId = TokenId(31);

impl Vocabulary for Letters {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        let letters = b"abcdefghijklmnopqrstuvwxyz ";
        letters.get(id.0 as usize..=id.0 as usize).unwrap_or(&[])
    }
}

fn config() -> EngineConfig {
    EngineConfig {
        block_size: 4,
        groups: vec![KvGroupConfig {
            num_blocks: 33,
            window: None,
        }],
        step_tokens_max: 8,
        step_seqs_max: 3,
        max_seq_len: 101,
        vocab_size: 32,
        eos_token_ids: vec![TokenId(29), EOS],
        prefix_cache: crate::PrefixCacheConfig::default(),
        scheduling: crate::SchedulingConfig::default(),
        speculation: crate::SpeculationConfig::default(),
    }
}

fn with_stop(name: SequenceName, num_prompt: usize, stop: &StopParams) -> Sequence {
    let blocks = BlockManager::new(&config());
    let request = RequestId(7);
    let parts = SequenceParts {
        request,
        rank: Rank {
            urgency: Urgency::Normal,
            priority: 0,
            request,
            sibling: 0,
        },
        prompt: (0..num_prompt as u32).map(TokenId).collect(),
        sampling: Arc::default(),
        stop: StopConditions::new(stop, num_prompt, &config()),
        tables: blocks.new_tables(),
        chain: blocks.new_chain(&CacheKeys::default()),
        draws: Draws::One,
        prompt_scores: None,
        logprobs: None,
        is_logged: false,
        verification: crate::Verification::SharedNoise,
    };
    Sequence::new(name, parts)
}

/// A sequence with a prompt of `num_prompt` tokens, for the tests of other modules.
pub(crate) fn sequence(name: SequenceName, num_prompt: usize) -> Sequence {
    with_stop(name, num_prompt, &StopParams::default())
}

/// What came of committing chunks: generated ids, text, why it ended.
struct Outcome {
    tokens: Vec<u32>,
    text: String,
    finish: Option<FinishReason>,
}

/// Commits the tokens of `chunks` until the sequence ends; checks that ids and events agree.
fn commit(stop: &StopParams, chunks: &[&[u32]]) -> Outcome {
    let name = SequenceName {
        id: SeqId(0),
        generation: Generation(1),
    };
    let mut sequence = with_stop(name, 3, stop);
    let mut events = Events::default();
    let tokens = chunks.concat();
    let finish = tokens
        .iter()
        .find_map(|&token| sequence.commit(TokenId(token), None, &Letters, &mut events));
    sequence.finish_text(&mut events);
    events.push_sample_finished((sequence.request, 0), FinishReason::Aborted);
    let tokens: Vec<_> = sequence.output().iter().map(|token| token.0).collect();
    let mut text = Vec::new();
    let mut streamed = Vec::new();
    for event in events.iter() {
        match event {
            Event::Token {
                token, text: bytes, ..
            } => {
                streamed.push(token.0);
                text.extend_from_slice(bytes);
            }
            Event::SampleFinished { text: bytes, .. } => text.extend_from_slice(bytes),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(streamed, tokens);
    Outcome {
        tokens,
        text: String::from_utf8(text).unwrap(),
        finish,
    }
}

fn strings(strings: &[&str]) -> StopParams {
    let stop_strings = strings.iter().map(|s| s.as_bytes().to_vec()).collect();
    StopParams {
        stop_strings,
        ..StopParams::default()
    }
}

fn max_tokens(max_tokens: u32, stop: StopParams) -> StopParams {
    StopParams {
        max_tokens: Some(max_tokens),
        ..stop
    }
}

#[test]
fn an_end_token_ends_the_output_wherever_it_lies_in_the_verdict() {
    for place in 0..5 {
        let mut chunk = [0, 1, 2, 3, 4];
        chunk[place] = EOS.0;
        let outcome = commit(&max_tokens(32, StopParams::default()), &[&chunk]);
        assert_eq!(
            outcome.finish,
            Some(FinishReason::Stop(StopCause::Eos(EOS)))
        );
        assert_eq!(outcome.tokens, chunk[..=place]);
        assert_eq!(outcome.text, "abcde"[..place]);
    }
}

#[test]
fn never_more_than_max_tokens_come_out() {
    for limit in 1..=6 {
        let outcome = commit(
            &max_tokens(limit, StopParams::default()),
            &[&[0], &[1, 2, 3, 4, 5]],
        );
        assert_eq!(outcome.tokens.len(), limit as usize);
        assert_eq!(outcome.finish, Some(FinishReason::Length));
    }
}

#[test]
fn the_earliest_of_stop_and_length_wins() {
    let token = || StopParams {
        stop_token_ids: vec![STOP],
        ..StopParams::default()
    };
    let by_token = Some(FinishReason::Stop(StopCause::Token(STOP)));
    let inside = commit(&max_tokens(5, token()), &[&[10, 11, STOP.0, 20, 21, 22]]);
    assert_eq!(
        (inside.tokens, inside.finish),
        (vec![10, 11, STOP.0], by_token)
    );
    let outside = commit(&max_tokens(5, token()), &[&[10, 11, 20, 21, 22, STOP.0]]);
    assert_eq!(outside.tokens, [10, 11, 20, 21, 22]);
    assert_eq!(outside.finish, Some(FinishReason::Length));

    let by_string = Some(FinishReason::Stop(StopCause::String(0)));
    let inside = commit(
        &max_tokens(5, strings(&["s"])),
        &[&[10, 11, 18, 20, 21, 22]],
    );
    assert_eq!(
        (inside.tokens, inside.finish),
        (vec![10, 11, 18], by_string.clone())
    );
    assert_eq!(inside.text, "kl");
    let outside = commit(
        &max_tokens(5, strings(&["s"])),
        &[&[10, 11, 20, 21, 22, 18]],
    );
    assert_eq!(
        (outside.tokens.len(), outside.finish),
        (5, Some(FinishReason::Length))
    );
    let at_the_limit = commit(&max_tokens(5, strings(&["s"])), &[&[10, 11, 20, 21, 18]]);
    assert_eq!(
        (at_the_limit.tokens.len(), at_the_limit.finish),
        (5, by_string)
    );
}

#[test]
fn a_stop_string_completed_early_in_a_long_verdict_is_found() {
    let outcome = commit(&strings(&["b"]), &[&[1, 2, 3, 4, 5, 6, 7, 8]]);
    assert_eq!((outcome.tokens, outcome.text.as_str()), (vec![1], ""));
    let outcome = commit(&strings(&["ab"]), &[&[9, 0], &[1, 2, 3, 4, 5, 6, 7, 8]]);
    assert_eq!(
        (outcome.tokens, outcome.text.as_str()),
        (vec![9, 0, 1], "j")
    );
}

#[test]
fn the_token_that_completes_a_repeated_stop_string_is_the_last_one_kept() {
    let go = [26, 6, 14];
    let chunk: Vec<u32> = [0]
        .into_iter()
        .chain(go.into_iter().cycle().take(15))
        .collect();
    let outcome = commit(&strings(&[" go go go"]), &[&chunk]);
    assert_eq!(outcome.tokens, chunk[..10]);
    assert_eq!(outcome.text, "a");
}

#[test]
fn held_back_text_comes_out_when_something_else_ends_the_sequence() {
    let by_length = commit(&max_tokens(2, strings(&["abc"])), &[&[0], &[1], &[2]]);
    assert_eq!(
        (by_length.text.as_str(), by_length.finish),
        ("ab", Some(FinishReason::Length))
    );
    let by_eos = commit(&strings(&["abc"]), &[&[0, 1, EOS.0]]);
    assert_eq!(by_eos.text, "ab");
    let aborted = commit(&strings(&["abc"]), &[&[0, 1]]);
    assert_eq!((aborted.text.as_str(), aborted.finish), ("ab", None));
}

#[test]
fn ignoring_end_tokens_ignores_exactly_those() {
    let stop = StopParams {
        ignore_eos: true,
        stop_token_ids: vec![STOP],
        ..strings(&["zz"])
    };
    let outcome = commit(&stop, &[&[29, 0, EOS.0, 1, STOP.0, 2]]);
    assert_eq!(
        outcome.finish,
        Some(FinishReason::Stop(StopCause::Token(STOP)))
    );
    assert_eq!((outcome.tokens.len(), outcome.text.as_str()), (5, "ab"));
    let outcome = commit(&stop, &[&[EOS.0, 25, 25]]);
    assert_eq!(
        outcome.finish,
        Some(FinishReason::Stop(StopCause::String(0)))
    );
}

#[test]
fn the_longest_length_of_the_model_ends_a_sequence_without_max_tokens() {
    let tokens = [5; 200];
    let outcome = commit(&StopParams::default(), &[&tokens]);
    assert_eq!(
        (outcome.tokens.len(), outcome.finish),
        (98, Some(FinishReason::Length))
    );
}
