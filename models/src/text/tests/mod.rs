//! Tests of the text layer: goldens, properties, and what CASES.md calls A11.
//!
//! Goldens come from `tests/fixtures`; those of the real models need the models, which
//! `cargo xtask setup` downloads (`forerun pull`).

mod chat;
mod detokenize;
mod goldens;
mod properties;
mod vocabularies;

use std::path::PathBuf;

use forerun_engine::TokenId;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{GenerationPrompt, Message, Tokenizer};
use crate::loaders::GgufFile;
use crate::loaders::test_files::fixture;

/// Text and ids, made by the reference.
#[derive(Deserialize)]
struct Golden {
    text: String,
    ids: Vec<u32>,
    ids_with_special: Option<Vec<u32>>,
    decoded: String,
    decoded_skip_special: Option<String>,
}

#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Message>,
    add_generation_prompt: bool,
    rendered: String,
    ids: Vec<u32>,
}

impl Conversation {
    fn prompt(&self) -> GenerationPrompt {
        if self.add_generation_prompt {
            GenerationPrompt::Add
        } else {
            GenerationPrompt::Omit
        }
    }
}

#[derive(Deserialize)]
struct Goldens {
    strings: Vec<Golden>,
    conversations: Vec<Conversation>,
}

fn read_json<T: DeserializeOwned>(name: &str) -> T {
    let path = fixture(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

fn tiny(model: &str) -> (Tokenizer, Goldens) {
    let tokenizer = Tokenizer::from_hf_folder(&fixture(&format!("tiny/{model}"))).unwrap();
    (
        tokenizer,
        read_json(&format!("tiny/{model}/tokenizer_goldens.json")),
    )
}

fn gguf(name: &str) -> Tokenizer {
    let file = GgufFile::open(&fixture(&format!("tiny_gguf/{name}.gguf"))).unwrap();
    Tokenizer::from_gguf(&file).unwrap()
}

/// A model file where `forerun pull` puts it.
fn pulled(name: &str) -> GgufFile {
    let folder = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let home = match (folder("FORERUN_HOME"), folder("XDG_CACHE_HOME")) {
        (Some(home), _) => PathBuf::from(home),
        (None, Some(cache)) => PathBuf::from(cache).join("forerun"),
        (None, None) => PathBuf::from(folder("HOME").unwrap()).join(".cache/forerun"),
    };
    let path = home.join("models").join(name);
    GgufFile::open(&path).unwrap_or_else(|error| {
        panic!("{error}\nthis test needs a real model: run `cargo xtask setup`, or `forerun pull`")
    })
}

fn smollm2() -> Tokenizer {
    Tokenizer::from_gguf(&pulled("SmolLM2-135M-Instruct.Q4_1.gguf")).unwrap()
}

/// Gemma's base model has no template; the tests use that of the instruction model.
fn gemma3() -> Tokenizer {
    let mut tokenizer = Tokenizer::from_gguf(&pulled("gemma-3-270m-q4_k_m.gguf")).unwrap();
    let template = std::fs::read_to_string(fixture("real/gemma3_chat_template.jinja")).unwrap();
    tokenizer.set_chat_template(&template).unwrap();
    tokenizer
}

fn ids(numbers: &[u32]) -> Vec<TokenId> {
    numbers.iter().copied().map(TokenId).collect()
}
