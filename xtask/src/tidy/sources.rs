//! Rules for Rust files. They read lines, not syntax: simple enough to be believed, and what they
//! misjudge goes to `allow.txt`.

use super::{Finding, TextFile, has_word};

const FILE_LINES_MAX: usize = 400;

/// In pieces, so that this file does not find itself.
const UNSAFE: &str = concat!("un", "safe");
/// Folder that may hold it: SIMD, the worker pool, launches. Memory maps are in `allow.txt`.
const UNSAFE_FOLDER: &str = "kernels-cubecl/";

/// Calls that move tensors between host and device. In the product only the runner and the loaders
/// do that (one upload and one download per step).
const TRANSFERS: [&str; 6] = [
    "into_data",
    "to_data",
    "into_data_async",
    "from_data",
    "into_scalar",
    "read_async",
];
/// Where transfers may stand in `models/src`.
const TRANSFER_PLACES: [&str; 3] = [
    "models/src/runner",
    "models/src/loaders/",
    "models/src/decoder_weights",
];

/// Products of burn's own, which must not run in a forward path: ours keep their bits whatever the
/// number of rows.
const BURN_PRODUCTS: [&str; 4] = ["matmul", "softmax", "einsum", "bmm"];
/// Where the forward path is.
const FORWARD_FOLDER: &str = "models/src/";

pub(super) fn check(file: &TextFile, findings: &mut Vec<Finding>) {
    check_whole(file, findings);
    let mut found = |rule, line, what: String| {
        findings.push(Finding {
            rule,
            path: file.path.clone(),
            line,
            what,
        });
    };
    let may_transfer = !file.path.starts_with("models/src/")
        || TRANSFER_PLACES
            .iter()
            .any(|place| file.path.starts_with(place))
        || is_test_file(&file.path);
    let in_forward_path = file.path.starts_with(FORWARD_FOLDER);
    let call_rules: [(&str, &[&str], bool, &str); 2] = [
        (
            "transfer",
            &TRANSFERS,
            !may_transfer,
            "outside the runner and the loaders",
        ),
        (
            "burn-product",
            &BURN_PRODUCTS,
            in_forward_path,
            "of burn in the forward path: use an op of forerun-kernels",
        ),
    ];
    let may_be_unsafe = file.path.starts_with(UNSAFE_FOLDER);
    let mut previous_safety = 0;
    for (number, line) in file
        .text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
    {
        if line.contains("SAFETY:") || line.contains("# Safety") {
            previous_safety = number;
        }
        let code = without_comment(line);
        if has_word(code, UNSAFE) {
            if !may_be_unsafe {
                found(UNSAFE, number, format!("{UNSAFE} outside {UNSAFE_FOLDER}"));
            } else if code.contains(&format!("{UNSAFE} {{"))
                && number - previous_safety > SAFETY_DISTANCE_MAX
            {
                found(
                    "safety",
                    number,
                    format!("an {UNSAFE} block without a `// SAFETY:` above"),
                );
            }
        }
        for (rule, calls, applies, advice) in call_rules {
            if let Some(call) = calls.iter().find(|call| applies && has_word(code, call)) {
                found(rule, number, format!("`{call}` {advice}"));
            }
        }
        if let Some(word) = LEFTOVERS.iter().find(|word| line.contains(**word)) {
            found("leftover", number, format!("`{word}` left behind"));
        }
    }
}

/// Rules about the file as a whole.
fn check_whole(file: &TextFile, findings: &mut Vec<Finding>) {
    let mut found = |rule, line, what: String| {
        findings.push(Finding {
            rule,
            path: file.path.clone(),
            line,
            what,
        });
    };
    let num_lines = file.text.lines().count();
    if num_lines > FILE_LINES_MAX {
        found(
            "length",
            0,
            format!("{num_lines} lines, at most {FILE_LINES_MAX}: two ideas?"),
        );
    }
    // The head of a `tests.rs` is that of the file beside it.
    let has_head = file.text.starts_with("//!") || file.path.ends_with("tests.rs");
    if !has_head && !file.text.trim().is_empty() {
        found(
            "head",
            1,
            "the file does not begin with `//!`: what it is, its neighbours".to_owned(),
        );
    }
}

/// A `// SAFETY:` comment may be this many lines above its block (it may itself be long).
const SAFETY_DISTANCE_MAX: usize = 12;

/// Written in pieces, so that this file does not find itself.
const LEFTOVERS: [&str; 5] = [
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimplemen", "ted!("),
    concat!("dbg", "!("),
    concat!("#[ign", "ore]"),
];

fn without_comment(line: &str) -> &str {
    match line.find("//") {
        // `://` is an address in a string.
        Some(at) if !line[..at].ends_with(':') => &line[..at],
        _ => line,
    }
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("/tests/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_of(path: &str, text: &str) -> Vec<&'static str> {
        let file = TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let mut findings = Vec::new();
        check(&file, &mut findings);
        findings.into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_clean_file_has_no_findings() {
        assert!(
            rules_of(
                "engine/src/a.rs",
                "//! Head.\nfn f() {} // as safe as can be\n"
            )
            .is_empty()
        );
    }

    #[test]
    fn each_rule_finds_what_it_is_for() {
        let head = "//! Head.\n";
        let rules = |path, line: &str| rules_of(path, &format!("{head}{line}\n"));
        assert_eq!(rules_of("engine/src/a.rs", "fn f() {}\n"), ["head"]);
        assert_eq!(rules_of("engine/src/a.rs", &head.repeat(401)), ["length"]);
        assert_eq!(
            rules("engine/src/a.rs", concat!("un", "safe { f() }")),
            [UNSAFE]
        );
        assert_eq!(
            rules("models/src/decoder.rs", "let x = y.into_data();"),
            ["transfer"]
        );
        assert_eq!(
            rules("models/src/runner.rs", "let x = y.into_data();"),
            Vec::<&str>::new()
        );
        assert_eq!(
            rules("models/src/decoder.rs", "let x = y.matmul(w);"),
            ["burn-product"]
        );
        assert_eq!(
            rules("engine/src/a.rs", concat!("// FIX", "ME later")),
            ["leftover"]
        );
    }

    #[test]
    fn an_unsafe_block_wants_its_reason() {
        let path = "kernels-cubecl/src/a.rs";
        let far = "//! Head.\n".repeat(20);
        assert_eq!(
            rules_of(path, &format!("{far}{UNSAFE} {{ f() }}\n")),
            ["safety"]
        );
        assert!(rules_of(path, &format!("{far}// SAFETY: f\n{UNSAFE} {{ f() }}\n")).is_empty());
    }
}
