//! Grammars over the tokenizers of the tiny models: what our own code says of their tokens is
//! what the masks go by.

use std::path::{Path, PathBuf};

use forerun_engine::TokenId;

use super::super::{GrammarCompiler, GrammarSource};
use super::{Random, allowed};
use crate::text::Tokenizer;

const MODELS: [&str; 4] = ["llama", "gemma3", "mistral", "qwen2"];

/// The model has more logits than the tokenizer has tokens, and their number is odd.
fn vocab_size(tokenizer: &Tokenizer) -> usize {
    tokenizer.vocab_size() | 1
}

fn tokenizer(model: &str) -> Tokenizer {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/tiny");
    let folder: PathBuf = fixtures.join(model);
    Tokenizer::from_hf_folder(&folder).unwrap()
}

/// The ends that the files name, or the last token for those that name none.
fn ends(tokenizer: &Tokenizer) -> Vec<TokenId> {
    match tokenizer.eos_token_ids() {
        [] => vec![TokenId(tokenizer.vocab_size() as u32 - 1)],
        ids => ids.to_vec(),
    }
}

fn compiler(tokenizer: &Tokenizer) -> GrammarCompiler {
    GrammarCompiler::new(tokenizer, vocab_size(tokenizer), &ends(tokenizer)).unwrap()
}

#[test]
fn walks_over_real_tokenizers_end_in_text_that_fits() {
    let full = regex::bytes::Regex::new("^[a-z]{3,9}( [a-z]{3,9}){0,3}$").unwrap();
    for model in MODELS {
        let tokenizer = tokenizer(model);
        let ends = ends(&tokenizer);
        let source = GrammarSource::Regex("[a-z]{3,9}( [a-z]{3,9}){0,3}".to_owned());
        let compiled = compiler(&tokenizer).compile(&source).unwrap();
        for seed in 0..50 {
            let mut random = Random(seed);
            let mut grammar = compiled.fork();
            let mut text = Vec::new();
            while !grammar.is_finished() {
                let ids = allowed(&mut *grammar, vocab_size(&tokenizer));
                let ends_here = ids.iter().filter(|id| ends.contains(id)).count();
                assert_eq!(ends_here > 0, full.is_match(&text), "{model}: {text:?}");
                let id = ids[random.below(ids.len())];
                grammar.accept(id).unwrap();
                text.extend_from_slice(tokenizer.token_bytes(id));
            }
            assert!(full.is_match(&text), "{model}: {text:?}");
        }
    }
}

#[test]
fn control_tokens_are_never_allowed_and_their_names_are_text() {
    for model in MODELS {
        let tokenizer = tokenizer(model);
        let ends = ends(&tokenizer);
        let anything = GrammarSource::Regex("(?s:.*)".to_owned());
        let compiled = compiler(&tokenizer).compile(&anything).unwrap();
        let ids = allowed(&mut *compiled.fork(), vocab_size(&tokenizer));
        for id in (0..vocab_size(&tokenizer) as u32).map(TokenId) {
            let bytes = tokenizer.token_bytes(id);
            // A part of a character may begin a text as well.
            let may_begin = !bytes.is_empty()
                && match std::str::from_utf8(bytes) {
                    Ok(_) => true,
                    Err(error) => error.error_len().is_none(),
                };
            let expected = ends.contains(&id) || may_begin;
            assert_eq!(ids.contains(&id), expected, "{model}: {id} {bytes:?}");
        }
        let end = ends[0];
        let name = String::from_utf8(tokenizer.token_name(end).to_vec()).unwrap();
        let choice = GrammarSource::Choice(vec![name]);
        let mut grammar = compiler(&tokenizer).compile(&choice).unwrap();
        let mut mask = vec![0; vocab_size(&tokenizer).div_ceil(32)];
        // Either the vocabulary can write the name as text, or there is no token: never the end.
        if grammar.fill_mask(&mut mask).is_ok() {
            assert_eq!(
                mask[end.0 as usize / 32] & (1 << (end.0 % 32)),
                0,
                "{model}"
            );
        }
    }
}
