//! `forerun bench`, on a model that is too small to be fast or slow.

use serde_json::Value;

use crate::{fixture, forerun, text};

#[test]
fn all_benches_print_tables_and_write_json_and_a_page() {
    let model = fixture("tiny/llama");
    let folder = std::env::temp_dir().join(format!("forerun-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let benches = [
        ("cache", "saved", &[][..]),
        ("sched", "speed-up", &[]),
        ("spec", "emitted/pass", &["--max-tokens", "8"]),
    ];
    for (bench, column, own) in benches {
        let (json, html) = (folder.join("out.json"), folder.join("out.html"));
        let args = [
            "--quick",
            "--device",
            "cpu",
            "--model",
            model.to_str().unwrap(),
        ];
        let files = [
            "--json",
            json.to_str().unwrap(),
            "--html",
            html.to_str().unwrap(),
        ];
        let output = forerun(&[&["bench", bench], &args[..], &files, own].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(column));
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(report["bench"], bench);
        assert!(!report["sections"][0]["rows"].as_array().unwrap().is_empty());
        assert!(std::fs::read_to_string(&html).unwrap().contains("<svg"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
