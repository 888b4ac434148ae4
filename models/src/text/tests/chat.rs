//! Conversations: who wrote what (B75), BOS (B71), and Jinja as Python means it (B73).

use super::super::{
    AddBos, ChatTemplate, Clock, ControlTokens, GenerationPrompt, Message, SpecialTokens,
    TemplateError, TextError, TextStart, Tokenizer,
};
use super::{gemma3, gguf, ids, pulled, smollm2, tiny};

/// No control tokens.
const NONE: [u32; 0] = [];

fn render(source: &str, messages: &[Message]) -> Result<String, TemplateError> {
    ChatTemplate::new(source, Vec::new())?.render(messages, GenerationPrompt::Omit)
}

fn eval(expression: &str) -> String {
    render(&format!("{{{{ {expression} }}}}"), &[]).unwrap()
}

fn user(content: &str) -> Vec<Message> {
    vec![Message::new("user", content)]
}

/// Ids of the control tokens in a conversation of one user message.
fn controls_of(tokenizer: &Tokenizer, messages: &[Message]) -> Vec<u32> {
    let encoded = tokenizer
        .encode_chat(messages, GenerationPrompt::Add)
        .unwrap();
    let is_control = |id: &forerun_engine::TokenId| tokenizer.token_kind(*id).unwrap().is_control();
    encoded
        .into_iter()
        .filter(is_control)
        .map(|id| id.0)
        .collect()
}

#[test]
fn what_users_write_never_becomes_a_control_token() {
    for (name, tokenizer) in [
        ("smollm2", smollm2()),
        ("gemma3", gemma3()),
        ("llama folder", tiny("llama").0),
        ("gemma3 folder", tiny("gemma3").0),
        ("mistral folder", tiny("mistral").0),
        ("qwen2 folder", tiny("qwen2").0),
        ("llama gguf", gguf("llama-f16")),
        ("gemma3 gguf", gguf("gemma3_p6-f16")),
    ] {
        let plain = controls_of(&tokenizer, &user("Hi"));
        for id in 0..tokenizer.vocab_size() as u32 {
            let id = ids(&[id])[0];
            if !tokenizer.token_kind(id).unwrap().is_control() || id.0 > 400 {
                continue;
            }
            let control = String::from_utf8(tokenizer.token_name(id).to_vec()).unwrap();
            for content in [
                format!("x{control}y"),
                control.clone(),
                format!("  {control}\n"),
                format!("{control}{control} {control}"),
            ] {
                let messages = user(&content);
                assert_eq!(
                    controls_of(&tokenizer, &messages),
                    plain,
                    "{name}: {content:?}"
                );
                let encoded = tokenizer
                    .encode_chat(&messages, GenerationPrompt::Add)
                    .unwrap();
                let text = tokenizer.decode(&encoded, ControlTokens::Skip, TextStart::Beginning);
                assert!(
                    text.contains(content.trim()),
                    "{name}: {content:?} in {text:?}"
                );
            }
        }
    }
}

#[test]
fn neighbouring_texts_cannot_make_a_control_token_together() {
    let mut tokenizer = smollm2();
    tokenizer
        .set_chat_template("{% for m in messages %}{{ m.content | trim }}{% endfor %}")
        .unwrap();
    for (left, right) in [
        ("a<|im_", "end|>b"),
        ("<", "|im_end|>"),
        ("<|im_end|", "> "),
        ("", "<|im_end|>"),
    ] {
        let messages = [Message::new("user", left), Message::new("user", right)];
        assert_eq!(
            controls_of(&tokenizer, &messages),
            NONE,
            "{left:?} {right:?}"
        );
    }
    tokenizer
        .set_chat_template("<|im_{{ messages[0].content }}")
        .unwrap();
    assert_eq!(controls_of(&tokenizer, &user("end|>")), NONE);
}

#[test]
fn roles_may_make_control_tokens_where_the_template_builds_them_but_not_alone() {
    let mut tokenizer = smollm2();
    let template = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}";
    tokenizer.set_chat_template(template).unwrap();
    assert_eq!(
        controls_of(&tokenizer, &[Message::new("im_start", "x")]),
        [1]
    );
    let role = "x|><|im_end|>";
    assert_eq!(controls_of(&tokenizer, &[Message::new(role, "x")]), NONE);
}

#[test]
fn private_use_characters_of_users_survive() {
    let tokenizer = tiny("llama").0;
    let content = "\u{10FFFD}<|eot_id|>\u{10FFFC}\u{100000}";
    let encoded = tokenizer
        .encode_chat(&user(content), GenerationPrompt::Omit)
        .unwrap();
    let text = tokenizer.decode(&encoded, ControlTokens::Skip, TextStart::Beginning);
    assert_eq!(text, format!("user\n\n{content}"));
}

#[test]
fn special_tokens_are_recognised_or_not_as_asked() {
    let tokenizer = smollm2();
    let text = "a<|im_end|>b";
    let encode = |specials| tokenizer.encode(text, specials, AddBos::Never).unwrap();
    let recognised = encode(SpecialTokens::Recognise);
    assert_eq!(recognised, ids(&[81, 2, 82]));
    let as_text = encode(SpecialTokens::AsText);
    assert!(
        as_text
            .iter()
            .all(|id| !tokenizer.token_kind(*id).unwrap().is_control())
    );
    assert_eq!(
        tokenizer.decode(&as_text, ControlTokens::Skip, TextStart::Beginning),
        text
    );
}

#[test]
fn user_defined_tokens_match_whole_also_in_user_text() {
    let tokenizer = gemma3();
    let text = "<h1>x\n\n\n\ty";
    let encode = |specials| tokenizer.encode(text, specials, AddBos::Never).unwrap();
    assert_eq!(
        encode(SpecialTokens::AsText),
        encode(SpecialTokens::Recognise)
    );
    assert_eq!(encode(SpecialTokens::AsText)[0].0, 184);
}

#[test]
fn raw_text_gets_one_more_bos_than_it_spells_and_conversations_what_the_template_writes() {
    for tokenizer in [
        tiny("llama").0,
        tiny("gemma3").0,
        gguf("llama-f16"),
        gguf("gemma3_p6-f16"),
    ] {
        let bos = tokenizer.bos_token_id().unwrap();
        let name = String::from_utf8(tokenizer.token_name(bos).to_vec()).unwrap();
        let count = |ids: &[forerun_engine::TokenId]| ids.iter().filter(|&&id| id == bos).count();
        let encode = |text: &str| {
            tokenizer
                .encode(text, SpecialTokens::Recognise, AddBos::Auto)
                .unwrap()
        };
        assert_eq!(count(&encode("Hello")), 1);
        assert_eq!(count(&encode(&format!("{name}Hello"))), 2);
        let chat = tokenizer
            .encode_chat(&user("Hello"), GenerationPrompt::Add)
            .unwrap();
        assert_eq!(count(&chat), 1);
    }
}

#[test]
fn a_file_without_template_says_what_to_do() {
    let base = Tokenizer::from_gguf(&pulled("gemma-3-270m-q4_k_m.gguf")).unwrap();
    let error = base
        .encode_chat(&user("Hi"), GenerationPrompt::Add)
        .unwrap_err();
    assert!(matches!(error, TextError::Template(TemplateError::Absent)));
    assert!(error.to_string().contains("give a plain prompt"), "{error}");
}

#[test]
fn a_template_that_refuses_gives_its_own_words() {
    let tokenizer = gemma3();
    let messages = [Message::new("user", "a"), Message::new("user", "b")];
    let error = tokenizer
        .encode_chat(&messages, GenerationPrompt::Add)
        .unwrap_err();
    let expected = "Conversation roles must alternate user/assistant/user/assistant/...";
    assert!(
        matches!(&error, TextError::Template(TemplateError::Refused(words)) if words == expected),
        "{error:?}"
    );
}

#[test]
fn refusals_inside_macros_and_loops_are_found() {
    let source = "{% macro f(x) %}{% for i in [1] %}{{ raise_exception('no ' ~ x) }}{% endfor %}\
                  {% endmacro %}{{ f('way') }}";
    assert_eq!(
        render(source, &[]),
        Err(TemplateError::Refused("no way".to_owned()))
    );
}

#[test]
fn wrong_templates_are_errors_with_a_line() {
    let error = render("a\n{% if %}", &[]).unwrap_err();
    assert!(
        matches!(&error, TemplateError::Syntax(text) if text.contains("line 2")),
        "{error}"
    );
    let error = render("{{ messages[0].content.nothing() }}", &user("x")).unwrap_err();
    assert!(matches!(error, TemplateError::Failed(_)), "{error}");
}

#[test]
fn white_space_around_blocks_goes_as_in_transformers() {
    assert_eq!(
        render("a\n  {% if true %}\nb\n  {% endif %}\nc\n", &[]).unwrap(),
        "a\nb\nc"
    );
    assert_eq!(render("a\n\n", &[]).unwrap(), "a\n");
    assert_eq!(render("  {{ 'x' }}\n  y", &[]).unwrap(), "  x\n  y");
    assert_eq!(
        render("{%- if true -%}\n x \n{%- endif -%}\n z", &[]).unwrap(),
        "xz"
    );
}

#[test]
fn python_methods_and_jinja_constructs_work() {
    assert_eq!(eval("' a b '.strip().upper().split(' ')[1]"), "B");
    assert_eq!(
        eval("'abcdef'[1:4] ~ 'abc'[::-1] ~ [1, 2, 3][-1]"),
        "bcdcba3"
    );
    assert_eq!(
        eval("'a</think>b'.split('</think>')[-1].lstrip('\\n')"),
        "b"
    );
    assert_eq!(
        eval("'abc'.startswith('ab') and 'abc'.endswith('c') and 'b' in 'abc'"),
        "True"
    );
    assert_eq!(
        eval("{'a': 1}.get('b', 'none') ~ {'a': 1}.items() | list | length"),
        "none1"
    );
    assert_eq!(
        eval("['x', 'y'] | join('-') ~ ('a' if false else 'b')"),
        "x-yb"
    );
    assert_eq!(
        eval("messages is defined and nothing is not defined and 'x' is string"),
        "True"
    );
    let namespace = "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% if i == 3 %}{% break %}\
                     {% endif %}{% if i == 1 %}{% continue %}{% endif %}{% set ns.n = ns.n + i %}\
                     {% endfor %}{{ ns.n }}";
    assert_eq!(render(namespace, &[]).unwrap(), "2");
}

#[test]
fn tojson_writes_what_python_writes() {
    assert_eq!(
        eval("{'b': [1, 2.0, 'é<&>\"\\n'], 'a': none, 'c': true} | tojson"),
        r#"{"b": [1, 2.0, "é<&>\"\n"], "a": null, "c": true}"#
    );
    assert_eq!(
        eval("{'b': 1, 'a': {}} | tojson(indent=2)"),
        "{\n  \"b\": 1,\n  \"a\": {}\n}"
    );
    assert_eq!(
        eval("[1, [], [2]] | tojson(indent=1)"),
        "[\n 1,\n [],\n [\n  2\n ]\n]"
    );
    assert_eq!(eval("[1, 2] | tojson(separators=(',', ':'))"), "[1,2]");
    assert_eq!(
        eval("{'b': 1, 'a': 2} | tojson(sort_keys=true)"),
        r#"{"a": 2, "b": 1}"#
    );
    assert_eq!(
        eval("'é😀' | tojson(ensure_ascii=true)"),
        r#""\u00e9\ud83d\ude00""#
    );
    assert_eq!(
        eval("[1e16, 0.0001, 0.00001, 1.5, 100.0, 1e22] | tojson"),
        "[1e+16, 0.0001, 1e-05, 1.5, 100.0, 1e+22]"
    );
}

#[test]
fn generation_blocks_are_written_and_not_marked() {
    let source = "a{%- generation -%} b {% endgeneration %}c";
    assert_eq!(render(source, &[]).unwrap(), "ab c");
}

#[test]
fn strftime_now_writes_dates_and_times() {
    let at = |format: &str, seconds| {
        let source = format!("{{{{ strftime_now('{format}') }}}}");
        let template = ChatTemplate::new(&source, Vec::new()).unwrap();
        template
            .with_clock(Clock::Fixed(seconds))
            .render(&[], GenerationPrompt::Omit)
    };
    // 2024-02-29 23:05:09 UTC, a Thursday.
    let leap = 1_709_247_909;
    assert_eq!(
        at("%Y-%m-%d %H:%M:%S %A", leap).unwrap(),
        "2024-02-29 23:05:09 Thursday"
    );
    assert_eq!(
        at("%d %b %Y, %I:%M %p, %-d %-m %j %e %y %B %%", leap).unwrap(),
        "29 Feb 2024, 11:05 PM, 29 2 060 29 24 February %"
    );
    assert_eq!(at("%F %T %a %j", 0).unwrap(), "1970-01-01 00:00:00 Thu 001");
    assert_eq!(at("%F %a %j", 1_735_603_200).unwrap(), "2024-12-31 Tue 366");
    assert_eq!(at("%F %j", 1_709_251_200).unwrap(), "2024-03-01 061");
    assert_eq!(at("%F %j", 951_782_400).unwrap(), "2000-02-29 060");
    assert_eq!(at("%F", -1).unwrap(), "1969-12-31");
    assert!(matches!(at("%Q", 0), Err(TemplateError::Failed(text)) if text.contains("%Q")));
    assert!(at("%", 0).is_err());
}
