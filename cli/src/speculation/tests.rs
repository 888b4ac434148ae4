use clap::Parser;
use forerun_engine::{DraftTree, SpecMethod, SpeculationConfig, TokenId, Verification};

use super::*;
use crate::args::SpeculationArgs;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: SpeculationArgs,
}

fn settings(words: &[&str]) -> Result<(Settings, Vec<String>), String> {
    let line = Line::try_parse_from(["test"].iter().chain(words));
    let line = line.map_err(|error| error.to_string())?;
    Settings::of(&line.args).map_err(|error| format!("{error:#}"))
}

fn config(words: &[&str]) -> SpeculationConfig {
    let mut config = SpeculationConfig::default();
    settings(words).unwrap().0.apply(&mut config);
    config
}

#[test]
fn flags_and_vllms_object_say_the_same() {
    let by_flags = config(&["--spec-method", "ngram", "--spec-tokens", "5"]);
    let json = r#"{"method": "ngram", "num_speculative_tokens": 5}"#;
    assert_eq!(by_flags, config(&["--speculative-config", json]));
    assert_eq!(by_flags.method, SpecMethod::Ngram);
    assert_eq!(by_flags.num_tokens, Some(5));
    assert_eq!(config(&[]).method, SpecMethod::Auto);
    assert_eq!(config(&["--spec-tree", "3"]).width_max, 3);
    let json = r#"{"prompt_lookup_min": 3, "prompt_lookup_max": 7}"#;
    let lens = config(&["--speculative-config", json]);
    assert_eq!((lens.ngram_len_min, lens.ngram_len_max), (3, 7));
}

#[test]
fn verification_depends_on_the_seed_unless_it_is_said() {
    let (default, _) = settings(&[]).unwrap();
    assert_eq!(default.verification(true), Verification::SharedNoise);
    assert_eq!(default.verification(false), Verification::Rejection);
    let json = r#"{"rejection_sample_method": "block"}"#;
    let (block, _) = settings(&["--speculative-config", json]).unwrap();
    assert_eq!(block.verification(true), Verification::Block);
    let (shared, _) = settings(&["--spec-verify", "shared-noise"]).unwrap();
    assert_eq!(shared.verification(false), Verification::SharedNoise);
}

#[test]
fn what_means_nothing_is_noted_and_what_is_unknown_is_refused() {
    let json = r#"{"method": "suffix", "disable_padded_drafter_batch": true}"#;
    let (_, notes) = settings(&["--speculative-config", json]).unwrap();
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].contains("disable_padded_drafter_batch"),
        "{notes:?}"
    );
    let cases = [
        (r#"{"drafter": "ngram"}"#, "valid keys are method, model"),
        (r#"{"method": "eagle3"}"#, "valid methods are none, ngram"),
        (r#"{"num_speculative_tokens": 1000}"#, "from 0 to 64"),
        (
            r#"{"num_speculative_tokens": "5"}"#,
            "expected a whole number",
        ),
        (
            r#"{"prompt_lookup_min": 5, "prompt_lookup_max": 2}"#,
            "above prompt_lookup_max",
        ),
        (
            r#"{"rejection_sample_method": "magic"}"#,
            "valid are shared-noise",
        ),
        (r#"{"method": "draft_model"}"#, "--spec-model"),
        ("[1]", "must be a JSON object"),
        ("{", "not JSON"),
    ];
    for (json, message) in cases {
        let error = settings(&["--speculative-config", json]).unwrap_err();
        assert!(
            error.contains(message),
            "{error:?} should contain {message:?}"
        );
    }
}

#[test]
fn a_flag_and_a_key_that_differ_are_refused_with_both() {
    let json = r#"{"method": "ngram"}"#;
    let words = ["--spec-method", "suffix", "--speculative-config", json];
    let error = settings(&words).unwrap_err();
    assert!(
        error.contains("Suffix") && error.contains("Ngram"),
        "{error}"
    );
    let words = ["--spec-method", "ngram", "--spec-model", "small"];
    assert!(settings(&words).unwrap_err().contains("--spec-model"));
}

#[test]
fn drafts_are_shown_as_accepted_rejected_and_the_targets_own() {
    let mut view = DraftView::new(false);
    let vocabulary = crate::fakes::FakeCodec;
    let mut draft = DraftTree::new();
    draft.push_chain(None, [TokenId(5), TokenId(6), TokenId(7)]);
    assert_eq!(view.token("x", &vocabulary), "x");
    view.take_draft(&draft, 1);
    assert_eq!(view.token("a", &vocabulary), "[+a]");
    let shown = view.token("b", &vocabulary);
    assert!(
        shown.starts_with("[-") && shown.ends_with("[*b]"),
        "{shown}"
    );
    assert_eq!(view.token("c", &vocabulary), "c");
}
