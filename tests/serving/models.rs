//! The models of these tests.

use std::path::{Path, PathBuf};

use forerun_models::devices::{self, DeviceChoice};
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
