//! `forerun generate`, and what every command refuses.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{fixture, forerun, generate, ids, json, text};

#[test]
fn prompts_continue_as_the_reference_continues_them() {
    for model in ["tiny/llama", "tiny/gemma3"] {
        let goldens = std::fs::read(fixture(model).join("tokenizer_goldens.json")).unwrap();
        let goldens: Value = serde_json::from_slice(&goldens).unwrap();
        for golden in goldens["text_generation"].as_array().unwrap() {
            let prompt = golden["text"].as_str().unwrap();
            let report = json(&generate(
                model,
                &[
                    "--output",
                    "json",
                    "--quiet",
                    "--ignore-eos",
                    "-n",
                    "16",
                    "--",
                    prompt,
                ],
            ));
            assert_eq!(
                ids(&report["prompt_token_ids"]),
                ids(&golden["ids"]),
                "{prompt}"
            );
            let output = &report["outputs"][0];
            assert_eq!(
                ids(&output["token_ids"]),
                ids(&golden["greedy_ids"]),
                "{prompt}"
            );
            assert_eq!(output["finish_reason"], "length");
            let expected = golden["greedy_text_skip_special"].as_str().unwrap();
            // Runs of byte tokens that are not UTF-8 differ on purpose: see `detokenizer.rs`.
            if model == "tiny/llama" || !expected.contains(char::REPLACEMENT_CHARACTER) {
                assert_eq!(output["text"].as_str().unwrap(), expected, "{prompt}");
            }
        }
    }
}

#[test]
fn the_json_object_has_the_documented_fields() {
    let output = generate(
        "tiny_gguf/llama-q8_0.gguf",
        &["--output", "json", "--ignore-eos", "-n", "7", "The keeper"],
    );
    let report = json(&output);
    let mut keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "device",
            "model",
            "outputs",
            "prompt_token_ids",
            "speculation",
            "timing",
            "usage"
        ]
    );
    assert_eq!(report["model"], "llama-q8_0");
    assert_eq!(report["device"], "cpu");
    assert_eq!(report["usage"]["completion_tokens"], 7);
    assert_eq!(report["usage"]["cached_tokens"], 0);
    let num_prompt = ids(&report["prompt_token_ids"]).len() as u64;
    assert_eq!(report["usage"]["prompt_tokens"], num_prompt);
    for field in [
        "load_s",
        "ttft_ms",
        "decode_tokens_per_s",
        "prefill_tokens_per_s",
    ] {
        assert!(report["timing"][field].as_f64().unwrap() > 0.0, "{field}");
    }
    let closing = text(&output.stderr);
    assert!(closing.contains("7 generated tokens on cpu"), "{closing}");
}

#[test]
fn quiet_text_is_the_text_and_nothing_else() {
    let args = ["--ignore-eos", "-n", "12", "--quiet", "def add"];
    let shown = generate("tiny_gguf/llama-f16.gguf", &args);
    assert_eq!(text(&shown.stderr), "");
    let report = json(&generate(
        "tiny_gguf/llama-f16.gguf",
        &[&args[..], &["--output", "json"]].concat(),
    ));
    let expected = format!("{}\n", report["outputs"][0]["text"].as_str().unwrap());
    assert_eq!(text(&shown.stdout), expected);
}

#[test]
fn a_seed_decides_sampled_text() {
    let sampled = |seed: &str| {
        let args = [
            "-n",
            "24",
            "-t",
            "1",
            "--ignore-eos",
            "--output",
            "json",
            "--seed",
            seed,
            "a",
        ];
        ids(&json(&generate("tiny/llama", &args))["outputs"][0]["token_ids"])
    };
    assert_eq!(sampled("7"), sampled("7"));
    assert_ne!(sampled("7"), sampled("8"));
}

#[test]
fn a_stop_text_ends_the_answer_before_it() {
    let args = ["-n", "16", "--ignore-eos", "--output", "json"];
    let prompt = "The keeper kept a careful log of the weather.";
    let whole = json(&generate("tiny/llama", &[&args[..], &[prompt]].concat()));
    let whole = whole["outputs"][0]["text"].as_str().unwrap();
    let stop = whole.chars().skip(3).take(2).collect::<String>();
    let cut = json(&generate(
        "tiny/llama",
        &[&args[..], &["--stop", &stop, prompt]].concat(),
    ));
    let output = &cut["outputs"][0];
    assert_eq!(output["finish_reason"], "stop");
    assert_eq!(
        output["text"].as_str().unwrap(),
        whole.split(&stop).next().unwrap()
    );
}

#[test]
fn control_tokens_count_in_raw_prompts_but_never_in_chats() {
    let prompt = "<|start_header_id|>";
    let num_prompt = |args: &[&str]| {
        let common = ["-n", "1", "--output", "json"];
        let report = json(&generate(
            "tiny/llama",
            &[&common, args, &[prompt]].concat(),
        ));
        ids(&report["prompt_token_ids"])
    };
    let raw = num_prompt(&[]);
    let literal = num_prompt(&["--no-special"]);
    assert!(raw.len() < literal.len(), "{raw:?} {literal:?}");
    let control = *raw.last().unwrap();
    assert!(!literal.contains(&control));
    let turns = num_prompt(&["--chat"])
        .iter()
        .filter(|&&id| id == control)
        .count();
    let empty = json(&generate(
        "tiny/llama",
        &["-n", "1", "--output", "json", "--chat", "x"],
    ));
    let expected = ids(&empty["prompt_token_ids"])
        .iter()
        .filter(|&&id| id == control)
        .count();
    assert_eq!(turns, expected, "user text became a control token");
}

#[test]
fn a_prompt_comes_from_standard_input_or_a_file_too() {
    let model = fixture("tiny/llama");
    let args = [
        "-n", "4", "--output", "json", "--device", "cpu", "--quiet", "--model",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_forerun"))
        .arg("generate")
        .args(args)
        .arg(&model)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all("the weather".as_bytes())
        .unwrap();
    let piped = json(&child.wait_with_output().unwrap());
    let typed = json(&generate(
        "tiny/llama",
        &["-n", "4", "--output", "json", "the weather"],
    ));
    assert_eq!(piped["outputs"], typed["outputs"]);
    let file = std::env::temp_dir().join(format!("forerun-prompt-{}", std::process::id()));
    std::fs::write(&file, "the weather").unwrap();
    let path = file.to_str().unwrap();
    let read = json(&generate(
        "tiny/llama",
        &["-n", "4", "--output", "json", "--prompt-file", path],
    ));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(read["outputs"], typed["outputs"]);
}

#[test]
fn what_cannot_work_is_said_with_what_to_do() {
    let model = fixture("tiny/llama");
    let model = model.to_str().unwrap();
    let cases: [(&[&str], &str); 6] = [
        (
            &["generate", "--model", model, "--device", "cuda:77", "x"],
            "forerun devices",
        ),
        (
            &["generate", "--model", model, "--device", "gpu", "x"],
            "use auto, cpu, wgpu",
        ),
        (
            &[
                "generate",
                "--model",
                model,
                "--device",
                "cpu",
                "--block-size",
                "3",
                "x",
            ],
            "power of two",
        ),
        (
            &[
                "generate",
                "--model",
                model,
                "--device",
                "cpu",
                "--kv-memory",
                "10",
                "x",
            ],
            "--kv-memory",
        ),
        (
            &[
                "generate",
                "--model",
                "no/such/model/here",
                "--device",
                "cpu",
                "x",
            ],
            "neither a file",
        ),
        (&["generate", "--model", model], "<PROMPT>"),
    ];
    for (args, advice) in cases {
        let output = forerun(args);
        let message = text(&output.stderr);
        assert!(!output.status.success(), "{args:?} succeeded");
        assert!(
            message.contains(advice),
            "{args:?} should say {advice:?}: {message}"
        );
        assert!(!message.contains("panicked"), "{message}");
    }
}

#[test]
fn a_truncated_file_is_refused_by_name() {
    let whole = std::fs::read(fixture("tiny_gguf/llama-f16.gguf")).unwrap();
    let file = std::env::temp_dir().join(format!("forerun-cut-{}.gguf", std::process::id()));
    std::fs::write(&file, &whole[..whole.len() - 64]).unwrap();
    let path = file.to_str().unwrap();
    let output = forerun(&["generate", "--model", path, "--device", "cpu", "x"]);
    std::fs::remove_file(&file).unwrap();
    let message = text(&output.stderr);
    assert!(!output.status.success());
    assert!(
        message.contains(path) && message.contains("cut short"),
        "{message}"
    );
}

#[test]
fn devices_lists_the_processor_and_marks_a_choice() {
    let output = forerun(&["devices"]);
    let listing = text(&output.stdout);
    assert!(
        listing.lines().any(|line| line[2..].starts_with("cpu ")),
        "{listing}"
    );
    let marked = listing
        .lines()
        .filter(|line| line.starts_with("* "))
        .count();
    assert_eq!(marked, 2, "one device and the legend: {listing}");
}
