//! Reading the reference data under `tests/fixtures` (see the README there).

use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

/// The folder of all fixtures.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// One prompt of a tiny model and what the reference computed from it.
#[derive(Debug)]
pub(crate) struct Golden {
    pub(crate) ids: Vec<u32>,
    /// `[V]`, the logits after the whole prompt.
    pub(crate) logits_last: Vec<f32>,
    /// `[T, V]`, for one prompt of each model.
    pub(crate) logits_all: Option<Vec<f32>>,
    pub(crate) greedy_ids: Vec<u32>,
    /// `[layers + 1, T, M]`, for one prompt of each model.
    pub(crate) hidden_states: Option<Vec<f32>>,
}

/// The goldens in a `goldens.safetensors` file.
pub(crate) fn goldens(file: &Path) -> Vec<Golden> {
    let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let tensors = SafeTensors::deserialize(&bytes).expect("a golden file is valid");
    (0..)
        .map_while(|prompt| {
            let name = |suffix: &str| format!("p{prompt}.{suffix}");
            Some(Golden {
                ids: ids(&tensors, &name("ids"))?,
                logits_last: floats(&tensors, &name("logits_last"))?,
                logits_all: floats(&tensors, &name("logits_all")),
                greedy_ids: ids(&tensors, &name("greedy_ids"))?,
                hidden_states: floats(&tensors, &name("hidden_states")),
            })
        })
        .collect()
}

fn ids(tensors: &SafeTensors<'_>, name: &str) -> Option<Vec<u32>> {
    let tensor = tensors.tensor(name).ok()?;
    assert_eq!(tensor.dtype(), Dtype::I64, "{name}");
    let ids = tensor.data().chunks_exact(8).map(|bytes| {
        i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
            .try_into()
            .expect("a token id is small")
    });
    Some(ids.collect())
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> Option<Vec<f32>> {
    let tensor = tensors.tensor(name).ok()?;
    assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
    let values = tensor
        .data()
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    Some(values.collect())
}

/// A real model's goldens (`real/<model>_model.json`).
#[derive(Debug, Deserialize)]
pub(crate) struct RealGoldens {
    pub(crate) prompts: Vec<RealPrompt>,
}

/// One prompt of a real model.
#[derive(Debug, Deserialize)]
pub(crate) struct RealPrompt {
    pub(crate) name: String,
    pub(crate) ids: Vec<u32>,
    /// Entry i is the log-probability of `ids[i]` given `ids[..i]`; the first is null.
    pub(crate) prompt_logprobs: Vec<Option<f32>>,
    pub(crate) greedy_ids: Vec<u32>,
    pub(crate) greedy_steps: Vec<GreedyStep>,
}

/// One greedy step of a real model.
#[derive(Debug, Deserialize)]
pub(crate) struct GreedyStep {
    /// Best minus second-best logit.
    pub(crate) margin: f32,
    /// Token and log-probability.
    pub(crate) top5: Vec<(u32, f32)>,
}

/// The goldens of a real model.
pub(crate) fn real(model: &str) -> RealGoldens {
    let file = root().join(format!("real/{model}_model.json"));
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).expect("a golden file is valid")
}
