//! Batches over a fake model.

mod input;
mod loops;
mod resumed;

use std::io::{self, Cursor, Seek, SeekFrom, Write};

use anyhow::Result;
use serde_json::{Value, json};

use super::lines::{LineReader, Lines};
use super::progress::Progress;
use super::resume::Answered;
use super::run_loop::{Batch, BatchParts, Summary};
use crate::fakes::{self, FakeCodec, FakeExecutor};
use crate::openai::Defaults;

fn parts<L: Lines, W: Write>(
    lines: L,
    out: W,
    answered: Answered,
) -> BatchParts<'static, L, W, FakeCodec> {
    BatchParts {
        lines,
        out,
        codec: &FakeCodec,
        model: "fake",
        defaults: Defaults::default(),
        seed: 11,
        speculation: crate::speculation::Settings::default(),
        answered,
        progress: Progress::quiet(),
    }
}

/// Answers `input` and returns the lines of the output.
fn run(input: &str) -> (Summary, Vec<Value>) {
    let (summary, out) = run_over(FakeExecutor::default(), input);
    (summary.unwrap(), out)
}

fn run_over(executor: FakeExecutor, input: &str) -> (Result<Summary>, Vec<Value>) {
    let mut out = Vec::new();
    let lines = LineReader::new(Cursor::new(input.as_bytes()));
    let parts = parts(lines, &mut out, Answered::default());
    let summary = Batch::new(parts, fakes::driver_over(executor)).run();
    (summary, parse(&out))
}

fn parse(out: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(out).unwrap();
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "a torn line: {text}"
    );
    let parsed = text.lines().map(|line| serde_json::from_str(line).unwrap());
    parsed.collect()
}

/// A line for a completion with this body.
fn line(custom_id: &str, body: &Value) -> String {
    let line = json!({
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/completions",
        "body": body,
    });
    format!("{line}\n")
}

fn completion(custom_id: &str, max_tokens: u32) -> String {
    line(
        custom_id,
        &json!({"prompt": format!("prompt of {custom_id}"), "max_tokens": max_tokens}),
    )
}

/// The result of the line with this id, of which there is one.
fn result<'a>(out: &'a [Value], custom_id: &str) -> &'a Value {
    let mut of_it = out.iter().filter(|line| line["custom_id"] == custom_id);
    let first = of_it
        .next()
        .unwrap_or_else(|| panic!("{custom_id} has no answer: {out:?}"));
    assert!(of_it.next().is_none(), "{custom_id} is answered twice");
    first
}

/// A file in memory of the system, removed when it is dropped.
struct TestFile(std::path::PathBuf);

impl TestFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let name = format!("forerun-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn open(&self) -> io::Result<std::fs::File> {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.read(true).write(true).open(&self.0)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
