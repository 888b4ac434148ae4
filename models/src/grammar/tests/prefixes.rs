//! Every tokenization of a fitting text is allowed, token by token, and forks do not meet.

use forerun_engine::{Grammar, TokenId, Vocabulary};
use serde_json::json;

use super::super::GrammarSource;
use super::{ENDS, Random, SmallVocabulary, VOCAB_SIZE, allowed, compile};

fn regex(pattern: &str) -> GrammarSource {
    GrammarSource::Regex(pattern.to_owned())
}

/// A random way to cut `text` into tokens of the vocabulary.
fn tokenization(text: &[u8], random: &mut Random) -> Vec<TokenId> {
    let vocabulary = SmallVocabulary::new();
    let mut rest = text;
    let mut ids = Vec::new();
    while !rest.is_empty() {
        let fitting: Vec<TokenId> = (0..VOCAB_SIZE as u32)
            .map(TokenId)
            .filter(|&id| {
                let bytes = vocabulary.token_bytes(id);
                !bytes.is_empty() && rest.starts_with(bytes)
            })
            .collect();
        let id = fitting[random.below(fitting.len())];
        rest = &rest[vocabulary.token_bytes(id).len()..];
        ids.push(id);
    }
    ids
}

fn takes(source: &GrammarSource, text: &str) {
    let compiled = compile(source);
    for seed in 0..20 {
        let mut grammar = compiled.fork();
        for id in tokenization(text.as_bytes(), &mut Random(seed)) {
            let ids = allowed(&mut *grammar, VOCAB_SIZE);
            assert!(ids.contains(&id), "token {id} of {text:?} in {source:?}");
            grammar.accept(id).unwrap();
        }
        let ids = allowed(&mut *grammar, VOCAB_SIZE);
        assert!(ids.contains(&TokenId(ENDS[1])), "no end after {text:?}");
    }
}

/// Whether the grammar takes the text, in single bytes, and may end after it.
fn fits(source: &GrammarSource, text: &str) -> bool {
    let mut grammar = compile(source);
    for byte in text.bytes() {
        let id = TokenId(u32::from(byte));
        if grammar.is_finished() || !allowed(&mut *grammar, VOCAB_SIZE).contains(&id) {
            return false;
        }
        grammar.accept(id).unwrap();
    }
    allowed(&mut *grammar, VOCAB_SIZE).contains(&TokenId(ENDS[0]))
}

#[test]
fn every_tokenization_of_a_fitting_text_is_allowed() {
    takes(&regex("(abc|日本é)+"), "abcabc日本é日本éabc");
    takes(&regex(r#"[^"]*"#), "name: <|end|> true\n  12");
    takes(
        &GrammarSource::Choice(vec!["abcabc".to_owned(), "name".to_owned()]),
        "abcabc",
    );
    takes(
        &GrammarSource::JsonObject,
        "{\"name\": [\"abc\", 1.5e+12, -0.25, true, null, {\"ab\": {\"é\\u001f\\n\": []}}]}",
    );
    takes(&GrammarSource::JsonObject, "{\n  \"a\": 1,\n  \"b\": {}\n}");
    takes(
        &GrammarSource::JsonSchema(json!({
            "type": "object",
            "properties": {"name": {"type": "string"}, "n": {"type": ["integer", "null"]}},
            "required": ["name"],
        })),
        "{\"name\": \"日本 <|end|>\", \"n\": null}",
    );
    takes(
        &GrammarSource::Lark("start: (\"ab\" | \"abc\")+ \"}}\"?".to_owned()),
        "ababcab}}",
    );
}

#[test]
fn properties_come_in_the_order_of_the_schema() {
    let schema = |names: [&str; 2]| {
        let text = format!(
            r#"{{"type":"object","properties":{{"{}":{{"type":"null"}},"{}":{{"type":"null"}}}},"required":["zz","aa"],"additionalProperties":false}}"#,
            names[0], names[1]
        );
        GrammarSource::JsonSchema(serde_json::from_str(&text).unwrap())
    };
    let (z_first, a_first) = (schema(["zz", "aa"]), schema(["aa", "zz"]));
    assert!(fits(&z_first, r#"{"zz":null,"aa":null}"#));
    assert!(!fits(&z_first, r#"{"aa":null,"zz":null}"#));
    assert!(fits(&a_first, r#"{"aa":null,"zz":null}"#));
}

#[test]
fn references_within_the_schema_are_followed() {
    let tree = GrammarSource::JsonSchema(json!({
        "type": "array", "items": {"$ref": "#"}, "maxItems": 2,
    }));
    assert!(fits(&tree, "[[],[[],[]]]"));
    assert!(!fits(&tree, "[[],[],[]]"));
    assert!(!fits(&tree, "[1]"));
}

#[test]
fn a_fork_goes_its_own_way() {
    let mut grammar = compile(&regex("a(b+c|d)e"));
    grammar.accept(TokenId(u32::from(b'a'))).unwrap();
    let before = allowed(&mut *grammar, VOCAB_SIZE);
    let mut fork = grammar.fork();
    let accept = |grammar: &mut dyn Grammar, text: &str| {
        for byte in text.bytes() {
            grammar.accept(TokenId(u32::from(byte))).unwrap();
        }
    };
    accept(&mut *fork, "bbb");
    assert_eq!(allowed(&mut *grammar, VOCAB_SIZE), before);
    accept(&mut *grammar, "de");
    assert!(grammar.is_finished());
    assert!(!fork.is_finished());
    accept(&mut *fork, "bce");
    assert!(fork.is_finished());
    assert!(grammar.fork().is_finished());
}

#[test]
fn an_error_in_a_fork_leaves_the_others_as_they_are() {
    let mut grammar = compile(&regex("ab"));
    let mut fork = grammar.fork();
    for wrong in [u32::from(b'x'), ENDS[0], 281, VOCAB_SIZE as u32 - 1, 5000] {
        let mut fork = grammar.fork();
        let error = fork.accept(TokenId(wrong)).unwrap_err();
        assert!(error.message.contains(&wrong.to_string()), "{error}");
        assert!(fork.fill_mask(&mut [0; VOCAB_SIZE.div_ceil(32)]).is_err());
    }
    grammar.accept(TokenId(u32::from(b'a'))).unwrap();
    fork.accept(TokenId(u32::from(b'a'))).unwrap();
    assert!(!allowed(&mut *fork, VOCAB_SIZE).is_empty());
}
