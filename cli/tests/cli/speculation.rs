//! `forerun generate` and `forerun batch` with drafts.

use std::fs;

use serde_json::Value;

use crate::{fixture, forerun, generate, ids, json, text};

const PROMPT: &str = "one two three one two three one two";

fn report(args: &[&str]) -> Value {
    answer(&[&["-n", "40", "--ignore-eos"], args].concat())
}

fn answer(args: &[&str]) -> Value {
    let common = ["--output", "json", "--quiet"];
    json(&generate(
        "tiny/llama",
        &[&common, args, &[PROMPT]].concat(),
    ))
}

#[test]
fn every_method_gives_the_same_text_and_says_what_it_did() {
    let forms: [&[&str]; 3] = [
        &[],
        &["-t", "0.8", "--seed", "7", "--top-p", "0.9"],
        &["-t", "0.8", "--seed", "7", "--frequency-penalty", "0.5"],
    ];
    for form in forms {
        let with = |method: &str| {
            let drafts = ["--spec-method", method, "--spec-tokens", "4"];
            report(&[form, &drafts].concat())
        };
        let plain = with("none");
        assert_eq!(plain["speculation"]["method"], "none");
        assert_eq!(plain["speculation"]["drafts"], 0);
        for method in ["ngram", "suffix", "layer-skip", "auto"] {
            let drafted = with(method);
            let token_ids = |report: &Value| ids(&report["outputs"][0]["token_ids"]);
            assert_eq!(token_ids(&drafted), token_ids(&plain), "{method}, {form:?}");
            let spec = &drafted["speculation"];
            let number = |key: &str| spec[key].as_f64().expect("a number");
            assert!(number("accepted_tokens") <= number("draft_tokens"));
            assert!(number("mean_emitted_per_step") >= 1.0, "{spec}");
            if method == "layer-skip" {
                assert!(number("drafts") > 0.0 && number("draft_ms") > 0.0, "{spec}");
            }
        }
    }
}

#[test]
fn a_draft_model_of_the_same_tokenizer_drafts_and_another_is_refused() {
    let same = fixture("tiny_gguf/llama-q8_0.gguf");
    let same = same.to_str().expect("UTF-8");
    let plain = report(&["--spec-method", "none"]);
    let drafted = report(&["--spec-model", same, "--spec-tokens", "3"]);
    let token_ids = |report: &Value| ids(&report["outputs"][0]["token_ids"]);
    assert_eq!(token_ids(&drafted), token_ids(&plain));
    let methods = drafted["speculation"].to_string();
    assert!(methods.contains("draft-model"), "{methods}");
    let other = fixture("tiny/gemma3");
    let other = other.to_str().expect("UTF-8");
    let refused = generate("tiny/llama", &["--spec-model", other, PROMPT]);
    assert!(!refused.status.success());
    let message = text(&refused.stderr);
    assert!(message.contains("same tokenizer"), "{message}");
}

#[test]
fn a_json_schema_is_kept_with_drafts_and_tokens_are_the_same() {
    let folder = std::env::temp_dir().join(format!("forerun-spec-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the test");
    let schema = folder.join("schema.json");
    let text = r#"{"type": "object", "properties": {"name": {"enum": ["north", "south"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["name", "count"],
        "additionalProperties": false}"#;
    fs::write(&schema, text).expect("the schema can be written");
    let schema = schema.to_str().expect("UTF-8");
    for sampling in [["-t", "0"], ["-t", "0.8"]] {
        let with = |method: &str| {
            let form = [
                "-n",
                "200",
                "--json-schema",
                schema,
                "--seed",
                "3",
                "--spec-method",
                method,
            ];
            answer(&[&sampling[..], &form].concat())
        };
        let plain = with("none");
        let answer = plain["outputs"][0]["text"].as_str().expect("a text");
        let parsed: Value = serde_json::from_str(answer).expect("the schema was kept");
        assert!(parsed["count"].is_number(), "{parsed}");
        for method in ["auto", "ngram", "suffix"] {
            let drafted = with(method);
            assert_eq!(
                drafted["outputs"], plain["outputs"],
                "{method}, {sampling:?}"
            );
        }
    }
}

#[test]
fn shown_drafts_leave_the_text_readable_without_their_marks() {
    let args = [
        "-n",
        "30",
        "--ignore-eos",
        "--quiet",
        "--spec-method",
        "layer-skip",
    ];
    let shown = [&args[..], &["--spec-tokens", "3", "--show-drafts", PROMPT]].concat();
    let shown = text(&generate("tiny/llama", &shown).stdout);
    assert!(shown.contains("[*") || shown.contains("[+"), "{shown}");
}

#[test]
fn lines_of_a_batch_choose_for_themselves() {
    let folder = std::env::temp_dir().join(format!("forerun-batch-spec-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the test");
    let (input, output) = (folder.join("in.jsonl"), folder.join("out.jsonl"));
    let line = |id: &str, spec: &str| {
        format!(
            "{{\"custom_id\": \"{id}\", \"url\": \"/v1/completions\", \"body\": {{\"prompt\": \"{PROMPT}\", \
             \"max_tokens\": 24, \"ignore_eos\": true, \"temperature\": 0{spec}}}}}\n"
        )
    };
    let lines = [
        line("default", ""),
        line("off", ", \"speculation\": {\"enabled\": false}"),
        line(
            "ngram",
            ", \"speculation\": {\"method\": \"ngram\", \"num_tokens\": 3, \"task\": \"code\"}",
        ),
        line("wrong", ", \"speculation\": {\"drafter\": \"ngram\"}"),
    ];
    fs::write(&input, lines.concat()).expect("the input can be written");
    let model = fixture("tiny/llama");
    let paths = [&input, &output, &model].map(|path| path.to_str().expect("UTF-8").to_owned());
    let args = [
        "batch",
        &paths[0],
        "-o",
        &paths[1],
        "--model",
        &paths[2],
        "--device",
        "cpu",
        "--quiet",
        "--overwrite",
    ];
    forerun(&args);
    let written = fs::read_to_string(&output).expect("there is an output");
    let answer = |id: &str| -> Value {
        let lines = written
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let mut found = lines.filter(|line| line["custom_id"] == id);
        found.next().expect("every line is answered")
    };
    let body = |id: &str| answer(id)["response"]["body"].clone();
    let text_of = |id: &str| body(id)["choices"][0]["text"].clone();
    assert_eq!(text_of("off"), text_of("ngram"));
    assert_eq!(text_of("off"), text_of("default"));
    assert_eq!(body("off")["speculation"]["method"], "none");
    let error = answer("wrong").to_string();
    assert!(
        error.contains("speculation.drafter") && error.contains("valid keys"),
        "{error}"
    );
}
