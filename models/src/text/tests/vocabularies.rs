//! Vocabularies made by hand: BOS and end tokens (B68, B72), kinds of tokens (B74), wrong files.

use super::super::gguf_tokenizer::GgufVocabulary;
use super::super::{AddBos, SpecialTokens, TextError, Tokenizer};
use super::{gguf, ids, smollm2};
use crate::loaders::test_files::{Scratch, fixture};

const BYTES_AND_WORDS: [&str; 12] = [
    "<s>",
    "<eos>",
    "<unk>",
    "<think>",
    "<0x0A>",
    "a",
    "b",
    "ab",
    "\u{2581}",
    "\u{2581}a",
    "abab",
    "<",
];

/// A SentencePiece vocabulary with each kind of token.
fn spm() -> GgufVocabulary<'static> {
    GgufVocabulary {
        model: "llama",
        tokens: BYTES_AND_WORDS.to_vec(),
        types: Some(vec![3, 3, 2, 4, 6, 1, 1, 1, 1, 1, 5, 1]),
        scores: Some(vec![
            0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0, -1.0, -9.0, -2.0, -3.0, -9.0,
        ]),
        add_space_prefix: Some(false),
        ..GgufVocabulary::default()
    }
}

/// A byte-level vocabulary of a few bytes.
fn byte_level() -> GgufVocabulary<'static> {
    GgufVocabulary {
        model: "gpt2",
        pre: Some("gpt-2"),
        tokens: vec!["a", "b", "ab", "Ġ", "Ċ", "<eos>"],
        types: Some(vec![1, 1, 1, 1, 1, 3]),
        merges: Some(vec!["a b"]),
        ..GgufVocabulary::default()
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let encoded = tokenizer
        .encode(text, SpecialTokens::Recognise, AddBos::Auto)
        .unwrap();
    encoded.into_iter().map(|id| id.0).collect()
}

#[test]
fn each_kind_of_token_is_treated_as_its_kind() {
    let tokenizer = spm().build().unwrap();
    assert_eq!(encode(&tokenizer, "<think>ab"), [3, 7]);
    assert_eq!(encode(&tokenizer, "a<eos>\n"), [5, 1, 4]);
    // Neither control tokens nor byte tokens come from merging their characters.
    let as_text = tokenizer
        .encode("<s>", SpecialTokens::AsText, AddBos::Never)
        .unwrap();
    assert_eq!(as_text, ids(&[11, 2]));
    // A piece out of use is split into what it was merged from.
    assert_eq!(encode(&tokenizer, "abab ab"), [7, 7, 8, 7]);
    // A run of characters that the vocabulary lacks is one unknown token.
    assert_eq!(encode(&tokenizer, "axéyb"), [5, 2, 6]);
}

#[test]
fn a_space_goes_in_front_of_each_part_where_the_file_says_so() {
    let vocabulary = GgufVocabulary {
        add_space_prefix: None,
        ..spm()
    };
    assert_eq!(encode(&vocabulary.build().unwrap(), "a<eos>a"), [9, 1, 9]);
}

#[test]
fn bos_is_added_as_the_file_says() {
    let build = |vocabulary: GgufVocabulary<'static>, bos, add_bos| {
        GgufVocabulary {
            bos,
            add_bos,
            ..vocabulary
        }
        .build()
    };
    for (bos, add_bos, spm_ids, byte_ids) in [
        (Some(0), Some(true), vec![0, 5], vec![0, 0]),
        (Some(0), Some(false), vec![5], vec![0]),
        (Some(0), None, vec![0, 5], vec![0]),
        (None, Some(false), vec![5], vec![0]),
        (None, None, vec![5], vec![0]),
    ] {
        assert_eq!(encode(&build(spm(), bos, add_bos).unwrap(), "a"), spm_ids);
        assert_eq!(
            encode(&build(byte_level(), bos, add_bos).unwrap(), "a"),
            byte_ids
        );
    }
    let error = build(spm(), None, Some(true)).unwrap_err();
    assert!(matches!(error, TextError::BosWithoutId { .. }), "{error}");
    assert!(
        build(spm(), Some(12), None)
            .unwrap_err()
            .to_string()
            .contains("less than 12")
    );
}

#[test]
fn end_tokens_are_the_union_of_all_that_the_file_names() {
    let named = GgufVocabulary {
        ends: [Some(1), Some(3), Some(1)],
        ..spm()
    };
    assert_eq!(named.build().unwrap().eos_token_ids(), ids(&[1, 3]));
    assert_eq!(spm().build().unwrap().eos_token_ids(), []);
    // By name, where the file names no end of turn.
    assert_eq!(smollm2().eos_token_ids(), ids(&[2, 0]));
    assert_eq!(gguf("gemma3_p6-f16").eos_token_ids(), ids(&[1, 5]));
    let mut tokenizer = spm().build().unwrap();
    tokenizer.add_eos_token_ids(ids(&[5, 5, 6]));
    assert_eq!(tokenizer.eos_token_ids(), ids(&[5, 6]));
}

#[test]
fn what_is_not_supported_is_named_with_what_is() {
    let error = |vocabulary: GgufVocabulary<'_>| vocabulary.build().unwrap_err().to_string();
    let unknown_pre = GgufVocabulary {
        pre: Some("tekken"),
        ..byte_level()
    };
    let message = error(unknown_pre);
    assert!(
        message.contains("tekken") && message.contains("smollm"),
        "{message}"
    );
    let message = error(GgufVocabulary {
        model: "rwkv",
        ..byte_level()
    });
    assert!(
        message.contains("rwkv") && message.contains("gpt2"),
        "{message}"
    );
}

#[test]
fn wrong_vocabularies_are_errors_with_the_numbers() {
    let check = |vocabulary: GgufVocabulary<'_>, parts: [&str; 2]| {
        let message = vocabulary.build().unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    check(
        GgufVocabulary {
            types: Some(vec![1]),
            ..spm()
        },
        ["12", "found 1"],
    );
    check(
        GgufVocabulary {
            scores: Some(vec![0.0]),
            ..spm()
        },
        ["12", "found 1"],
    );
    check(
        GgufVocabulary {
            scores: Some(vec![f32::NAN; 12]),
            ..spm()
        },
        ["token 0", "NaN"],
    );
    check(
        GgufVocabulary {
            scores: None,
            ..spm()
        },
        ["scores", "none"],
    );
    check(
        GgufVocabulary {
            merges: None,
            ..byte_level()
        },
        ["merges", "none"],
    );
    check(
        GgufVocabulary {
            types: Some(vec![7; 12]),
            ..spm()
        },
        ["token 0", "found 7"],
    );
    check(
        GgufVocabulary {
            types: Some(vec![6; 12]),
            ..spm()
        },
        ["byte token 0", "<s>"],
    );
}

#[test]
fn wrong_merges_and_templates_are_errors_that_name_them() {
    let check = |vocabulary: GgufVocabulary<'_>, parts: [&str; 2]| {
        let message = vocabulary.build().unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    check(
        GgufVocabulary {
            merges: Some(vec!["ab"]),
            ..byte_level()
        },
        ["merge 0", "ab"],
    );
    check(
        GgufVocabulary {
            merges: Some(vec!["a b", "b a"]),
            ..byte_level()
        },
        ["merge 1", "b a"],
    );
    check(
        GgufVocabulary {
            chat_template: Some("{% if"),
            ..spm()
        },
        ["chat template", "Jinja"],
    );
}

#[test]
fn a_folder_takes_bos_from_its_tokenizer_alone_and_ends_from_everywhere() {
    let folder = Scratch::new("tokenizer");
    std::fs::copy(
        fixture("tiny/qwen2/tokenizer.json"),
        folder.path().join("tokenizer.json"),
    )
    .unwrap();
    let load = || Tokenizer::from_hf_folder(folder.path());
    folder.write("config.json", br#"{"bos_token_id": 7, "eos_token_id": 1}"#);
    folder.write("generation_config.json", br#"{"eos_token_id": [1, 2]}"#);
    let config = br#"{"bos_token": null, "add_bos_token": false,
        "eos_token": {"content": "<|endoftext|>"}}"#;
    folder.write("tokenizer_config.json", config);
    let tokenizer = load().unwrap();
    assert_eq!(tokenizer.bos_token_id(), None);
    assert_eq!(encode(&tokenizer, "Hi").len(), 2);
    assert_eq!(tokenizer.eos_token_ids(), ids(&[0, 1, 2]));
    folder.write(
        "tokenizer_config.json",
        br#"{"bos_token": null, "add_bos_token": true}"#,
    );
    assert!(matches!(
        load().unwrap_err(),
        TextError::BosWithoutId { .. }
    ));
    folder.write("tokenizer_config.json", br#"{"add_bos_token": true}"#);
    folder.write(
        "special_tokens_map.json",
        br#"{"bos_token": "<|im_start|>"}"#,
    );
    assert_eq!(encode(&load().unwrap(), "Hi")[0], 1);
    folder.write(
        "tokenizer_config.json",
        br#"{"chat_template": [{"name": "tool_use", "template": "x"},
        {"name": "default", "template": "y{{ bos_token }}"}]}"#,
    );
    let template = |tokenizer: &Tokenizer| {
        let template = tokenizer.chat_template().unwrap();
        template.render(&[], super::GenerationPrompt::Omit).unwrap()
    };
    assert_eq!(template(&load().unwrap()), "y<|im_start|>");
    folder.write("chat_template.jinja", b"z\n");
    assert_eq!(template(&load().unwrap()), "z");
}

#[test]
fn wrong_folders_are_errors_that_name_the_file() {
    let folder = Scratch::new("tokenizer-wrong");
    let message = || {
        Tokenizer::from_hf_folder(folder.path())
            .unwrap_err()
            .to_string()
    };
    assert!(message().contains("tokenizer.json"));
    folder.write("tokenizer.json", b"{}");
    assert!(message().contains("tokenizer.json"), "{}", message());
    std::fs::copy(
        fixture("tiny/qwen2/tokenizer.json"),
        folder.path().join("tokenizer.json"),
    )
    .unwrap();
    folder.write("tokenizer_config.json", b"[");
    assert!(message().contains("tokenizer_config.json"), "{}", message());
    folder.write("tokenizer_config.json", br#"{"add_bos_token": 1}"#);
    assert!(message().contains("add_bos_token"), "{}", message());
    folder.write("tokenizer_config.json", b"{}");
    folder.write("config.json", br#"{"eos_token_id": -1}"#);
    assert!(
        message().contains("config.json") && message().contains("-1"),
        "{}",
        message()
    );
}
