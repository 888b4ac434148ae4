//! `cargo xtask check`: everything that can be said about the sources without running them, cheapest
//! first. The first failure ends it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use crate::paths::Paths;
use crate::setup::{self, tools};
use crate::shell::{Shell, answers, timed};
use crate::tidy;

/// Where cargo-deny's advisory database lives.
const ADVISORY_HOST: &str = "github.com";

/// Packages that may not be reached, as (from, to, why).
const NOT_REACHABLE: [(&str, &str, &str); 4] = [
    (
        "forerun",
        "burn-fusion",
        "`Cube` must be the eager backend that our kernels are written for",
    ),
    (
        "forerun-tests",
        "burn-fusion",
        "the tests must see the backend that the binary has",
    ),
    ("forerun-engine", "burn", "the engine is integers only"),
    ("forerun-engine", "cubecl", "the engine is integers only"),
];

pub(crate) fn run(paths: &Paths) -> Result<()> {
    timed("tidy", || tidy::run(paths))?;
    timed("fmt", || {
        Shell::cargo(&paths.root)
            .args(["fmt", "--all", "--check"])
            .run()
    })?;
    timed("boundaries", || boundaries(paths))?;
    timed("unified features", || unified_features(paths))?;
    timed("typos", || typos(paths))?;
    timed("deny", || deny(paths))?;
    setup::to_compile(paths)?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--release",
        "--",
        "-D",
        "warnings",
    ];
    timed("clippy", || Shell::cargo(&paths.root).args(clippy).run())?;
    timed("doc", || doc(paths))?;
    println!("all checks passed");
    Ok(())
}

fn doc(paths: &Paths) -> Result<()> {
    let doc = [
        "doc",
        "--workspace",
        "--no-deps",
        "--release",
        "--document-private-items",
    ];
    Shell::cargo(&paths.root)
        .args(doc)
        // Private items are documented too, so links to them work.
        .env(
            "RUSTDOCFLAGS",
            "-D warnings -A rustdoc::private_intra_doc_links",
        )
        .run()
}

/// Which packages may know of which: read from cargo's own graph.
fn boundaries(paths: &Paths) -> Result<()> {
    for (from, to, why) in NOT_REACHABLE {
        let tree = Shell::cargo(&paths.root)
            .args([
                "tree",
                "--locked",
                "-e",
                "features,normal,build",
                "--prefix",
                "none",
                "-p",
                from,
            ])
            .read()?;
        if let Some(line) = find_package(&tree, to) {
            bail!("{from} reaches `{line}`: {why} (`cargo tree -e features -p {from} -i {to}`)");
        }
    }
    Ok(())
}

/// Packages that are built by themselves now and then, and reach burn.
const SELECTIONS: [&str; 3] = ["forerun-kernels", "forerun-tests", "forerun"];

/// Every selection of packages must switch on the same features of the crates below burn, or burn
/// is compiled once per selection: `kernels-cubecl/Cargo.toml` lists what that takes.
fn unified_features(paths: &Paths) -> Result<()> {
    let workspace = features(paths, &["--workspace"])?;
    for package in SELECTIONS {
        for (name, found) in features(paths, &["-p", package])? {
            let expected = workspace.get(&name);
            if expected != Some(&found) {
                bail!(
                    "`-p {package}` builds {name} with features {found:?}, the workspace with \
                     {expected:?}: add what is missing to kernels-cubecl/Cargo.toml"
                );
            }
        }
    }
    Ok(())
}

/// The sets of features with which each crate of a selection is built.
fn features(paths: &Paths, selection: &[&str]) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let tree = Shell::cargo(&paths.root)
        .args([
            "tree",
            "--locked",
            "-e",
            "normal,build,features",
            "--prefix",
            "none",
        ])
        .args(["-f", "{p}|{f}"])
        .args(selection)
        .read()?;
    let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in tree.lines() {
        let line = line.trim_end_matches(" (*)");
        if let Some((package, list)) = line.split_once('|') {
            features
                .entry(package.to_owned())
                .or_default()
                .insert(list.to_owned());
        }
    }
    Ok(features)
}

/// The first line of a tree that is `name v1.2.3`, or a package of that family (`name-part`).
fn find_package<'a>(tree: &'a str, name: &str) -> Option<&'a str> {
    tree.lines().find(|line| {
        let package = line.split(' ').next().unwrap_or_default();
        let family = package.strip_prefix(name);
        family.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

fn typos(paths: &Paths) -> Result<()> {
    match tools::TYPOS.find(paths) {
        Some(typos) => Shell::new(typos)
            .dir(&paths.root)
            .args(["--config", "typos.toml"])
            .run(),
        None => Ok(()),
    }
}

fn deny(paths: &Paths) -> Result<()> {
    let Some(deny) = tools::CARGO_DENY.find(paths) else {
        return Ok(());
    };
    let deny = |args: &[&str]| Shell::new(&deny).dir(&paths.root).args(args).run();
    deny(&[
        "--offline",
        "--log-level",
        "error",
        "check",
        "licenses",
        "bans",
        "sources",
    ])?;
    if answers(ADVISORY_HOST) {
        return deny(&["--log-level", "error", "check", "advisories"]);
    }
    println!("SKIPPED advisories: {ADVISORY_HOST}, which has their database, does not answer");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_found_by_its_whole_name_or_family() {
        let tree = "forerun-engine v0.1.0 (path)\nburnish v1.0.0\nthiserror v2.0.0\n";
        assert_eq!(find_package(tree, "burn"), None);
        assert_eq!(
            find_package(&format!("{tree}burn v0.22.1"), "burn"),
            Some("burn v0.22.1")
        );
        assert_eq!(
            find_package("burn-ir feature \"std\"", "burn"),
            Some("burn-ir feature \"std\"")
        );
    }
}
