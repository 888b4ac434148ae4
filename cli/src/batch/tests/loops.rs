//! The loop: order, room, failures.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

use serde_json::{Value, json};

use super::super::lines::{Line, Lines, NextLine};
use super::super::resume::Answered;
use super::super::run_loop::Batch;
use super::{completion, line, parts, result, run, run_over};
use crate::fakes::{self, FakeExecutor};

#[test]
fn answers_come_as_they_finish_and_are_those_of_each_line_alone() {
    let lens = [30, 2, 9, 1, 17, 4, 5, 1, 1, 12];
    let input: Vec<String> = lens
        .iter()
        .enumerate()
        .map(|(index, &len)| completion(&format!("line {index}"), len))
        .collect();
    let (summary, out) = run(&input.concat());
    assert_eq!((summary.num_ok, summary.exit_code()), (10, 0));
    let order: Vec<&str> = out
        .iter()
        .map(|line| line["custom_id"].as_str().unwrap())
        .collect();
    assert_eq!(order[9], "line 0", "the longest comes last: {order:?}");
    for (index, line) in input.iter().enumerate() {
        let alone = run(line).1;
        let body = |line: &Value| line["response"]["body"]["choices"].clone();
        let together = result(&out, &format!("line {index}"));
        assert_eq!(body(together), body(&alone[0]));
        let usage = &together["response"]["body"]["usage"];
        assert_eq!(usage["completion_tokens"], lens[index]);
    }
}

#[test]
fn samples_come_by_index_with_all_of_them_counted() {
    let body = json!({"prompt": "abc", "n": 3, "max_tokens": 6, "seed": 5, "temperature": 0.9});
    let (_, out) = run(&line("three", &body));
    let body = &out[0]["response"]["body"];
    let choices = body["choices"].as_array().unwrap();
    let indices: Vec<u64> = choices
        .iter()
        .map(|c| c["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, [0, 1, 2]);
    assert_ne!(choices[0]["text"], choices[1]["text"]);
    assert_eq!(body["usage"]["completion_tokens"], 18);
    assert_eq!(body["usage"]["prompt_tokens"], 3);
    // Sample 1 of a seed is the only sample of the next seed.
    let body = json!({"prompt": "abc", "max_tokens": 6, "seed": 6, "temperature": 0.9});
    let (_, next) = run(&line("one", &body));
    assert_eq!(
        next[0]["response"]["body"]["choices"][0]["text"],
        choices[1]["text"]
    );
}

/// Lines without end, which counts those taken.
struct CountedLines {
    num_lines: u64,
    num_taken: Rc<Cell<u64>>,
}

impl Lines for CountedLines {
    fn next_line(&mut self, _may_wait: bool) -> io::Result<NextLine> {
        let number = self.num_taken.get() + 1;
        if number > self.num_lines {
            return Ok(NextLine::End);
        }
        self.num_taken.set(number);
        let bytes = completion(&format!("{number}"), 3 + number as u32 % 5).into_bytes();
        Ok(NextLine::Line(Line {
            number,
            bytes: Some(bytes),
            end: number,
        }))
    }
}

/// An output that sees how far ahead of it the input is.
#[expect(
    clippy::struct_field_names,
    reason = "num_ is how counts are named everywhere"
)]
struct Watcher {
    num_taken: Rc<Cell<u64>>,
    num_written: u64,
    num_ahead_max: Rc<Cell<u64>>,
}

impl Write for Watcher {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let newline = line.iter().position(|&byte| byte == b'\n');
        assert_eq!(newline, Some(line.len() - 1), "each write is a whole line");
        let num_ahead = self.num_taken.get() - self.num_written;
        self.num_ahead_max
            .set(self.num_ahead_max.get().max(num_ahead));
        self.num_written += 1;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn lines_are_read_only_as_the_engine_takes_them() {
    let (num_taken, num_ahead_max) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let lines = CountedLines {
        num_lines: 300,
        num_taken: Rc::clone(&num_taken),
    };
    let out = Watcher {
        num_taken,
        num_written: 0,
        num_ahead_max: Rc::clone(&num_ahead_max),
    };
    let summary = Batch::new(parts(lines, out, Answered::default()), fakes::driver()).run();
    assert_eq!(summary.unwrap().num_ok, 300);
    // Four run and two wait.
    assert_eq!(num_ahead_max.get(), 6);
}

#[test]
fn the_engine_is_kept_full() {
    let input: String = (0..20).map(|i| completion(&i.to_string(), 8)).collect();
    let mut out = Vec::new();
    let lines = super::LineReader::new(std::io::Cursor::new(input));
    let mut batch = Batch::new(parts(lines, &mut out, Answered::default()), fakes::driver());
    batch.run().unwrap();
    let executor = batch.driver().engine().executor();
    assert_eq!(executor.num_seqs_max, 4);
    // 20 lines of 8 steps, four at a time.
    assert!(executor.num_steps <= 44, "{} steps", executor.num_steps);
}

#[test]
fn requests_with_grammars_wait_for_them_and_wrong_ones_fail_alone() {
    let grammar = |id: &str, key: &str, value: Value| {
        line(id, &json!({"prompt": "abc", "max_tokens": 9, key: value}))
    };
    let input = [
        grammar("schema", "guided_json", json!({"type": "object"})),
        grammar("wrong", "guided_regex", json!("(")),
        grammar(
            "choice",
            "structured_outputs",
            json!({"choice": ["ff", "g"]}),
        ),
    ]
    .concat();
    let (summary, out) = run(&input);
    assert_eq!((summary.num_ok, summary.num_errors), (2, 1));
    for id in ["schema", "choice"] {
        let choice = &result(&out, id)["response"]["body"]["choices"][0];
        assert_eq!(
            (&choice["text"], &choice["finish_reason"]),
            (&json!("ff"), &json!("stop"))
        );
    }
    let wrong = &result(&out, "wrong")["response"];
    let message = wrong["body"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("the regex is wrong"), "{message}");
    assert_eq!(
        wrong["status_code"], 400,
        "the request is wrong, not the server"
    );
}

#[test]
fn a_device_that_keeps_failing_ends_the_batch_instead_of_failing_every_line() {
    let input: String = (0..100).map(|i| completion(&i.to_string(), 8)).collect();
    let executor = FakeExecutor {
        fails_from: Some(20),
        ..FakeExecutor::default()
    };
    let (summary, out) = run_over(executor, &input);
    let message = summary.unwrap_err().to_string();
    assert!(
        message.contains("3 steps failed") && message.contains("the device is gone"),
        "{message}"
    );
    assert!(out.len() < 40, "{} lines were written", out.len());
    let is_server_error = |line: &&Value| line["response"]["status_code"] == 500;
    assert!(out.iter().filter(is_server_error).count() > 0);
}

#[test]
fn steps_that_fail_now_and_then_cost_their_requests_and_nothing_else() {
    let input: String = (0..60).map(|i| completion(&i.to_string(), 3)).collect();
    let executor = FakeExecutor {
        fails_every: Some(9),
        ..FakeExecutor::default()
    };
    let (summary, out) = run_over(executor, &input);
    let summary = summary.unwrap();
    assert_eq!((summary.num_ok + summary.num_errors, out.len()), (60, 60));
    assert!(summary.num_ok > 30, "{summary:?}");
    assert!(summary.num_errors > 8, "{summary:?}");
}
