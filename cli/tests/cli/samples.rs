//! `forerun generate` with samplers, samples, forms and log-probabilities.

use serde_json::Value;

use crate::{fixture, forerun, generate, ids, json, text};

fn outputs(args: &[&str]) -> Vec<Value> {
    let common = ["--output", "json", "--quiet", "-n", "12", "--ignore-eos"];
    let report = json(&generate(
        "tiny/llama",
        &[&common, args, &["the weather"]].concat(),
    ));
    let outputs = report["outputs"].as_array().expect("a list of outputs");
    outputs.clone()
}

#[test]
fn samples_are_those_of_seeds_in_a_row() {
    let three = outputs(&["-t", "1", "--seed", "5", "--samples", "3"]);
    assert_eq!(three.len(), 3);
    for (index, sample) in three.iter().enumerate() {
        let seed = (5 + index).to_string();
        let alone = outputs(&["-t", "1", "--seed", &seed]);
        assert_eq!(ids(&sample["token_ids"]), ids(&alone[0]["token_ids"]));
        assert_eq!(sample["index"], index);
    }
}

#[test]
fn several_texts_are_printed_under_headers() {
    let args = [
        "-n",
        "4",
        "-t",
        "1",
        "--seed",
        "5",
        "--samples",
        "2",
        "--quiet",
        "the",
    ];
    let shown = text(&generate("tiny/llama", &args).stdout);
    assert!(
        shown.starts_with("--- sample 0 (") && shown.contains("\n--- sample 1 ("),
        "{shown}"
    );
}

#[test]
fn one_token_kept_is_greedy_whatever_filter_keeps_it() {
    let greedy = outputs(&[]);
    for filter in [["--top-k", "1"], ["--top-p", "0.000001"], ["--min-p", "1"]] {
        let args = [&["-t", "1", "--seed", "3"], &filter[..]].concat();
        assert_eq!(
            outputs(&args)[0]["token_ids"],
            greedy[0]["token_ids"],
            "{filter:?}"
        );
    }
    let id = ids(&greedy[0]["token_ids"])[0];
    let banned = outputs(&["--logit-bias", &format!("{id}=-inf")]);
    assert!(!ids(&banned[0]["token_ids"]).contains(&id));
}

#[test]
fn beams_and_best_of_return_what_was_asked_for() {
    let beams = outputs(&["--beams", "3", "--samples", "2"]);
    assert_eq!(beams.len(), 2);
    let one_beam = outputs(&["--beams", "1"]);
    assert_eq!(one_beam[0]["token_ids"], outputs(&[])[0]["token_ids"]);
    let best = outputs(&["--best-of", "4", "-t", "1", "--seed", "8"]);
    let all = outputs(&["--samples", "4", "-t", "1", "--seed", "8"]);
    assert_eq!(best.len(), 1);
    assert!(
        all.iter()
            .any(|sample| sample["token_ids"] == best[0]["token_ids"])
    );
}

#[test]
fn log_probabilities_come_in_both_outputs() {
    let report = json(&generate(
        "tiny/llama",
        &[
            "--output",
            "json",
            "-n",
            "3",
            "--logprobs",
            "2",
            "--prompt-logprobs",
            "1",
            "the weather",
        ],
    ));
    let scores = report["outputs"][0]["logprobs"].as_array().unwrap();
    assert_eq!(
        scores.len(),
        report["outputs"][0]["token_ids"].as_array().unwrap().len()
    );
    let first = &scores[0];
    // Greedy: the chosen token is the likeliest.
    assert_eq!(first["rank"], 1);
    assert_eq!(first["logprob"], first["top"][0]["logprob"]);
    assert!(first["logprob"].as_f64().unwrap() <= 0.0);
    let prompt = report["prompt_logprobs"].as_array().unwrap();
    assert_eq!(prompt.len(), ids(&report["prompt_token_ids"]).len());
    assert!(prompt[0]["logprob"].is_null() && prompt[1]["logprob"].is_number());
    let shown = generate(
        "tiny/llama",
        &["-n", "3", "--logprobs", "2", "-q", "the weather"],
    );
    assert!(
        text(&shown.stdout).contains("likeliest"),
        "{}",
        text(&shown.stdout)
    );
}

#[test]
fn texts_fit_the_form_that_is_asked_for() {
    let shown = |args: &[&str]| {
        let output = generate("tiny/llama", &[&["-n", "60", "-q"], args, &["x"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim_end_matches('\n').to_owned()
    };
    let choice = shown(&["--choice", "yes", "--choice", "no"]);
    assert!(["yes", "no"].contains(&choice.as_str()), "{choice}");
    let digits = shown(&["--regex", "[0-9]{3}"]);
    assert!(
        digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit()),
        "{digits}"
    );
    let file = std::env::temp_dir().join(format!("forerun-schema-{}.json", std::process::id()));
    std::fs::write(&file, r#"{"type": "boolean"}"#).unwrap();
    let value = shown(&["--json-schema", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    assert!(
        matches!(serde_json::from_str(&value), Ok(Value::Bool(_))),
        "{value}"
    );
}

#[test]
fn flags_out_of_range_are_refused_by_name() {
    let model = fixture("tiny/llama");
    let model = model.to_str().unwrap();
    let cases: [(&[&str], &str); 6] = [
        (&["--top-p", "1.5"], "top_p"),
        (&["--logit-bias", "99999=1"], "logit_bias"),
        (&["--logit-bias", "1"], "ID=BIAS"),
        (&["--stop-token-id", "400"], "stop_token_ids"),
        (&["--regex", "(", "-t", "1"], "regex"),
        (&["--regex", "a", "--choice", "b"], "cannot be used with"),
    ];
    for (args, name) in cases {
        let common = ["generate", "--model", model, "--device", "cpu"];
        let output = forerun(&[&common, args, &["x"]].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(message.contains(name), "{args:?}: {message}");
    }
}

#[test]
fn verbose_says_how_memory_is_used() {
    let output = generate("tiny/gemma3", &["-v", "-n", "1", "x"]);
    let message = text(&output.stderr);
    assert!(message.contains("memory: KV group 0:"), "{message}");
}
