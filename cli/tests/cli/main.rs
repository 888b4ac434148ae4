//! The binary as people use it, on tiny models.

mod batch;
mod bench;
mod generate;
mod samples;
mod speculation;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures")
        .join(path)
}

fn forerun(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forerun"))
        .args(args)
        .output()
        .expect("the binary starts")
}

fn generate(model: &str, args: &[&str]) -> Output {
    let model = fixture(model);
    let model = model.to_str().expect("a path of this repository is UTF-8");
    let common = ["generate", "--model", model, "--device", "cpu"];
    forerun(&[&common, args].concat())
}

fn json(output: &Output) -> Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text is UTF-8")
}

fn ids(value: &Value) -> Vec<u64> {
    let ids = value.as_array().expect("a list of ids");
    ids.iter().map(|id| id.as_u64().expect("an id")).collect()
}
