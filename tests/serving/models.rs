//! The models of these tests.

use std::path::{Path, PathBuf};

use forerun_models::devices::{self, DeviceChoice};
use forerun_models::draft_model;
use forerun_models::model::{LoadOptions, LoadedModel, ModelFiles};

/// A tiny model of the fixtures.
pub(crate) fn tiny(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("fixtures/tiny").join(name)
}

/// A model on a device, with blocks of 8 tokens.
pub(crate) fn load(path: &Path, device: DeviceChoice) -> LoadedModel {
    let entry = devices::open(device).unwrap_or_else(|error| panic!("{error}"));
    let files = ModelFiles::open(path).unwrap_or_else(|error| panic!("{error}"));
    let options = LoadOptions {
        block_size: 8,
        kv_memory_bytes: Some(256 << 20),
        ..LoadOptions::new(entry.device().clone())
    };
    files
        .load(&options)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A tiny model in a GGUF file.
pub(crate) fn tiny_gguf(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("fixtures/tiny_gguf").join(file)
}

/// A model on the processor, and another that drafts for it.
pub(crate) fn load_with_draft(target: &Path, draft: &Path) -> LoadedModel {
    let entry = devices::open(DeviceChoice::Cpu).unwrap_or_else(|error| panic!("{error}"));
    let open = |path: &Path| ModelFiles::open(path).unwrap_or_else(|error| panic!("{error}"));
    let options = LoadOptions {
        block_size: 8,
        kv_memory_bytes: Some(64 << 20),
        ..LoadOptions::new(entry.device().clone())
    };
    draft_model::load(&open(target), &open(draft), &options)
        .unwrap_or_else(|error| panic!("{error}"))
}
