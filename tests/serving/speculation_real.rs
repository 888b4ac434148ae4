//! Speculation on real models and real text: token ids are those of plain decoding.
//!
//! Neighbours: `speculation.rs` does the same on tiny models, in every shape.

#![expect(
    clippy::print_stdout,
    reason = "how much was accepted is part of what is shown"
)]

use forerun_engine::{Request, SamplingParams, SpecMethod, SpeculationParams, StopParams, TokenId};
use forerun_models::devices::DeviceChoice;
use forerun_models::model::ModelFiles;
use forerun_models::text::{AddBos, SpecialTokens};
use forerun_tests::real_models;

use crate::models::load;
use crate::run::{Run, run, run_drafted};
use crate::scripted::{Script, ScriptedDrafter};

const PROMPTS: [&str; 2] = [
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n",
    "[{\"id\": 1, \"on\": true}, {\"id\": 2, \"on\": true}, {\"id\": 3, \"on\": true}, {\"id\": 4,",
];

/// Greedy, and drawn with top-p and penalties.
fn requests(prompts: &[Vec<TokenId>]) -> Vec<Request> {
    let samplings = [
        SamplingParams::default(),
        SamplingParams {
            temperature: 0.8,
            top_p: 0.9,
            repetition_penalty: 1.1,
            frequency_penalty: 0.1,
            seed: 11,
            ..SamplingParams::default()
        },
    ];
    let of = |prompt: &Vec<TokenId>| {
        samplings.clone().map(|sampling| Request {
            prompt: prompt.clone(),
            sampling,
            stop: StopParams {
                max_tokens: Some(24),
                ignore_eos: true,
                ..StopParams::default()
            },
            ..Request::default()
        })
    };
    prompts.iter().flat_map(of).collect()
}

fn drafted_by(requests: &[Request], method: SpecMethod, num_tokens: Option<u32>) -> Vec<Request> {
    let one = |request: &Request| Request {
        speculation: SpeculationParams {
            method: Some(method),
            num_tokens,
            ..SpeculationParams::default()
        },
        ..request.clone()
    };
    requests.iter().map(one).collect()
}

fn assert_same(plain: &Run, drafted: &Run, what: &str) {
    for (index, (a, b)) in plain.outputs.iter().zip(&drafted.outputs).enumerate() {
        assert_eq!(a, b, "{what}: request {index}");
    }
    let reports = drafted.speculation.iter();
    let accepted: u64 = reports.map(|report| report.accepted_tokens).sum();
    println!("{what}: {accepted} drafts accepted, all tokens equal");
}

fn check(file: &str) {
    let path = real_models::path(file);
    let mut model = load(&path, DeviceChoice::Cpu);
    model.runner.set_draft_layers(4);
    let files = ModelFiles::open(&path).unwrap_or_else(|error| panic!("{error}"));
    let tokenizer = files.tokenizer().unwrap_or_else(|error| panic!("{error}"));
    let encode = |text: &&str| {
        let ids = tokenizer.encode(text, SpecialTokens::AsText, AddBos::Auto);
        ids.unwrap_or_else(|error| panic!("{error}"))
    };
    let prompts: Vec<_> = PROMPTS.iter().map(encode).collect();
    let requests = requests(&prompts);
    for num_seqs in [1, 8] {
        let mut config = model.engine_config(256, num_seqs);
        config.speculation.num_tokens_max = 8;
        let plain = run(&mut model.runner, &config, &requests);
        let answers: Vec<Vec<TokenId>> = requests
            .iter()
            .zip(&plain.outputs)
            .map(|(request, output)| {
                let tokens = output.samples[&0].tokens.iter().map(|&id| TokenId(id));
                request.prompt.iter().copied().chain(tokens).collect()
            })
            .collect();
        for (script, num_drafts) in [
            (Script::Mixed, 1),
            (Script::Mixed, 4),
            (Script::Mixed, 8),
            (Script::Tree, 7),
            (Script::Wrong, 5),
        ] {
            let drafter = ScriptedDrafter {
                script,
                answers: answers.clone(),
                vocab_size: config.vocab_size,
            };
            let drafter: Box<dyn forerun_engine::Drafter> = Box::new(drafter);
            let asked = drafted_by(&requests, SpecMethod::Custom, Some(num_drafts));
            let found = run_drafted(&mut model.runner, &config, &asked, Some(drafter));
            let what = format!("{file}, {script:?}, {num_drafts} drafts, {num_seqs} at once");
            assert_same(&plain, &found, &what);
        }
        let methods = [
            (SpecMethod::Ngram, Some(5)),
            (SpecMethod::Suffix, Some(8)),
            (SpecMethod::Auto, None),
            (SpecMethod::LayerSkip, Some(2)),
        ];
        for (method, num_tokens) in methods {
            let asked = drafted_by(&requests, method, num_tokens);
            let found = run(&mut model.runner, &config, &asked);
            assert_same(
                &plain,
                &found,
                &format!("{file}, {method:?}, {num_seqs} at once"),
            );
        }
    }
}

#[test]
fn no_draft_changes_what_smollm2_says() {
    check(real_models::SMOLLM2);
}

#[test]
fn no_draft_changes_what_gemma_3_says() {
    check(real_models::GEMMA3);
}
