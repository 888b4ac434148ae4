//! Tiny models with random weights, in every layout and with every feature of the Llama and
//! Gemma 3 families, against transformers.

use std::path::PathBuf;

use forerun_models::devices::DeviceChoice;
use forerun_models::model::ActivationMode;

use crate::fixtures::{self, Golden};
use crate::session::{Chunk, Session};

/// Two float32 paths of the reference differ by up to 7e-5.
const LOGIT_TOLERANCE: f32 = 1e-3;

const FOLDERS: [&str; 11] = [
    "llama",
    "llama_bf16",
    "llama_f16",
    "llama_sharded",
    "llama_tied_rope3",
    "llama_yarn",
    "llama_bias",
    "llama_deep",
    "gemma3",
    "gemma3_linear",
    "gemma3_p6",
];

const GGUF_FILES: [&str; 7] = [
    "llama-f32",
    "llama-f16",
    "llama-bf16",
    "llama-q8_0",
    "llama-q4_0",
    "llama-mixed",
    "gemma3_p6-f16",
];

fn folder(name: &str) -> PathBuf {
    fixtures::root().join("tiny").join(name)
}

fn gguf(name: &str) -> PathBuf {
    fixtures::root()
        .join("tiny_gguf")
        .join(format!("{name}.gguf"))
}

/// Every model with its goldens.
fn models() -> Vec<(String, PathBuf, Vec<Golden>)> {
    let folders = FOLDERS.iter().map(|name| {
        let path = folder(name);
        let goldens = fixtures::goldens(&path.join("goldens.safetensors"));
        (format!("tiny/{name}"), path, goldens)
    });
    let files = GGUF_FILES.iter().map(|name| {
        let goldens = gguf(name).with_extension("goldens.safetensors");
        (
            format!("tiny_gguf/{name}"),
            gguf(name),
            fixtures::goldens(&goldens),
        )
    });
    folders.chain(files).collect()
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let worst = found
        .iter()
        .zip(expected)
        .map(|(found, expected)| (found - expected).abs())
        .fold(0.0, f32::max);
    assert!(
        worst <= LOGIT_TOLERANCE,
        "{what}: largest difference {worst}"
    );
}

fn check_model(name: &str, session: &mut Session, goldens: &[Golden]) {
    for (prompt, golden) in goldens.iter().enumerate() {
        let what = format!("{name} p{prompt}");
        session.reset();
        let (tokens, logits) = session.greedy(0, &golden.ids, golden.greedy_ids.len());
        assert_close(
            &logits[0],
            &golden.logits_last,
            &format!("{what} logits_last"),
        );
        assert_eq!(tokens, golden.greedy_ids, "{what} greedy ids");
        if let Some(expected) = &golden.logits_all {
            session.reset();
            let rows = session
                .all_logits(0, &golden.ids, golden.ids.len())
                .concat();
            assert_close(&rows, expected, &format!("{what} logits_all"));
        }
        if let Some(expected) = &golden.hidden_states {
            let states = session.hidden_states(&golden.ids).concat();
            assert_close(&states, expected, &format!("{what} hidden_states"));
        }
    }
}

fn check_all(device: DeviceChoice) {
    for (name, path, goldens) in models() {
        assert_eq!(goldens.len(), 3, "{name} has three prompts");
        let mut session = Session::open(&path, device, ActivationMode::F32);
        check_model(&name, &mut session, &goldens);
        println!("{device} {name}: ok");
    }
}

#[test]
fn tiny_models_match_the_reference_on_the_cpu() {
    check_all(DeviceChoice::Cpu);
}

#[test]
fn tiny_models_match_the_reference_on_wgpu() {
    check_all(DeviceChoice::Wgpu(None));
}

#[test]
fn chunks_and_batch_mates_change_no_bit_on_the_cpu() {
    for (name, path, goldens) in models() {
        let mut session = Session::open(&path, DeviceChoice::Cpu, ActivationMode::Int8);
        let ids = &goldens[2].ids;
        let mate = &goldens[1].ids;
        let whole = session.all_logits(0, ids, ids.len());
        for chunk_len in [1, 3, 8, 17] {
            session.reset();
            let chunked = session.all_logits(1, ids, chunk_len);
            assert_eq!(
                bits(&chunked),
                bits(&whole),
                "{name} in chunks of {chunk_len}"
            );
        }
        session.reset();
        let mut batched = Vec::new();
        for (index, ids) in ids.chunks(5).enumerate() {
            let mate_id = [mate[index % mate.len()]];
            let (rows, _) = session.step(&[
                Chunk {
                    seq: 2,
                    ids: &mate_id,
                    all_rows: true,
                },
                Chunk {
                    seq: 0,
                    ids,
                    all_rows: true,
                },
                Chunk {
                    seq: 3,
                    ids: mate,
                    all_rows: false,
                },
            ]);
            batched.extend_from_slice(&rows[1..=ids.len()]);
        }
        assert_eq!(bits(&batched), bits(&whole), "{name} with batch mates");
    }
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter()
        .map(|row| row.iter().map(|value| value.to_bits()).collect())
        .collect()
}

#[test]
fn a_prompt_in_chunks_among_others_gives_the_same_ids_on_wgpu() {
    for name in ["llama", "gemma3"] {
        let path = folder(name);
        let goldens = fixtures::goldens(&path.join("goldens.safetensors"));
        let mut session = Session::open(&path, DeviceChoice::Wgpu(None), ActivationMode::F32);
        let (ids, mate) = (&goldens[2].ids, &goldens[1].ids);
        let mut last = Vec::new();
        for (index, ids) in ids.chunks(7).enumerate() {
            let mate_id = [mate[index]];
            let (rows, _) = session.step(&[
                Chunk {
                    seq: 1,
                    ids: &mate_id,
                    all_rows: false,
                },
                Chunk {
                    seq: 0,
                    ids,
                    all_rows: false,
                },
            ]);
            last.clone_from(&rows[1]);
        }
        assert_close(&last, &goldens[2].logits_last, name);
    }
}

#[test]
fn a_step_uploads_once_and_downloads_once_under_a_kilobyte_per_sequence() {
    let goldens = fixtures::goldens(&folder("llama").join("goldens.safetensors"));
    for device in [DeviceChoice::Cpu, DeviceChoice::Wgpu(None)] {
        let mut session = Session::open(&folder("llama"), device, ActivationMode::Int8);
        for seq in 0..3 {
            session.last_logits(seq, &goldens[1].ids);
        }
        let counts = session.runner().transfer_counts();
        assert_eq!(
            (counts.steps, counts.uploads, counts.downloads),
            (3, 3, 3),
            "{device}"
        );
        assert!(
            counts.download_bytes < 3 * 1024,
            "{device}: {} bytes",
            counts.download_bytes
        );
    }
}

#[test]
fn kv_pools_are_written_in_place() {
    let goldens = fixtures::goldens(&folder("llama").join("goldens.safetensors"));
    for device in [DeviceChoice::Cpu, DeviceChoice::Wgpu(None)] {
        let mut session = Session::open(&folder("llama"), device, ActivationMode::Int8);
        session.last_logits(0, &goldens[1].ids);
        let before = forerun_kernels::copies::so_far();
        session.greedy(1, &goldens[2].ids, 4);
        let copies = forerun_kernels::copies::so_far() - before;
        assert_eq!(
            copies, 0,
            "{device}: a tensor that was to change in place was copied"
        );
    }
}
