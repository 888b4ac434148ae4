//! Streams of text (B69, B70).

use super::super::{AddBos, ControlTokens, SpecialTokens, TextStart, Utf8Stream};
use super::{gemma3, ids, smollm2, tiny};

#[test]
fn a_character_over_several_tokens_comes_once_and_whole() {
    let tokenizer = tiny("llama").0;
    let encoded = tokenizer
        .encode("a😀b", SpecialTokens::AsText, AddBos::Never)
        .unwrap();
    assert!(encoded.len() > 3);
    let mut stream = tokenizer.detokenizer(ControlTokens::Skip, TextStart::Beginning);
    let chunks: Vec<_> = encoded
        .iter()
        .map(|&id| stream.push(id).to_owned())
        .collect();
    let with_text: Vec<_> = chunks.iter().filter(|chunk| !chunk.is_empty()).collect();
    assert_eq!(with_text, ["a", "😀", "b"]);
    assert_eq!(stream.finish(), "");
}

#[test]
fn a_character_cut_off_at_the_end_is_one_replacement_character() {
    let mut stream = Utf8Stream::default();
    assert_eq!(stream.push("x😀".as_bytes().split_at(3).0), "x");
    assert_eq!(stream.finish(), "\u{FFFD}");
    assert_eq!(stream.finish(), "");
}

#[test]
fn ill_formed_bytes_do_not_hold_up_the_text_after_them() {
    let mut stream = Utf8Stream::default();
    assert_eq!(stream.push(&[0xF0, 0x9F]), "");
    assert_eq!(stream.push(b"a\xFFb\xC3"), "\u{FFFD}a\u{FFFD}b");
    assert_eq!(stream.push(&[0xA9]), "é");
}

#[test]
fn every_pair_of_bytes_streams_as_it_decodes_whole() {
    for pair in 0..=u16::MAX {
        let bytes = [b'x', (pair >> 8) as u8, pair as u8, 0x80];
        let mut stream = Utf8Stream::default();
        let mut text = String::new();
        for byte in bytes {
            text.push_str(stream.push(&[byte]));
        }
        text.push_str(stream.finish());
        assert_eq!(text, String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn control_tokens_are_shown_only_when_asked() {
    let tokenizer = smollm2();
    let encoded = ids(&[1, 4093, 198, 2]);
    let decode = |controls| tokenizer.decode(&encoded, controls, TextStart::Beginning);
    assert_eq!(decode(ControlTokens::Skip), "user\n");
    assert_eq!(decode(ControlTokens::Show), "<|im_start|>user\n<|im_end|>");
}

#[test]
fn an_answer_keeps_its_leading_space_where_a_text_loses_it() {
    let tokenizer = tiny("mistral").0;
    let encoded = tokenizer
        .encode("Hello", SpecialTokens::AsText, AddBos::Never)
        .unwrap();
    let decode = |start| tokenizer.decode(&encoded, ControlTokens::Skip, start);
    assert_eq!(decode(TextStart::Beginning), "Hello");
    assert_eq!(decode(TextStart::Continuation), " Hello");
}

#[test]
fn ids_past_the_vocabulary_add_nothing() {
    let tokenizer = gemma3();
    assert_eq!(tokenizer.vocab_size(), 262_144);
    let encoded = ids(&[9259, 262_144, u32::MAX, 236_764]);
    let text = tokenizer.decode(&encoded, ControlTokens::Show, TextStart::Beginning);
    assert_eq!(text, "Hello,");
}

#[test]
fn tokens_give_exact_bytes() {
    let gemma = gemma3();
    assert_eq!(gemma.token_bytes(ids(&[238])[0]), [0]);
    assert_eq!(gemma.token_bytes(ids(&[1902])[0]), b" world");
    assert_eq!(gemma.token_bytes(ids(&[2])[0]), b"");
    assert_eq!(gemma.token_name(ids(&[2])[0]), b"<bos>");
    assert_eq!(gemma.token_bytes(ids(&[138])[0]), b"  ");
    let smollm = smollm2();
    assert_eq!(smollm.token_bytes(ids(&[905])[0]), b" world");
    assert_eq!(smollm.token_bytes(ids(&[198])[0]), b"\n");
}
