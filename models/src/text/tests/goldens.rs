//! Token ids and texts against those of the reference implementations.

use super::super::{AddBos, ControlTokens, SpecialTokens, TextStart, Tokenizer};
use super::{Goldens, gemma3, gguf, ids, read_json, smollm2, tiny};

fn check(tokenizer: &Tokenizer, goldens: &Goldens) {
    for golden in &goldens.strings {
        let text = &golden.text;
        let encode = |add_bos| {
            tokenizer
                .encode(text, SpecialTokens::Recognise, add_bos)
                .unwrap()
        };
        assert_eq!(encode(AddBos::Never), ids(&golden.ids), "{text:?}");
        if let Some(with_special) = &golden.ids_with_special {
            assert_eq!(encode(AddBos::Auto), ids(with_special), "{text:?} with BOS");
        }
        let decode =
            |numbers, controls| tokenizer.decode(&ids(numbers), controls, TextStart::Beginning);
        assert_eq!(
            decode(&golden.ids, ControlTokens::Show),
            golden.decoded,
            "{text:?}"
        );
        if let Some(decoded) = &golden.decoded_skip_special {
            let with_special = golden.ids_with_special.as_ref().unwrap();
            assert_eq!(
                &decode(with_special, ControlTokens::Skip),
                decoded,
                "{text:?}"
            );
        }
    }
    for conversation in &goldens.conversations {
        let (messages, prompt) = (&conversation.messages, conversation.prompt());
        let rendered = tokenizer
            .chat_template()
            .unwrap()
            .render(messages, prompt)
            .unwrap();
        assert_eq!(rendered, conversation.rendered);
        let encoded = tokenizer.encode_chat(messages, prompt).unwrap();
        assert_eq!(encoded, ids(&conversation.ids), "{rendered:?}");
    }
}

fn check_tiny(model: &str) {
    let (tokenizer, goldens) = tiny(model);
    assert_eq!(
        (goldens.strings.len(), goldens.conversations.len()),
        (46, 3)
    );
    check(&tokenizer, &goldens);
}

#[test]
fn a_llama_folder_gives_the_reference_ids_and_texts() {
    check_tiny("llama");
}

#[test]
fn a_gemma3_folder_gives_the_reference_ids_and_texts() {
    check_tiny("gemma3");
}

#[test]
fn a_mistral_folder_gives_the_reference_ids_and_texts() {
    check_tiny("mistral");
}

#[test]
fn a_qwen2_folder_gives_the_reference_ids_and_texts() {
    check_tiny("qwen2");
}

#[test]
fn gguf_files_give_the_ids_and_texts_of_the_folders_they_were_made_from() {
    for (file, model) in [
        ("llama-f16", "llama"),
        ("llama-q4_0", "llama"),
        ("qwen2-f16", "qwen2"),
        ("gemma3_p6-f16", "gemma3"),
    ] {
        let (folder, goldens) = tiny(model);
        let tokenizer = gguf(file);
        check(&tokenizer, &goldens);
        assert_eq!(tokenizer.vocab_size(), folder.vocab_size(), "{file}");
        for id in ids(&(0..folder.vocab_size() as u32).collect::<Vec<_>>()) {
            assert_eq!(
                tokenizer.token_bytes(id),
                folder.token_bytes(id),
                "{file}, token {id}"
            );
        }
    }
}

#[test]
fn smollm2_gives_the_reference_ids_and_texts() {
    let goldens: Goldens = read_json("real/smollm2_tokenizer.json");
    assert_eq!(
        (goldens.strings.len(), goldens.conversations.len()),
        (31, 3)
    );
    check(&smollm2(), &goldens);
}

#[test]
fn smollm2_adds_no_bos() {
    let text = "Hello, world!";
    let encoded = smollm2()
        .encode(text, SpecialTokens::Recognise, AddBos::Auto)
        .unwrap();
    assert_eq!(encoded, ids(&[19556, 28, 905, 17]));
}

#[test]
fn gemma3_gives_the_reference_ids_and_texts() {
    let goldens: Goldens = read_json("real/gemma3_tokenizer.json");
    assert_eq!(
        (goldens.strings.len(), goldens.conversations.len()),
        (31, 3)
    );
    check(&gemma3(), &goldens);
}

#[test]
fn gemma3_adds_one_bos_to_text_and_none_to_conversations() {
    let (tokenizer, goldens) = (gemma3(), read_json::<Goldens>("real/gemma3_tokenizer.json"));
    let bos = tokenizer.bos_token_id().unwrap();
    let text = tokenizer
        .encode("Hello", SpecialTokens::Recognise, AddBos::Auto)
        .unwrap();
    assert_eq!(text.iter().filter(|&&id| id == bos).count(), 1);
    for conversation in &goldens.conversations {
        let chat = tokenizer
            .encode_chat(&conversation.messages, conversation.prompt())
            .unwrap();
        assert_eq!(chat.iter().filter(|&&id| id == bos).count(), 1);
    }
}
