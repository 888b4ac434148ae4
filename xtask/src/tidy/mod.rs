//! The repository's own rules that no other tool knows: how long files are, where `unsafe` and
//! transfers may stand, what must not be left behind, what the documents must hold.
//!
//! Neighbours: `sources.rs` (rules for Rust files), `documents.rs` (for the rest). `allow.txt` lists
//! the exceptions, each with its reason; an exception that is no longer needed fails too, so that
//! the list only shrinks.

mod documents;
mod sources;

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::shell::Shell;

const ALLOW_FILE: &str = "xtask/src/tidy/allow.txt";

/// A file as the rules see it.
struct TextFile {
    /// Relative to the repository, with `/`.
    path: String,
    text: String,
}

/// One broken rule.
struct Finding {
    /// Name of the rule, as in `allow.txt`.
    rule: &'static str,
    path: String,
    /// 1-based; 0 for the whole file.
    line: usize,
    what: String,
}

/// Exceptions: (rule, path).
type Allowed = BTreeSet<(String, String)>;

pub(crate) fn run(paths: &Paths) -> Result<()> {
    let files = tracked_files(paths)?;
    let mut findings = Vec::new();
    for file in &files {
        if has_extension(&file.path, "rs") {
            sources::check(file, &mut findings);
        }
        documents::check_any(file, &mut findings);
    }
    documents::check_all(&files, paths, &mut findings);

    let allowed = read_allowed(paths)?;
    let key = |finding: &Finding| (finding.rule.to_owned(), finding.path.clone());
    let used: Allowed = findings
        .iter()
        .map(key)
        .filter(|key| allowed.contains(key))
        .collect();
    findings.retain(|finding| !allowed.contains(&key(finding)));
    findings.extend(allowed.difference(&used).map(|(rule, path)| Finding {
        rule: "allow",
        path: ALLOW_FILE.to_owned(),
        line: 0,
        what: format!("`{rule} {path}` is no longer needed: remove it"),
    }));
    for Finding {
        rule,
        path,
        line,
        what,
    } in &findings
    {
        println!("{path}:{line}: {what} [{rule}]");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} findings in {} files", files.len()),
    }
}

/// Text files that git knows or would add; what is ignored is not ours.
fn tracked_files(paths: &Paths) -> Result<Vec<TextFile>> {
    let list = Shell::new("git")
        .dir(&paths.root)
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ])
        .read()?;
    let mut files = Vec::new();
    let names: BTreeSet<&str> = list.split('\0').filter(|name| !name.is_empty()).collect();
    for name in names {
        // Deleted but not yet staged files are listed too; files that are no text are data.
        let Ok(bytes) = fs::read(paths.root.join(name)) else {
            continue;
        };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile {
                path: name.to_owned(),
                text,
            });
        }
    }
    Ok(files)
}

/// Lines of `rule path  # reason`.
fn read_allowed(paths: &Paths) -> Result<Allowed> {
    let text = fs::read_to_string(paths.root.join(ALLOW_FILE)).context(ALLOW_FILE)?;
    let mut allowed = Allowed::new();
    for line in text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
    {
        let entry = line
            .split_once('#')
            .filter(|(_, reason)| !reason.trim().is_empty());
        let words: Vec<_> = entry.map_or(vec![], |(entry, _)| entry.split_whitespace().collect());
        let [rule, path] = words[..] else {
            bail!("{ALLOW_FILE}: not `rule path # reason`: {line}")
        };
        allowed.insert((rule.to_owned(), path.to_owned()));
    }
    Ok(allowed)
}

fn has_extension(path: &str, extension: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, found)| found == extension)
}

/// Whether `word` stands in `line` by itself, not inside a longer name.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part_of_name) && !after.is_some_and(part_of_name)
    })
}
