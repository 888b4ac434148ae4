//! Where the real models of tests lie: `cargo xtask setup` brings them.

use std::path::PathBuf;

/// SmolLM2-135M-Instruct, Llama architecture.
pub const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Gemma 3 270M, base model.
pub const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

/// The path of a model file in the cache.
///
/// # Panics
/// If it is not there.
pub fn path(file: &str) -> PathBuf {
    let home = std::env::var_os("FORERUN_HOME").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(|dir| PathBuf::from(dir).join("forerun"));
    let user = std::env::var_os("HOME").map(|dir| PathBuf::from(dir).join(".cache/forerun"));
    let root = home
        .or(cache)
        .or(user)
        .expect("one of FORERUN_HOME, XDG_CACHE_HOME, HOME");
    let path = root.join("models").join(file);
    assert!(
        path.is_file(),
        "{} is missing: run `cargo xtask setup`",
        path.display()
    );
    path
}
