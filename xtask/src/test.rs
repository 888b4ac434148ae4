//! `cargo xtask test`: builds every test once, runs the suites in order, counts what ran.
//!
//! The binaries are started here rather than by `cargo test`, so that one build with one set of
//! features serves all of them, each suite's time is known, and a failing one does not hide the rest.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::paths::Paths;
use crate::setup;
use crate::shell::{Shell, timed};

/// Packages in the order of their suites: what fails fast and explains most comes first.
const ORDER: [&str; 7] = [
    "xtask",
    "forerun-engine",
    "forerun",
    "forerun-kernels",
    "forerun-models",
    "forerun-tests",
    "forerun-benches",
];

/// Suites whose tests each open devices and use every core: one test at a time.
const SERIAL_PACKAGES: [&str; 1] = ["forerun-tests"];

/// One test binary.
struct Suite {
    package: String,
    name: String,
    executable: PathBuf,
    /// The package's folder, where `cargo test` would start it.
    folder: PathBuf,
}

/// Numbers of a suite's `test result` line, and their sums.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

pub(crate) fn run(paths: &Paths, only: Option<&str>, args: &[String]) -> Result<()> {
    let ready = setup::everything(paths)?;
    ready.pull_test_models(paths)?;
    let mut suites = timed("build tests", || build(paths))?;
    suites.retain(|suite| only.is_none_or(|part| suite.title().contains(part)));
    if suites.is_empty() {
        bail!("no suite's name contains {:?}", only.unwrap_or_default());
    }
    let devices = ready.expected_devices();
    println!("devices that have to take part: {devices} (FORERUN_EXPECT_DEVICES overrides)");

    let mut total = Counts::default();
    let mut failed = Vec::new();
    for suite in &suites {
        let shell = ready
            .program(paths, &suite.executable)
            .args(args)
            .dir(&suite.folder);
        let shell = shell.env_default("FORERUN_EXPECT_DEVICES", devices);
        let serial = SERIAL_PACKAGES.contains(&suite.package.as_str());
        let shell = if serial {
            shell.env_default("RUST_TEST_THREADS", "1")
        } else {
            shell
        };
        let shell = shell.env("CARGO_MANIFEST_DIR", &suite.folder);
        if !run_suite(&suite.title(), shell, &mut total)? {
            failed.push(suite.title());
        }
    }
    if only.is_none() && !run_suite("doc tests", doc_tests(paths, args), &mut total)? {
        failed.push("doc tests".to_owned());
    }

    let Counts {
        passed,
        failed: failures,
        skipped,
    } = total;
    if !failed.is_empty() {
        println!("failed suites: {}", failed.join(", "));
    }
    println!("{passed} passed, {failures} failed, {skipped} skipped");
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("{} suites failed", failed.len())
    }
}

/// Without the variables for devices: build scripts would see them and run again.
fn doc_tests(paths: &Paths, args: &[String]) -> Shell {
    let shell = Shell::cargo(&paths.root);
    shell
        .args(["test", "--release", "--workspace", "--doc", "--quiet", "--"])
        .args(args)
}

/// Runs one suite, adds its counts, and tells whether it passed.
fn run_suite(title: &str, shell: Shell, total: &mut Counts) -> Result<bool> {
    println!("== suite {title}");
    let start = Instant::now();
    let mut counts = Counts::default();
    let status = shell.lines(|line| {
        println!("{line}");
        if let Some(more) = Counts::read(line) {
            counts.add(more);
        }
    })?;
    if !status.success() && counts.failed == 0 {
        println!("suite {title} ended before its tests did: {status}");
        counts.failed = 1;
    }
    total.add(counts);
    println!("== suite {title}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(status.success())
}

/// Compiles all tests and returns their binaries in [`ORDER`].
fn build(paths: &Paths) -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    let status = Shell::cargo(&paths.root)
        .args(["test", "--release", "--workspace", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .lines(|line| suites.extend(Suite::from_message(line)))?;
    if !status.success() {
        bail!("the tests do not compile");
    }
    if let Some(unknown) = suites.iter().find(|s| !ORDER.contains(&s.package.as_str())) {
        bail!(
            "package {} has tests and no place in the order of suites",
            unknown.package
        );
    }
    suites.sort_by_key(|suite| {
        let place = ORDER.iter().position(|package| *package == suite.package);
        (place, suite.name.clone())
    });
    Ok(suites)
}

impl Suite {
    fn title(&self) -> String {
        format!("{} {}", self.package, self.name)
    }

    /// Reads one of cargo's JSON messages; `None` for all but test binaries.
    fn from_message(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let executable = PathBuf::from(message["executable"].as_str()?);
        let folder = Path::new(message["manifest_path"].as_str()?)
            .parent()?
            .to_owned();
        let kind = message["target"]["kind"][0].as_str()?;
        Some(Self {
            package: package_name(message["package_id"].as_str()?)?,
            name: format!("{} ({kind})", message["target"]["name"].as_str()?),
            executable,
            folder,
        })
    }
}

/// The name in `path+file:///x/engine#forerun-engine@0.1.0` or `path+file:///x/xtask#0.1.0`.
fn package_name(id: &str) -> Option<String> {
    let (url, fragment) = id.rsplit_once('#')?;
    match fragment.split_once('@') {
        Some((name, _version)) => Some(name.to_owned()),
        None => url.rsplit('/').next().map(str::to_owned),
    }
}

impl Counts {
    /// From `test result: ok. 26 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; ..`.
    fn read(line: &str) -> Option<Self> {
        let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let number = |word: &str| {
            let clause = numbers.split("; ").find(|clause| clause.ends_with(word))?;
            clause.split(' ').next()?.parse().ok()
        };
        Some(Self {
            passed: number(" passed")?,
            failed: number(" failed")?,
            skipped: number(" ignored")?,
        })
    }

    fn add(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_line_of_a_suite_is_counted() {
        let line = "test result: FAILED. 26 passed; 2 failed; 1 ignored; 0 measured; 7 filtered out; \
                    finished in 0.17s";
        assert_eq!(
            Counts::read(line),
            Some(Counts {
                passed: 26,
                failed: 2,
                skipped: 1
            })
        );
        assert_eq!(Counts::read("test a_test ... ok"), None);
    }

    #[test]
    fn packages_are_named_in_both_forms_of_their_id() {
        let name = |id| package_name(id).unwrap();
        assert_eq!(
            name("path+file:///x/engine#forerun-engine@0.1.0"),
            "forerun-engine"
        );
        assert_eq!(name("path+file:///x/xtask#0.1.0"), "xtask");
    }
}
