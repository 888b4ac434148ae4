//! The bench over a fake model, whose next token follows from the last one and the seed.

use clap::Parser;
use forerun_engine::EngineConfig;

use super::super::html;
use super::super::report::{Report, Section};
use super::*;
use crate::args::BenchCommand;
use crate::fakes::{self, FakeCodec, FakeExecutor, FakeGrammars};

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: BenchCommand,
}

fn args(words: &[&str]) -> SpecBenchArgs {
    let line = Line::try_parse_from(["test", "spec"].iter().chain(words)).unwrap();
    match line.command {
        BenchCommand::Spec(args) => *args,
        other => unreachable!("{other:?}"),
    }
}

fn config(settings: &Settings) -> EngineConfig {
    let mut config = fakes::config();
    config.block_size = 16;
    config.groups[0].num_blocks = 1024;
    config.max_seq_len = 4096;
    config.step_seqs_max = NUM_SEQS_MAX;
    config.step_tokens_max = STEP_TOKENS_MAX;
    config.scheduling.waiting_max = usize::MAX;
    settings.apply(&mut config.speculation);
    config
}

fn sections(words: &[&str]) -> Vec<Section> {
    let args = args(words);
    let (settings, _) = settings(&args).unwrap();
    let prompts = chosen_prompts(&args).unwrap();
    let config = config(&settings);
    let study = Study::new(&args, settings, &prompts, (&FakeCodec, config)).unwrap();
    let grammars = |_: &EngineConfig| FakeGrammars::default();
    let mut executor = FakeExecutor::default();
    study
        .run(&mut executor, (&FakeCodec, grammars), |_| {})
        .unwrap()
}

fn value(section: &Section, row: &str, column: &str) -> Option<f64> {
    let column = section.columns.iter().position(|name| *name == column);
    let row = section.rows.iter().find(|known| known.label == row);
    row.unwrap().values[column.unwrap()]
}

#[test]
fn every_drafter_and_temperature_has_a_section_with_every_class() {
    let sections = sections(&["--quick", "--methods", "ngram,none", "--max-tokens", "24"]);
    let titles: Vec<_> = sections
        .iter()
        .map(|section| section.title.as_str())
        .collect();
    for title in [
        "ngram at temperature 0",
        "ngram at temperature 0.8",
        "none at temperature 0",
        "none at temperature 0.8",
    ] {
        assert!(titles.contains(&title), "{titles:?}");
    }
    let classes = [
        "code-edit",
        "extraction",
        "chat",
        "story",
        "json",
        "json-schema",
        "all",
    ];
    let speeds = sections
        .iter()
        .filter(|section| section.columns.contains(&"speed-up"));
    for section in speeds {
        let labels: Vec<_> = section.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, classes);
        assert!(
            section
                .rows
                .iter()
                .all(|row| row.values.len() == section.columns.len())
        );
        assert_eq!(value(section, "all", "same"), Some(1.0), "{section}");
        assert!(value(section, "chat", "speed-up").is_some(), "{section}");
    }
}

#[test]
fn nobody_drafts_for_none_and_every_pass_counts() {
    let sections = sections(&[
        "--methods",
        "none",
        "--temperatures",
        "0",
        "--classes",
        "chat",
    ]);
    assert_eq!(sections.len(), 1, "there are no positions without drafts");
    assert_eq!(value(&sections[0], "chat", "drafted"), Some(0.0));
    assert_eq!(value(&sections[0], "chat", "emitted/pass"), Some(1.0));
    assert_eq!(value(&sections[0], "chat", "acceptance"), None);
}

#[test]
fn drafts_are_counted_by_position_and_by_who_made_them() {
    let words = [
        "--methods",
        "ngram",
        "--spec-tokens",
        "3",
        "--classes",
        "story",
    ];
    let sections = sections(&words);
    assert_eq!(sections.len(), 4);
    assert!(value(&sections[0], "story", "drafted").unwrap() > 0.0);
    assert!(sections[0].note.contains("by ngram"), "{}", sections[0]);
    assert!(
        value(&sections[1], "story", "1").is_some(),
        "{}",
        sections[1]
    );
    assert_eq!(value(&sections[0], "story", "same"), Some(1.0));
}

#[test]
fn requests_at_once_are_told_with_their_prompts_too() {
    let words = ["--quick", "--methods", "suffix", "--temperatures", "0.8"];
    let sections = sections(&[&words[..], &["--concurrent", "8"]].concat());
    assert_eq!(sections[0].rows.len(), 1);
    assert_eq!(value(&sections[0], "8 at once", "same"), Some(1.0));
    assert!(value(&sections[0], "8 at once", "speed-up, with prompts").is_some());
}

#[test]
fn jobs_at_once_come_from_all_classes_in_turn() {
    let prompts = prompts::shipped();
    let encode = |text: &str| Ok(vec![TokenId(text.len() as u32)]);
    let all = groups(&prompts, Some(20), encode).unwrap();
    let classes = groups(&prompts, None, encode).unwrap();
    assert_eq!(all[0].jobs.len(), 20);
    for (job, class) in all[0].jobs.iter().zip(&classes) {
        assert_eq!(job.prompt, class.jobs[0].prompt);
    }
    assert_eq!(all[0].jobs[classes.len()].prompt, classes[0].jobs[1].prompt);
    assert_eq!(all[0].jobs[16].prompt, all[0].jobs[0].prompt);
}

#[test]
fn the_page_draws_speed_and_positions() {
    let sections = sections(&["--quick", "--methods", "ngram", "--temperatures", "0"]);
    let num_sections = sections.len();
    let report = Report {
        bench: "spec",
        model: "fake".to_owned(),
        device: "cpu".to_owned(),
        num_cores: 2,
        version: "0",
        seed: 1,
        is_quick: true,
        sections,
    };
    assert_eq!(html::page(&report).matches("<svg").count(), num_sections);
    assert!(report.to_string().contains("decode passes ("));
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let unknown = chosen_prompts(&args(&["--classes", "poems"])).unwrap_err();
    assert!(
        unknown.to_string().contains("code-edit, extraction"),
        "{unknown}"
    );
    for words in [
        &["--spec-method", "ngram"][..],
        &["--speculative-config", r#"{"method": "ngram"}"#],
    ] {
        let error = settings(&args(words)).unwrap_err().to_string();
        assert!(error.contains("--methods"), "{error}");
    }
    let error = settings(&args(&["--methods", "draft-model"])).unwrap_err();
    assert!(error.to_string().contains("--spec-model"), "{error}");
}
