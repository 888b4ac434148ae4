//! What cannot be compiled gets an error that says why, and hostile sources cost little.

use forerun_engine::{TokenId, Vocabulary};
use serde_json::{Value, json};

use super::super::source::{REGEX_BYTES_MAX, SOURCE_BYTES_MAX};
use super::super::{
    GrammarCompileError, GrammarCompiler, GrammarKind, GrammarSource, GrammarVocabularyError,
};
use super::{ENDS, SmallVocabulary, VOCAB_SIZE, allowed, compiler, refusal};

fn regex(pattern: &str) -> GrammarSource {
    GrammarSource::Regex(pattern.to_owned())
}

fn lark(grammar: &str) -> GrammarSource {
    GrammarSource::Lark(grammar.to_owned())
}

#[test]
fn a_broken_source_is_refused_with_its_kind_and_the_reason() {
    for (source, reason) in [
        (regex("a(b"), "unclosed group"),
        (regex("[z-a]"), "invalid character class range"),
        (regex("(?=a)b"), "look-around"),
        (regex(r"a\"), "backslash"),
        (regex(r"a\\\"), "backslash"),
        (lark("start: \"a\n"), "1(10)"),
        (lark("start: nothing"), "nothing"),
        (lark("other: \"a\""), "start"),
        (lark("start: %json {\"type\": 7}"), "type"),
        (lark(""), "start"),
        (GrammarSource::JsonSchema(json!({"type": "text"})), "text"),
        (
            GrammarSource::JsonSchema(json!({"type": "string", "contains": 1})),
            "contains",
        ),
        (
            GrammarSource::JsonSchema(json!({"$ref": "#/$defs/absent"})),
            "absent",
        ),
        (
            GrammarSource::JsonSchema(json!({"$ref": "http://example.com/schema"})),
            "example.com",
        ),
        (GrammarSource::JsonSchema(json!(false)), "false"),
        (GrammarSource::JsonSchema(json!([])), "schema"),
    ] {
        let error = refusal(&source);
        let text = error.to_string();
        assert!(text.contains(&source.kind().to_string()), "{text}");
        assert!(text.contains(reason), "{source:?}: {text}");
        assert!(
            !text.contains("<non-verbose/>") && !text.contains("backtrace"),
            "{text}"
        );
    }
    let error = refusal(&GrammarSource::Choice(Vec::new()));
    assert_eq!(error, GrammarCompileError::NoChoice);
}

#[test]
fn no_grammar_names_tokens() {
    for grammar in [
        "start: <|end|>",
        "start: <end-284>",
        "start: \"a\" <[97]>",
        "start: <[281]>",
        "start: <[280-283]> \"a\"",
        "start: <[^97]>",
        "start: <[*]>",
        "start: x\nx: \"a\" | <[281]>",
    ] {
        let error = refusal(&lark(grammar));
        assert!(
            matches!(
                error,
                GrammarCompileError::NamesTokens {
                    kind: GrammarKind::Lark,
                    ..
                }
            ),
            "{grammar}: {error}"
        );
    }
}

#[test]
fn all_bytes_in_a_grammar_are_no_control_tokens() {
    let grammar = "%llguidance {\"allow_invalid_utf8\": true}\nstart: /(?s:.)*/";
    let mut grammar = compiler().compile(&lark(grammar)).unwrap();
    let ids = allowed(&mut *grammar, VOCAB_SIZE);
    assert!(
        ids.iter().all(|id| !super::CONTROLS.contains(&id.0)),
        "{ids:?}"
    );
    assert!(ids.len() > 250);
}

#[test]
fn a_source_over_its_limits_is_refused_with_the_numbers() {
    let error = refusal(&regex(&"a".repeat(REGEX_BYTES_MAX + 1)));
    assert_eq!(
        error,
        GrammarCompileError::TooLong {
            kind: GrammarKind::Regex,
            num_bytes: REGEX_BYTES_MAX + 1,
            num_bytes_max: REGEX_BYTES_MAX,
        }
    );
    let long = "a".repeat(SOURCE_BYTES_MAX);
    for source in [
        lark(&format!("start: \"{long}\"")),
        GrammarSource::Choice(vec![long.clone()]),
        GrammarSource::JsonSchema(json!({"const": long})),
    ] {
        let error = refusal(&source);
        assert!(
            matches!(error, GrammarCompileError::TooLong { .. }),
            "{error}"
        );
    }
    let mut deep = Value::Null;
    for _ in 0..200 {
        deep = json!({"items": deep});
    }
    let error = refusal(&GrammarSource::JsonSchema(deep)).to_string();
    assert!(error.contains("128 levels at /items/items"), "{error}");
}

/// Sources whose size is small and whose meaning is not.
fn hostile() -> Vec<GrammarSource> {
    let rules = |begin: &str, num_rules: usize, rule: &dyn Fn(usize) -> String| {
        let rules: String = (0..num_rules).map(rule).collect();
        lark(&format!("{begin}{rules}"))
    };
    let defs: serde_json::Map<String, Value> = (0..5000)
        .map(|index| {
            let next = format!("#/$defs/d{}", (index + 1) % 5000);
            (format!("d{index}"), json!({"items": {"$ref": next}}))
        })
        .collect();
    let mut nested = json!({"type": "string"});
    for _ in 0..40 {
        nested = json!({"anyOf": [nested.clone(), {"type": "array", "items": nested}]});
        if nested.to_string().len() > 100_000 {
            break;
        }
    }
    vec![
        regex("a{1000000}"),
        regex("((a{1,100}){1,100}){1,100}"),
        regex("(((a|b)*c){1,500}d){1,500}"),
        regex("(?i)([a-z]{1,99}[0-9]?){1,99}"),
        regex(r"\w{1,5000}\d{1,5000}\s{1,5000}"),
        regex(&"(".repeat(4000)),
        regex(&"a?".repeat(4000)),
        regex(&format!("{}b", "(a|b)*a".repeat(800))),
        regex(".*a.{30}"),
        rules("start: r0\n", 2000, &|index| {
            format!("r{index}: \"(\" r{} \")\" | \"x\"\n", (index + 1) % 2000)
        }),
        rules("start: r0\nr4400: \"x\"\n", 4400, &|index| {
            format!("r{index}: r{}\n", index + 1)
        }),
        rules("start: T0\nT3000: \"x\"\n", 3000, &|index| {
            format!("T{index}: T{} \"y\"\n", index + 1)
        }),
        rules("start: x\nx: \"a\"", 30_000, &|_| " x".to_owned()),
        lark(&format!("start: {}\"x\"", "~".repeat(60_000))),
        lark(&format!("start: {}\"x\"", "(".repeat(60_000))),
        lark(&format!(
            "start: {}\"x\"{}",
            "(".repeat(25),
            ")*".repeat(25)
        )),
        lark("start: a a a a a a a a\na: b b b b b b b b\nb: c c c c c c c c\nc: \"x\"* | c c"),
        lark("start: \"x\"~100000000"),
        GrammarSource::JsonSchema(json!({"$defs": defs, "$ref": "#/$defs/d0"})),
        GrammarSource::JsonSchema(nested),
        GrammarSource::JsonSchema(json!({"type": "array", "minItems": 1_000_000_000})),
        GrammarSource::JsonSchema(json!({"type": "string", "maxLength": 1_000_000_000})),
        GrammarSource::JsonSchema(json!({"type": "string", "pattern": "(a{1,99}b{1,99}){1,99}"})),
        GrammarSource::JsonSchema(json!({"type": "number", "multipleOf": 1e-300})),
        GrammarSource::JsonSchema(json!({"type": "integer", "minimum": -1e300, "maximum": 1e300})),
        GrammarSource::Choice((0..25_000).map(|index| format!("{index}")).collect()),
    ]
}

#[test]
fn hostile_sources_end_in_an_error_or_in_a_grammar_that_works() {
    let compiler = compiler();
    for source in hostile() {
        let name: String = format!("{source:?}").chars().take(60).collect();
        let mut grammar = match compiler.compile(&source) {
            Ok(grammar) => grammar,
            Err(error) => {
                assert!(error.to_string().len() < 5000, "{name}");
                continue;
            }
        };
        // An error is an answer too, as long as it comes.
        for _ in 0..20 {
            let mut mask = [0; VOCAB_SIZE.div_ceil(32)];
            if grammar.is_finished() || grammar.fill_mask(&mut mask).is_err() {
                break;
            }
            let token = (0..VOCAB_SIZE as u32)
                .find(|&id| mask[id as usize / 32] & (1 << (id % 32)) != 0)
                .unwrap();
            grammar.accept(TokenId(token)).unwrap();
        }
    }
}

struct OneToken(Vec<u8>);

impl Vocabulary for OneToken {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        if id.0 == 0 { &self.0 } else { &[] }
    }
}

#[test]
fn vocabularies_without_a_usable_end_token_are_refused() {
    let vocabulary = SmallVocabulary::new();
    let new = |ends: &[TokenId]| GrammarCompiler::new(&vocabulary, VOCAB_SIZE, ends).map(|_| ());
    assert_eq!(new(&[]), Err(GrammarVocabularyError::NoEndToken));
    let token = TokenId(VOCAB_SIZE as u32);
    assert_eq!(
        new(&[TokenId(ENDS[0]), token]),
        Err(GrammarVocabularyError::EndTokenOutOfVocabulary {
            token,
            vocab_size: VOCAB_SIZE,
        })
    );
    let compiler = GrammarCompiler::new(&OneToken(vec![b'a'; 9]), 1 << 24, &[TokenId(1)]);
    let error = compiler.map(|_| ()).unwrap_err();
    assert!(
        matches!(error, GrammarVocabularyError::TooLarge { .. }),
        "{error}"
    );
}

#[test]
fn tokens_that_the_trie_cannot_hold_are_never_allowed() {
    for (len, is_allowed) in [(1023, true), (1024, true), (1025, false), (3000, false)] {
        let vocabulary = OneToken(vec![b'a'; len]);
        let compiler = GrammarCompiler::new(&vocabulary, 3, &[TokenId(2)]).unwrap();
        let mut grammar = compiler.compile(&regex("a*")).unwrap();
        let ids = allowed(&mut *grammar, 3);
        assert_eq!(ids.contains(&TokenId(0)), is_allowed, "{len} bytes");
    }
    // The mark of llguidance's special tokens, in a token that is none.
    let vocabulary = OneToken(b"\xff<|end|>".to_vec());
    let compiler = GrammarCompiler::new(&vocabulary, 3, &[TokenId(2)]).unwrap();
    let error = compiler
        .compile(&lark("start: <|end|>"))
        .map(|_| ())
        .unwrap_err();
    assert!(
        matches!(error, GrammarCompileError::NamesTokens { .. }),
        "{error}"
    );
}

#[test]
fn a_grammar_that_the_vocabulary_cannot_write_is_an_error_and_no_empty_mask() {
    let vocabulary = OneToken(b"a".to_vec());
    let compiler = GrammarCompiler::new(&vocabulary, 3, &[TokenId(2)]).unwrap();
    let mut grammar = compiler.compile(&regex("ab")).unwrap();
    assert_eq!(allowed(&mut *grammar, 3), [TokenId(0)]);
    grammar.accept(TokenId(0)).unwrap();
    let error = grammar.fill_mask(&mut [0]).unwrap_err();
    assert!(
        error.message.contains("no token of the vocabulary"),
        "{error}"
    );
}
