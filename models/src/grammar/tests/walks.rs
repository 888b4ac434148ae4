//! Whatever is chosen from the masks, the text fits in the end, and may end only where it fits.

use std::collections::BTreeSet;

use forerun_engine::TokenId;
use serde_json::{Value, json};

use super::super::GrammarSource;
use super::{ENDS, Random, VOCAB_SIZE, allowed, compile, walk};

const NUM_WALKS: u64 = 60;

/// Walks through `source` and returns the different texts.
fn walks(source: &GrammarSource, fits: &dyn Fn(&[u8]) -> bool) -> BTreeSet<Vec<u8>> {
    let compiled = compile(source);
    (0..NUM_WALKS)
        .map(|seed| {
            let mut grammar = compiled.fork();
            let text = walk(&mut *grammar, &mut Random(seed), fits);
            assert!(fits(&text), "{:?}", String::from_utf8_lossy(&text));
            text
        })
        .collect()
}

fn is_json(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok()
}

#[test]
fn every_walk_through_a_regex_matches_it() {
    for pattern in [
        r"[a-c]{2,4}",
        r"(yes|no|maybe)( again){0,3}",
        r"\d{1,3}(\.\d+)?",
        r#"/path/"quoted"\\end"#,
        r"é|日本|[α-ω]+x",
        r"^ab*$",
        r"(a|ab)(c|bcd)?",
        r"\\",
        "a\nb|\tc",
    ] {
        let full = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
        let matches = |text: &[u8]| {
            std::str::from_utf8(text).is_ok_and(|text| {
                full.find(text)
                    .is_some_and(|found| found.len() == text.len())
            })
        };
        let texts = walks(&GrammarSource::Regex(pattern.to_owned()), &matches);
        assert!(!texts.is_empty(), "{pattern}");
    }
}

#[test]
fn a_text_that_may_be_empty_may_end_at_once() {
    for source in [
        GrammarSource::Regex(String::new()),
        GrammarSource::Regex("a?".to_owned()),
        GrammarSource::Choice(vec![String::new()]),
        GrammarSource::Choice(vec!["ab".to_owned(), String::new()]),
        GrammarSource::Lark("start: \"a\"*".to_owned()),
    ] {
        let mut grammar = compile(&source);
        assert!(!grammar.is_finished(), "{source:?}");
        let ids = allowed(&mut *grammar, VOCAB_SIZE);
        assert!(ids.contains(&TokenId(ENDS[0])), "{source:?}");
        grammar.accept(TokenId(ENDS[1])).unwrap();
        assert!(grammar.is_finished(), "{source:?}");
    }
}

/// The texts of the choices test, awkward for quoting and for lexers that take the longest match.
fn choices() -> Vec<String> {
    [
        "a",
        "ab",
        "abc",
        "abcd",
        "yes",
        "no\n",
        "\"quoted\" \\ /",
        "\u{7f}\u{1}",
        "日本",
        "日曜",
        "<|end|>",
        "yes yes",
        "(a|b)*",
        "é",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[test]
fn the_mask_of_choices_is_what_trying_every_token_says() {
    let vocabulary = super::SmallVocabulary::new();
    let compiled = compile(&GrammarSource::Choice(choices()));
    let begins = |text: &[u8]| {
        choices()
            .iter()
            .any(|choice| choice.as_bytes().starts_with(text))
    };
    let mut waiting = vec![(compiled, Vec::new())];
    let mut complete = BTreeSet::new();
    while let Some((mut grammar, text)) = waiting.pop() {
        let is_complete = choices().iter().any(|choice| choice.as_bytes() == text);
        if is_complete {
            complete.insert(text.clone());
        }
        let expected: Vec<TokenId> = (0..VOCAB_SIZE as u32)
            .map(TokenId)
            .filter(|&id| {
                let bytes = forerun_engine::Vocabulary::token_bytes(&vocabulary, id);
                let longer = [&text, bytes].concat();
                (!bytes.is_empty() && begins(&longer)) || (is_complete && ENDS.contains(&id.0))
            })
            .collect();
        assert_eq!(allowed(&mut *grammar, VOCAB_SIZE), expected, "{text:?}");
        for id in expected.into_iter().filter(|id| !ENDS.contains(&id.0)) {
            let mut next = grammar.fork();
            next.accept(id).unwrap();
            let bytes = forerun_engine::Vocabulary::token_bytes(&vocabulary, id);
            let text = [&text, bytes].concat();
            if next.is_finished() {
                complete.insert(text);
            } else {
                waiting.push((next, text));
            }
        }
    }
    assert_eq!(complete.len(), choices().len());
}

#[test]
fn every_walk_through_a_json_object_parses() {
    let fits = |text: &[u8]| is_json(text).is_some_and(|value| value.is_object());
    let texts = walks(&GrammarSource::JsonObject, &fits);
    assert!(texts.len() > 10);
}

fn person_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 5},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "kind": {"enum": ["a", "ab", 7, null]},
            "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
            "child": {"$ref": "#/$defs/child"},
        },
        "required": ["name", "age"],
        "additionalProperties": false,
        "$defs": {
            "child": {
                "type": "object",
                "properties": {"child": {"$ref": "#/$defs/child"}, "x": {"type": "number"}},
                "required": ["x"],
                "additionalProperties": false,
            },
        },
    })
}

fn fits_child(value: &Value) -> bool {
    let Some(members) = value.as_object() else {
        return false;
    };
    members.iter().all(|(name, member)| match name.as_str() {
        "child" => fits_child(member),
        "x" => member.is_number(),
        _ => false,
    }) && members.contains_key("x")
}

fn fits_person(value: &Value) -> bool {
    let Some(members) = value.as_object() else {
        return false;
    };
    members.iter().all(|(name, member)| match name.as_str() {
        "name" => member
            .as_str()
            .is_some_and(|name| (1..=5).contains(&name.chars().count())),
        "age" => member.as_u64().is_some_and(|age| age <= 150),
        "kind" => [json!("a"), json!("ab"), json!(7), Value::Null].contains(member),
        "tags" => member
            .as_array()
            .is_some_and(|tags| tags.len() <= 3 && tags.iter().all(Value::is_boolean)),
        "child" => fits_child(member),
        _ => false,
    }) && members.contains_key("name")
        && members.contains_key("age")
}

#[test]
fn every_walk_through_a_schema_gives_what_the_schema_accepts() {
    let fits = |text: &[u8]| is_json(text).is_some_and(|value| fits_person(&value));
    let texts = walks(&GrammarSource::JsonSchema(person_schema()), &fits);
    assert!(texts.len() > 10);
}

#[test]
fn every_walk_through_a_lark_grammar_derives_from_it() {
    let lark = r#"
        start: sum
        sum: product ("+" product)*
        product: atom ("*" atom)*
        atom: /[0-9]{1,2}/ | "(" sum ")"
    "#;
    let fits = |text: &[u8]| {
        let mut rest = text;
        sum(&mut rest) && rest.is_empty()
    };
    let texts = walks(&GrammarSource::Lark(lark.to_owned()), &fits);
    assert!(texts.len() > 10);
}

fn take(rest: &mut &[u8], byte: u8) -> bool {
    let is_next = rest.first() == Some(&byte);
    if is_next {
        *rest = &rest[1..];
    }
    is_next
}

fn sum(rest: &mut &[u8]) -> bool {
    let mut fits = product(rest);
    while fits && take(rest, b'+') {
        fits = product(rest);
    }
    fits
}

fn product(rest: &mut &[u8]) -> bool {
    let mut fits = atom(rest);
    while fits && take(rest, b'*') {
        fits = atom(rest);
    }
    fits
}

fn atom(rest: &mut &[u8]) -> bool {
    if take(rest, b'(') {
        return sum(rest) && take(rest, b')');
    }
    let num_digits = rest
        .iter()
        .take(2)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    *rest = &rest[num_digits..];
    num_digits > 0
}
