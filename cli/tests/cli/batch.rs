//! `forerun batch`: whole files, interrupted and resumed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{fixture, forerun, text};

/// A folder of this test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("forerun-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("temporary folders can be made");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.to_str().expect("the path is UTF-8").to_owned()
    }

    fn write(&self, name: &str, contents: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, contents).expect("temporary files can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn batch_args<'a>(model: &'a str, input: &'a str, output: &'a str) -> Vec<&'a str> {
    let flags = ["--model", model, "--device", "cpu", "--seed", "9"];
    [&["batch", input, "-o", output], &flags[..]].concat()
}

fn batch(input: &str, output: &str, args: &[&str]) -> Output {
    let model = fixture("tiny/llama");
    let model = model.to_str().expect("the path is UTF-8");
    forerun(&[&batch_args(model, input, output)[..], args].concat())
}

fn line(custom_id: &str, url: &str, body: &Value) -> String {
    let line = json!({"custom_id": custom_id, "method": "POST", "url": url, "body": body});
    format!("{line}\n")
}

fn completion(custom_id: &str, body: &Value) -> String {
    line(custom_id, "/v1/completions", body)
}

/// Results by `custom_id`, each of which comes once.
fn results(jsonl: &str) -> BTreeMap<String, Value> {
    let mut results = BTreeMap::new();
    for line in jsonl.lines() {
        let line: Value = serde_json::from_str(line).expect("each line is whole");
        let id = line["custom_id"].as_str().unwrap_or_default().to_owned();
        let before = results.insert(id.clone(), line);
        assert!(before.is_none(), "{id} is answered twice");
    }
    results
}

fn choices(results: &BTreeMap<String, Value>) -> BTreeMap<&str, &Value> {
    results
        .iter()
        .map(|(id, line)| (id.as_str(), &line["response"]["body"]["choices"]))
        .collect()
}

/// Lines of every kind.
fn mixed_lines() -> String {
    let prompt = "The keeper kept a careful log of the weather.";
    let mut bodies = vec![
        json!({"temperature": 0}),
        json!({"temperature": 0, "ignore_eos": true, "max_tokens": 40}),
        json!({"temperature": 0.9, "seed": 4}),
        json!({"temperature": 0.9, "top_k": 5, "top_p": 0.8, "min_p": 0.01}),
        json!({"typical_p": 0.7, "max_tokens": 9}),
        json!({"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2}),
        json!({"logit_bias": {"70": 5, "71": -100}}),
        json!({"n": 3, "seed": 1}),
        json!({"n": 2, "best_of": 4, "seed": 2}),
        json!({"use_beam_search": true, "n": 2, "beam_width": 3, "temperature": 0}),
        json!({"logprobs": 3, "temperature": 0}),
        json!({"logprobs": 2, "echo": true, "temperature": 0}),
        json!({"prompt_logprobs": 2}),
        json!({"stop": ["e", "a"], "ignore_eos": true}),
        json!({"min_tokens": 5, "max_tokens": 6}),
        json!({"guided_choice": ["yes", "no"], "max_tokens": 8}),
        json!({"guided_regex": "[a-c]{4}", "max_tokens": 16}),
        json!({"response_format": {"type": "json_object"}, "max_tokens": 12}),
        json!({"cache_salt": "somebody", "priority": 3}),
        json!({"max_completion_tokens": 3}),
    ];
    let mut lines = String::new();
    for (index, body) in bodies.iter_mut().enumerate() {
        body["prompt"] = json!(format!("{prompt} {}", "Again. ".repeat(index % 4)));
        lines += &completion(&format!("completion {index}"), body);
    }
    let messages = json!([{"role": "user", "content": "What is rain?"}]);
    for index in 0..4 {
        let body = json!({
            "messages": messages, "max_tokens": 8, "seed": index, "logprobs": true, "top_logprobs": index,
        });
        lines += &line(&format!("chat {index}"), "/v1/chat/completions", &body);
    }
    lines
}

#[test]
fn lines_of_every_kind_get_the_answers_that_each_gets_alone() {
    let folder = Folder::new("batch-mixed");
    let input = folder.write("in.jsonl", &mixed_lines());
    let output = folder.path("together.jsonl");
    let together = batch(&input, &output, &[]);
    assert_eq!(
        together.status.code(),
        Some(0),
        "{}",
        text(&together.stderr)
    );
    let alone_output = folder.path("alone.jsonl");
    let args = [
        "--max-num-seqs",
        "4",
        "--max-num-batched-tokens",
        "16",
        "--no-prefix-cache",
    ];
    let alone = batch(&input, &alone_output, &args);
    assert_eq!(alone.status.code(), Some(0), "{}", text(&alone.stderr));
    let together = results(&std::fs::read_to_string(&output).unwrap());
    let alone = results(&std::fs::read_to_string(&alone_output).unwrap());
    assert_eq!(together.len(), 24);
    let (together_choices, alone_choices) = (choices(&together), choices(&alone));
    for (id, choices) in &together_choices {
        assert_eq!(choices, &alone_choices[id], "{id}");
    }
    let text_of = |id: &str| together_choices[id][0]["text"].as_str().unwrap().to_owned();
    assert!(["yes", "no"].contains(&text_of("completion 15").as_str()));
    let fits = |text: &str| text.len() == 4 && text.bytes().all(|b| (b'a'..=b'c').contains(&b));
    assert!(
        fits(&text_of("completion 16")),
        "{}",
        text_of("completion 16")
    );
    assert_eq!(
        together_choices["completion 7"].as_array().unwrap().len(),
        3
    );
    assert_eq!(
        together_choices["completion 9"].as_array().unwrap().len(),
        2
    );
    let usage = &together["completion 14"]["response"]["body"]["usage"];
    assert!(usage["completion_tokens"].as_u64().unwrap() >= 5);
}

#[test]
fn a_batch_that_is_killed_and_run_again_answers_every_line_once() {
    const NUM_LINES: usize = 200;
    let folder = Folder::new("batch-killed");
    let lines: String = (0..NUM_LINES)
        .map(|index| {
            let body = json!({
                "prompt": format!("Line {index} of the log:"),
                "max_tokens": 4 + index % 29,
                "ignore_eos": true,
            });
            completion(&index.to_string(), &body)
        })
        .collect();
    let input = folder.write("in.jsonl", &lines);
    let whole_output = folder.path("whole.jsonl");
    assert_eq!(
        batch(&input, &whole_output, &["--quiet"]).status.code(),
        Some(0)
    );
    let whole = results(&std::fs::read_to_string(&whole_output).unwrap());

    let output = folder.path("killed.jsonl");
    let model = fixture("tiny/llama");
    let mut child = Command::new(env!("CARGO_BIN_EXE_forerun"))
        .args(batch_args(model.to_str().unwrap(), &input, &output))
        .args(["--quiet", "--max-num-seqs", "4"])
        .spawn()
        .unwrap();
    let num_lines = || std::fs::read_to_string(&output).map_or(0, |text| text.lines().count());
    let started = Instant::now();
    while num_lines() < 20 && started.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let num_before = num_lines();
    assert!(
        (20..NUM_LINES).contains(&num_before),
        "{num_before} lines when it was killed"
    );

    let resumed = batch(&input, &output, &[]);
    let message = text(&resumed.stderr);
    assert_eq!(resumed.status.code(), Some(0), "{message}");
    assert!(message.contains("are answered already"), "{message}");
    let resumed = results(&std::fs::read_to_string(&output).unwrap());
    assert_eq!(resumed.len(), NUM_LINES);
    assert_eq!(choices(&resumed), choices(&whole));

    let again = batch(&input, &output, &[]);
    assert!(text(&again.stderr).contains("0 lines answered, 0 errors, 200 answered before"));
}

#[test]
fn the_exit_status_tells_what_came_of_it() {
    let folder = Folder::new("batch-status");
    let good = completion("good", &json!({"prompt": "x", "max_tokens": 2}));
    let input = folder.write("good.jsonl", &good);
    let output = folder.path("out.jsonl");
    assert_eq!(batch(&input, &output, &["-q"]).status.code(), Some(0));
    let bad = completion("bad", &json!({"prompt": "x", "temperature": -1}));
    let both = folder.write("both.jsonl", &[good, bad].concat());
    assert_eq!(batch(&both, &output, &["-q"]).status.code(), Some(2));
    let lines = results(&std::fs::read_to_string(&output).unwrap());
    assert_eq!(lines["good"]["response"]["status_code"], 200);
    let error = &lines["bad"]["response"]["body"]["error"];
    assert_eq!(
        (&error["param"], &error["type"]),
        (&json!("temperature"), &json!("invalid_request_error"))
    );
    // What is in the output counts, whoever wrote it.
    assert_eq!(batch(&both, &output, &["-q"]).status.code(), Some(2));
    assert_eq!(batch("no/such/file", &output, &[]).status.code(), Some(1));
    assert_eq!(forerun(&["batch", &input]).status.code(), Some(1));
    let same = batch(&input, &input, &[]);
    assert_eq!(same.status.code(), Some(1));
    assert!(text(&same.stderr).contains("is the input too"));
    let foreign = folder.write("foreign.jsonl", "{\"a\": 1}\n");
    let refused = batch(&input, &foreign, &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--overwrite"));
    assert_eq!(
        batch(&input, &foreign, &["-q", "--overwrite"])
            .status
            .code(),
        Some(0)
    );
}

#[test]
fn standard_input_and_output_work_too_and_statistics_go_elsewhere() {
    let folder = Folder::new("batch-pipe");
    let stats = folder.path("stats.json");
    let model = fixture("tiny/llama");
    let mut child = Command::new(env!("CARGO_BIN_EXE_forerun"))
        .args(batch_args(model.to_str().unwrap(), "-", "-"))
        .args(["--quiet", "--stats", &stats])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for id in ["a", "b"] {
        let body = json!({"prompt": "the weather", "max_tokens": 3, "bset_of": 1});
        stdin.write_all(completion(id, &body).as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(results(&text(&output.stdout)).len(), 2);
    let stats: Value = serde_json::from_str(&std::fs::read_to_string(&stats).unwrap()).unwrap();
    assert_eq!(stats["requests"]["num_requests"], 2);
}

#[test]
fn unknown_keys_are_warned_of_once() {
    let folder = Folder::new("batch-keys");
    let body = json!({"prompt": "x", "max_tokens": 1, "bset_of": 1});
    let lines = [completion("a", &body), completion("b", &body)].concat();
    let input = folder.write("in.jsonl", &lines);
    let output = batch(&input, &folder.path("out.jsonl"), &[]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(message.matches("bset_of").count(), 1, "{message}");
}

#[test]
fn prompts_at_the_limits_of_the_model_are_answered_or_refused_by_one_rule() {
    let folder = Folder::new("batch-limits");
    let of_tokens =
        |count: usize| json!({"prompt": vec![40; count], "max_tokens": 9, "ignore_eos": true});
    let lines = [
        // The model takes 256 tokens: a prompt of one less gives one token.
        completion("255", &of_tokens(255)),
        completion("256", &of_tokens(256)),
        completion("257", &of_tokens(257)),
        // Its tokenizer adds BOS to a text and nothing to ids.
        completion("no text", &json!({"prompt": "", "max_tokens": 2})),
        completion("no ids", &json!({"prompt": [], "max_tokens": 2})),
        completion("normal", &of_tokens(5)),
    ];
    let input = folder.write("in.jsonl", &lines.concat());
    for chunk in ["16", "512"] {
        let output = folder.path(&format!("{chunk}.jsonl"));
        let args = [
            "-q",
            "--max-num-batched-tokens",
            chunk,
            "--max-num-seqs",
            "4",
        ];
        assert_eq!(batch(&input, &output, &args).status.code(), Some(2));
        let results = results(&std::fs::read_to_string(&output).unwrap());
        let longest = &results["255"]["response"]["body"];
        assert_eq!(longest["usage"]["completion_tokens"], 1);
        assert_eq!(longest["choices"][0]["finish_reason"], "length");
        for id in ["256", "257", "no ids"] {
            let response = &results[id]["response"];
            assert_eq!(response["status_code"], 400);
            assert_eq!(response["body"]["error"]["param"], "prompt");
        }
        for (id, count) in [("no text", 1), ("normal", 5)] {
            assert_eq!(
                results[id]["response"]["body"]["usage"]["prompt_tokens"],
                count
            );
        }
    }
}
