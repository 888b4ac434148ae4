//! Rules for the documents and for every text file.

use super::{Finding, TextFile, has_extension};
use crate::paths::Paths;

/// What must stand in a document, as (document, text, why).
const MUST_HOLD: [(&str, &str, &str); 13] = [
    ("README.md", "cargo xtask run", "one of the two commands"),
    ("README.md", "cargo xtask test", "one of the two commands"),
    (".ci/run", "cargo xtask check", "CI checks"),
    (
        ".ci/run",
        "cargo xtask test",
        "CI runs the README's test command",
    ),
    (
        "CHANGELOG.md",
        "## Unreleased",
        "changes are written down as they are made",
    ),
    ("GLOSSARY.md", "# Glossary", "one word, one meaning"),
    (
        "ARCHITECTURE.md",
        "## Pinned versions",
        "a section of its own",
    ),
    (
        "ARCHITECTURE.md",
        "## The path of a token",
        "a section of its own",
    ),
    (
        "ARCHITECTURE.md",
        "## One request, one step",
        "a section of its own",
    ),
    ("ARCHITECTURE.md", "## Code map", "a section of its own"),
    ("ARCHITECTURE.md", "## Invariants", "a section of its own"),
    (
        "ARCHITECTURE.md",
        "## Cross-cutting",
        "a section of its own",
    ),
    (
        "ARCHITECTURE.md",
        "## What we do not do",
        "a section of its own",
    ),
];

/// Folders of particular machines, in pieces, so that this file does not find itself.
const MACHINE_FOLDERS: [&str; 4] = [
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/Us", "ers/"),
    concat!("/farm", "/"),
];

/// Rules for every text file.
pub(super) fn check_any(file: &TextFile, findings: &mut Vec<Finding>) {
    for (index, line) in file.text.lines().enumerate() {
        let mut found = |rule, what: String| {
            findings.push(Finding {
                rule,
                path: file.path.clone(),
                line: index + 1,
                what,
            });
        };
        if let Some(folder) = MACHINE_FOLDERS
            .iter()
            .find(|folder| holds_path(line, folder))
        {
            found(
                "machine-path",
                format!("`{folder}` is a folder of one machine"),
            );
        }
        if has_extension(&file.path, "rs") && line.trim_end() != line {
            found("space", "trailing space".to_owned());
        }
    }
}

/// `/x/` counts at the start of a path, not in the middle of a longer one.
fn holds_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '/'))
    })
}

/// Rules that need all files at once.
pub(super) fn check_all(files: &[TextFile], paths: &Paths, findings: &mut Vec<Finding>) {
    let mut found = |path: &str, line, what: String| {
        findings.push(Finding {
            rule: "document",
            path: path.to_owned(),
            line,
            what,
        });
    };
    for (path, text, why) in MUST_HOLD {
        let document = files.iter().find(|file| file.path == path);
        if !document.is_some_and(|file| file.text.contains(text)) {
            found(path, 0, format!("does not hold `{text}`: {why}"));
        }
    }
    for file in files.iter().filter(|file| has_extension(&file.path, "md")) {
        for (index, line) in file.text.lines().enumerate() {
            for target in link_targets(line) {
                let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                if !paths.root.join(folder).join(target).exists() {
                    found(
                        &file.path,
                        index + 1,
                        format!("link to {target}, which does not exist"),
                    );
                }
            }
        }
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let ci = paths.root.join(".ci/run").metadata();
        if !ci.is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0) {
            found(".ci/run", 0, "is not executable".to_owned());
        }
    }
}

/// Relative targets of `[text](target)`, without their `#fragment`.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.split('#').next().unwrap_or_default());
    targets.filter(|target| !target.is_empty() && !target.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_one_machine_is_found_only_at_the_start_of_a_path() {
        let folder = MACHINE_FOLDERS[1];
        assert!(holds_path(&format!("cd {folder}main"), folder));
        assert!(!holds_path(&format!("/frame{folder}x"), folder));
    }

    #[test]
    fn links_of_a_line_are_read_without_addresses_and_fragments() {
        let line = "[a](b/c.md#part) and [d](https://e) and [f](#g) and [h](i.rs)";
        assert_eq!(link_targets(line).collect::<Vec<_>>(), ["b/c.md", "i.rs"]);
    }
}
