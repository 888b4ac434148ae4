//! Properties over random ids and texts, from fixed seeds.

use super::super::{AddBos, ControlTokens, GenerationPrompt, Message, SpecialTokens, TextStart};
use super::{gemma3, gguf, ids, smollm2, tiny};
use crate::loaders::test_files::fixture;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A text of scraps that tokenizers treat in special ways.
    fn text(&mut self) -> String {
        const SCRAPS: [&str; 38] = [
            " ",
            "  ",
            "   ",
            "\n",
            "\n\n",
            "\r\n",
            "\t",
            "a",
            "the",
            " the",
            "Hello",
            "ING",
            "é",
            "e\u{301}",
            "日本",
            "😀",
            "👨\u{200d}👩",
            "½",
            "²",
            "0",
            "2024",
            "'s",
            "'LL",
            "!",
            "...",
            "<",
            "|>",
            "<|im_end|>",
            "<bos>",
            "</s>",
            "<s>",
            "<eos>",
            "<|eot_id|>",
            "\u{2581}",
            "\u{a0}",
            "\u{3000}",
            "\0",
            "x\u{0338}",
        ];
        (0..self.below(12))
            .map(|_| SCRAPS[self.below(SCRAPS.len())])
            .collect()
    }
}

#[test]
fn streams_of_random_ids_join_to_the_full_decode() {
    let mut random = Random(1);
    for tokenizer in [
        smollm2(),
        gemma3(),
        tiny("mistral").0,
        tiny("llama").0,
        gguf("gemma3_p6-f16"),
    ] {
        for round in 0..1000 {
            // The first 256 to 600 ids hold the byte tokens; half of the rounds stay there.
            let end = if round % 2 == 0 {
                tokenizer.vocab_size() + 3
            } else {
                600
            };
            let count = random.below(40);
            let numbers: Vec<_> = (0..count).map(|_| random.below(end) as u32).collect();
            for controls in [ControlTokens::Skip, ControlTokens::Show] {
                for start in [TextStart::Beginning, TextStart::Continuation] {
                    let mut stream = tokenizer.detokenizer(controls, start);
                    let mut joined = String::new();
                    let mut bytes = Vec::new();
                    for id in ids(&numbers) {
                        joined.push_str(stream.push(id));
                        bytes.extend_from_slice(match controls {
                            ControlTokens::Skip => tokenizer.token_bytes(id),
                            ControlTokens::Show => tokenizer.token_name(id),
                        });
                    }
                    joined.push_str(stream.finish());
                    assert_eq!(joined, tokenizer.decode(&ids(&numbers), controls, start));
                    let lossy = String::from_utf8_lossy(&bytes);
                    let is_cut = joined.len() + 1 == lossy.len() && lossy.starts_with(' ');
                    assert!(joined == lossy || is_cut, "{joined:?} {lossy:?}");
                }
            }
        }
    }
}

#[test]
fn the_pipeline_gives_the_ids_of_the_tokenizers_library() {
    let mut random = Random(2);
    for model in ["llama", "gemma3", "mistral", "qwen2"] {
        let tokenizer = tiny(model).0;
        let path = fixture(&format!("tiny/{model}/tokenizer.json"));
        let mut library = tokenizers::Tokenizer::from_file(path).unwrap();
        for _ in 0..1000 {
            let text = random.text();
            for specials in [SpecialTokens::Recognise, SpecialTokens::AsText] {
                library.set_encode_special_tokens(specials == SpecialTokens::AsText);
                for add_bos in [AddBos::Auto, AddBos::Never] {
                    // Qwen adds no BOS; its library says so too.
                    let expected = library
                        .encode(text.as_str(), add_bos == AddBos::Auto)
                        .unwrap();
                    let found = tokenizer.encode(&text, specials, add_bos).unwrap();
                    assert_eq!(
                        found,
                        ids(expected.get_ids()),
                        "{model}: {text:?}, {specials:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn gguf_files_and_their_folders_agree_on_random_texts() {
    let mut random = Random(3);
    for (file, model) in [
        ("llama-f16", "llama"),
        ("qwen2-f16", "qwen2"),
        ("gemma3_p6-f16", "gemma3"),
    ] {
        let (from_gguf, from_folder) = (gguf(file), tiny(model).0);
        for _ in 0..1000 {
            // The folder takes a literal U+2581 for two spaces' token only after merging.
            let text = random.text().replace('\u{2581}', "");
            let encode = |tokenizer: &super::Tokenizer, specials| {
                tokenizer.encode(&text, specials, AddBos::Auto).unwrap()
            };
            for specials in [SpecialTokens::Recognise, SpecialTokens::AsText] {
                let (found, expected) =
                    (encode(&from_gguf, specials), encode(&from_folder, specials));
                assert_eq!(found, expected, "{model}: {text:?}, {specials:?}");
            }
        }
    }
}

#[test]
fn text_survives_the_way_there_and_back() {
    let mut random = Random(4);
    for tokenizer in [gemma3(), gguf("llama-f16"), tiny("mistral").0] {
        for _ in 0..1000 {
            let text = random.text().replace('\u{2581}', "");
            let encoded = tokenizer
                .encode(&text, SpecialTokens::AsText, AddBos::Never)
                .unwrap();
            let decoded = tokenizer.decode(&encoded, ControlTokens::Skip, TextStart::Beginning);
            assert_eq!(decoded, text);
        }
    }
}

#[test]
fn conversations_without_control_text_are_rendered_and_tokenized_whole() {
    let mut random = Random(5);
    for tokenizer in [smollm2(), gemma3(), tiny("mistral").0, gguf("llama-f16")] {
        for _ in 0..200 {
            let content = random.text().replace(['<', '|', '>'], "");
            let messages = [Message::new("user", content)];
            let prompt = GenerationPrompt::Add;
            let rendered = tokenizer
                .chat_template()
                .unwrap()
                .render(&messages, prompt)
                .unwrap();
            let whole = tokenizer
                .encode(&rendered, SpecialTokens::Recognise, AddBos::Never)
                .unwrap();
            assert_eq!(
                tokenizer.encode_chat(&messages, prompt).unwrap(),
                whole,
                "{rendered:?}"
            );
        }
    }
}
