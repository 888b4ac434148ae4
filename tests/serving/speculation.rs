//! Speculation changes nothing but speed: with any drafter, any length and any tree, each request gives
//! what it gives without.
//!
//! Neighbours: `scripted.rs` drafts the worst and the best; `workload.rs` has requests of every kind.

#![expect(
    clippy::print_stdout,
    reason = "how much was accepted is part of what is shown"
)]

use forerun_engine::{
    EngineConfig, Request, SamplingParams, SpecMethod, SpeculationParams, StopParams, TokenId,
    Verification,
};
use forerun_models::devices::DeviceChoice;
use forerun_models::model::LoadedModel;

use crate::models::{load, load_with_draft, tiny, tiny_gguf};
use crate::run::{Run, run, run_drafted};
use crate::scripted::{Script, ScriptedDrafter};
use crate::workload::{mixed, tokens};

const SCRIPTS: [Script; 4] = [Script::Right, Script::Wrong, Script::Mixed, Script::Tree];

/// Tiny models of every kind that loads: windows, soft caps, tied and untied heads.
const MODELS: [&str; 8] = [
    "llama",
    "llama_tied_rope3",
    "llama_yarn",
    "llama_deep",
    "llama_bias",
    "gemma3_linear",
    "gemma3",
    "gemma3_p6",
];

fn config(model: &LoadedModel, num_seqs: usize, num_drafts: u32) -> EngineConfig {
    let mut config = model.engine_config(64, num_seqs);
    config.speculation.num_tokens_max = num_drafts;
    config
}

fn run_with(
    model: &mut LoadedModel,
    (num_seqs, num_drafts): (usize, u32),
    requests: &[Request],
) -> Run {
    let config = config(model, num_seqs, num_drafts);
    run(&mut model.runner, &config, requests)
}

fn with(requests: &[Request], speculation: SpeculationParams) -> Vec<Request> {
    let one = |request: &Request| Request {
        speculation,
        ..request.clone()
    };
    requests.iter().map(one).collect()
}

fn method(method: SpecMethod) -> SpeculationParams {
    SpeculationParams {
        method: Some(method),
        ..SpeculationParams::default()
    }
}

fn fixed(name: SpecMethod, num_tokens: u32) -> SpeculationParams {
    SpeculationParams {
        num_tokens: Some(num_tokens),
        ..method(name)
    }
}

/// Those that run no more sequences at once.
fn that_fit(requests: &[Request], num_seqs: usize) -> Vec<Request> {
    let fits = |request: &&Request| request.output.width() <= num_seqs;
    requests.iter().filter(fits).cloned().collect()
}

/// Prompts with everything that followed.
fn answers(requests: &[Request], plain: &Run) -> Vec<Vec<TokenId>> {
    let pairs = requests.iter().zip(&plain.outputs);
    let of = |(request, output): (&Request, &crate::run::Output)| {
        let samples = output.samples.values();
        samples
            .map(|sample| {
                let mut tokens = request.prompt.clone();
                tokens.extend(sample.tokens.iter().map(|&id| TokenId(id)));
                tokens
            })
            .collect::<Vec<_>>()
    };
    pairs.flat_map(of).collect()
}

fn num_accepted(run: &Run) -> u64 {
    let reports = run.speculation.iter();
    reports.map(|report| report.accepted_tokens).sum()
}

fn assert_same(plain: &Run, drafted: &Run, what: &str) {
    for (index, (a, b)) in plain.outputs.iter().zip(&drafted.outputs).enumerate() {
        assert_eq!(a, b, "{what}: request {index}");
    }
}

/// Greedy and drawn, with top-p, penalties, biases, log-probabilities, several samples and beams.
#[test]
fn no_draft_changes_what_a_tiny_model_says_on_the_cpu() {
    for name in MODELS {
        let mut model = load(&tiny(name), DeviceChoice::Cpu);
        let vocab_size = model.config.vocab_size;
        let all = mixed(vocab_size, 24);
        for num_seqs in [1, 8] {
            let requests = that_fit(&all, num_seqs);
            let off = config(&model, num_seqs, 8);
            let plain = run(&mut model.runner, &off, &requests);
            for script in SCRIPTS {
                for num_drafts in [1, 3, 8] {
                    let config = config(&model, num_seqs, num_drafts);
                    let drafter = ScriptedDrafter {
                        script,
                        answers: answers(&requests, &plain),
                        vocab_size,
                    };
                    let requests = with(&requests, method(SpecMethod::Custom));
                    let drafted = run_drafted(
                        &mut model.runner,
                        &config,
                        &requests,
                        Some(Box::new(drafter)),
                    );
                    let what =
                        format!("{name}, {script:?}, {num_drafts} drafts, {num_seqs} at once");
                    assert_same(&plain, &drafted, &what);
                    let accepted = num_accepted(&drafted);
                    assert!(
                        accepted > 50 || script == Script::Wrong,
                        "{what}: {accepted}"
                    );
                }
            }
        }
    }
}

#[test]
fn drafters_of_the_engine_change_nothing_either() {
    for name in ["llama", "gemma3"] {
        let mut model = load(&tiny(name), DeviceChoice::Cpu);
        model.runner.set_draft_layers(1);
        let requests = mixed(model.config.vocab_size, 24);
        let plain = run_with(&mut model, (8, 8), &requests);
        let methods = [
            SpecMethod::Ngram,
            SpecMethod::Suffix,
            SpecMethod::Auto,
            SpecMethod::LayerSkip,
        ];
        for by in methods {
            for width in [1, 3] {
                let mut config = config(&model, 8, 8);
                config.speculation.width_max = width;
                config.speculation.ngram_len_min = 1;
                for speculation in [method(by), fixed(by, 4)] {
                    let requests = with(&requests, speculation);
                    let drafted = run(&mut model.runner, &config, &requests);
                    assert_same(
                        &plain,
                        &drafted,
                        &format!("{name}, {speculation:?}, {width}"),
                    );
                }
            }
        }
    }
}

/// The target's layers, all of them, guess what the target says.
#[test]
fn all_layers_of_the_target_draft_what_it_says() {
    let mut model = load(&tiny("llama"), DeviceChoice::Cpu);
    let num_layers = model.runner.decoder().num_layers();
    model.runner.set_draft_layers(num_layers);
    let requests = greedy_requests(model.config.vocab_size);
    let plain = run_with(&mut model, (4, 8), &requests);
    let requests = with(&requests, fixed(SpecMethod::LayerSkip, 4));
    let drafted = run_with(&mut model, (4, 8), &requests);
    assert_same(&plain, &drafted, "all layers");
    for report in &drafted.speculation {
        assert_eq!(report.accepted_tokens, report.draft_tokens, "{report:?}");
        assert!(report.drafts > 0);
    }
}

fn greedy_requests(vocab_size: usize) -> Vec<Request> {
    let request = |i: u64| Request {
        prompt: tokens(500 + i, 5 + 9 * i as usize, vocab_size),
        stop: StopParams {
            max_tokens: Some(30),
            ignore_eos: true,
            ..StopParams::default()
        },
        sampling: SamplingParams {
            temperature: if i.is_multiple_of(2) { 0.0 } else { 0.8 },
            top_p: 0.9,
            seed: i,
            ..SamplingParams::default()
        },
        ..Request::default()
    };
    (0..6).map(request).collect()
}

/// A copy of the target guesses everything, a quantised one most of it, and neither changes anything;
/// its pool is empty at the end of each request, however many there were.
#[test]
fn a_draft_model_catches_up_and_its_pool_empties() {
    let drafts = [
        (tiny("llama"), 1.0),
        (tiny_gguf("llama-q8_0.gguf"), 0.5),
        (tiny_gguf("llama-q4_0.gguf"), 0.1),
    ];
    for (draft, least) in drafts {
        let mut model = load_with_draft(&tiny("llama"), &draft);
        let all = mixed(model.config.vocab_size, 24);
        for num_seqs in [1, 8] {
            let requests = that_fit(&all, num_seqs);
            let off = config(&model, num_seqs, 4);
            let plain = run(&mut model.runner, &off, &requests);
            let speculation = fixed(SpecMethod::DraftModel, 4);
            let drafted = run(&mut model.runner, &off, &with(&requests, speculation));
            assert_same(&plain, &drafted, "a draft model");
            let of = |count: fn(&forerun_engine::SpeculationReport) -> u64| -> u64 {
                drafted.speculation.iter().map(count).sum()
            };
            let accepted = of(|report| report.accepted_tokens) as f64;
            let share = accepted / of(|report| report.draft_tokens) as f64;
            println!("{}: {share:.3} accepted", draft.display());
            assert!(share >= least * 0.97, "{share}");
            assert_eq!(of(|report| report.failures), 0);
        }
    }
}

/// What is drawn without a promise about its noise still comes to its end, of the right length.
#[test]
fn rejection_and_block_verification_run_with_every_drafter() {
    let mut model = load_with_draft(&tiny("llama"), &tiny_gguf("llama-q8_0.gguf"));
    let requests = greedy_requests(model.config.vocab_size);
    let plain = run_with(&mut model, (4, 4), &requests);
    for verification in [Verification::Rejection, Verification::Block] {
        for by in [
            SpecMethod::DraftModel,
            SpecMethod::Ngram,
            SpecMethod::Suffix,
        ] {
            let speculation = SpeculationParams {
                verification,
                ..fixed(by, 4)
            };
            let requests = with(&requests, speculation);
            let drafted = run_with(&mut model, (4, 4), &requests);
            for (index, output) in drafted.outputs.iter().enumerate() {
                assert_eq!(output.samples[&0].tokens.len(), 30);
                if requests[index].sampling.is_greedy() {
                    assert_eq!(output, &plain.outputs[index], "greedy has no choice");
                }
            }
            if by == SpecMethod::DraftModel {
                assert!(num_accepted(&drafted) > 20);
            }
        }
    }
}

/// On a device tokens may differ where two are nearly equal; the tiny models' margins are wide. With two
/// steps in flight those without drafts overlap, those with wait for their verdicts.
#[test]
fn no_draft_changes_what_a_tiny_model_says_on_wgpu() {
    for name in ["llama", "gemma3"] {
        let mut model = load(&tiny(name), DeviceChoice::Wgpu(None));
        let vocab_size = model.config.vocab_size;
        let requests: Vec<_> = mixed(vocab_size, 12).into_iter().take(12).collect();
        model.runner.set_steps_in_flight_max(1);
        let plain = run_with(&mut model, (4, 6), &requests);
        for (depth, script) in [(1, Script::Mixed), (2, Script::Tree)] {
            model.runner.set_steps_in_flight_max(depth);
            {
                let drafter = ScriptedDrafter {
                    script,
                    answers: answers(&requests, &plain),
                    vocab_size,
                };
                let drafted: Vec<_> = requests
                    .iter()
                    .enumerate()
                    .map(|(index, request)| Request {
                        // Some are not drafted for, so that steps overlap.
                        speculation: method(if index % 3 == 0 {
                            SpecMethod::Off
                        } else {
                            SpecMethod::Custom
                        }),
                        ..request.clone()
                    })
                    .collect();
                let config = config(&model, 4, 6);
                let run = run_drafted(
                    &mut model.runner,
                    &config,
                    &drafted,
                    Some(Box::new(drafter)),
                );
                for (index, (a, b)) in plain.outputs.iter().zip(&run.outputs).enumerate() {
                    for (sample, found) in &b.samples {
                        let expected = &a.samples[sample].tokens;
                        let same = expected
                            .iter()
                            .zip(&found.tokens)
                            .take_while(|(a, b)| a == b);
                        let same = same.count();
                        println!("{name} {script:?} {depth}: request {index}, {same} equal");
                        assert_eq!(&found.tokens, expected, "{name}, {script:?}, {index}");
                    }
                }
                assert!(num_accepted(&run) > 10);
            }
        }
    }
}
