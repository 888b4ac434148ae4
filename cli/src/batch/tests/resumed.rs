//! Batches that go on where another ended.

use std::io::Cursor;

use serde_json::{Value, json};

use super::super::lines::LineReader;
use super::super::resume;
use super::super::run_loop::{Batch, Summary};
use super::{TestFile, completion, line, parse, parts, run};
use crate::fakes;

fn resume_file(file: &TestFile, input: &str) -> Result<Summary, resume::ResumeError> {
    let mut out = file.open()?;
    let answered = resume::read(&mut out)?;
    let lines = LineReader::new(Cursor::new(input.as_bytes()));
    let mut batch = Batch::new(parts(lines, out, answered), fakes::driver());
    Ok(batch.run().unwrap())
}

fn without_time(mut lines: Vec<Value>) -> Vec<Value> {
    for line in &mut lines {
        if let Some(created) = line["response"]["body"].get_mut("created") {
            *created = json!(0);
        }
        // What the prefix cache had depends on what ran before.
        line["response"]["body"]["usage"] = json!(null);
    }
    lines.sort_by_key(|line| line["id"].as_str().unwrap().to_owned());
    lines
}

fn mixed_input() -> String {
    [
        completion("first", 3),
        line(
            "ünïcode",
            &json!({"prompt": "abc", "max_tokens": 2, "seed": 3}),
        ),
        "broken\n".to_owned(),
        line("wrong", &json!({"prompt": 5})),
        completion("first", 1),
        completion("long", 20),
        completion("last", 1),
    ]
    .concat()
}

#[test]
fn a_batch_cut_at_any_byte_of_its_output_is_completed_with_every_line_answered_once() {
    let input = mixed_input();
    let (whole_summary, whole) = run(&input);
    let file = TestFile::new("resume", b"");
    resume_file(&file, &input).unwrap();
    let bytes = std::fs::read(&file.0).unwrap();
    assert_eq!(without_time(parse(&bytes)), without_time(whole.clone()));
    for len in 0..=bytes.len() {
        std::fs::write(&file.0, &bytes[..len]).unwrap();
        let summary = resume_file(&file, &input).unwrap();
        let out = parse(&std::fs::read(&file.0).unwrap());
        assert_eq!(
            without_time(out),
            without_time(whole.clone()),
            "cut at {len}"
        );
        let num_whole_lines = bytes[..len]
            .split_inclusive(|&byte| byte == b'\n')
            .filter(|line| line.ends_with(b"\n"))
            .count() as u64;
        assert_eq!(summary.num_skipped, num_whole_lines, "cut at {len}");
        assert_eq!(
            summary.exit_code(),
            whole_summary.exit_code(),
            "cut at {len}"
        );
    }
}

#[test]
fn a_file_of_something_else_is_left_as_it_is() {
    let text = b"{\"custom_id\": \"a\", \"method\": \"POST\"}\n";
    let file = TestFile::new("foreign", text);
    let error = resume_file(&file, &mixed_input()).unwrap_err().to_string();
    assert!(
        error.contains("line 1") && error.contains("--overwrite"),
        "{error}"
    );
    assert_eq!(std::fs::read(&file.0).unwrap(), text);
}

#[test]
fn a_torn_last_line_is_cut_off_before_anything_is_written() {
    let input = mixed_input();
    let file = TestFile::new("torn", b"");
    resume_file(&file, &input).unwrap();
    let bytes = std::fs::read(&file.0).unwrap();
    let first_line_len = 1 + bytes.iter().position(|&byte| byte == b'\n').unwrap();
    std::fs::write(&file.0, &bytes[..first_line_len + 40]).unwrap();
    let answered = resume::read(&mut file.open().unwrap()).unwrap();
    assert_eq!(answered.len(), 1);
    assert_eq!(std::fs::read(&file.0).unwrap(), &bytes[..first_line_len]);
}
