//! From a path to a model that runs: opens the files, plans memory, packs weights.
//!
//! Neighbours: [`crate::loaders`] and [`crate::config`] read the files, [`crate::memory_plan`]
//! decides sizes, [`crate::decoder_weights`] builds the decoder, [`crate::text`] the tokenizer.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
pub use forerun_kernels::WeightFormat;
pub use forerun_kernels::spec::ActivationMode;
use forerun_kernels::{DeviceLimits, KvSpec, PackError};
use thiserror::Error;

use crate::config::{self, ConfigError, ModelConfig};
use crate::decoder::Decoder;
use crate::decoder_weights::{self, WeightSource};
use crate::draft_model::{DraftModelError, DraftModelInfo};
use crate::free_memory;
use crate::loaders::{self, Checkpoint, GgufFile, LoadError, SafetensorsModel};
use crate::memory_plan::{self, MemoryPlan, PlanError, PlanRequest};
use crate::runner::{ModelRunner, RowPadding, RunnerParts};
use crate::text::{TextError, Tokenizer};

/// Default KV memory on the processor and on a GPU: enough for a long sequence of a small model.
const KV_DEFAULT_BYTES_MAX: u64 = 1 << 30;

/// Why a model cannot be loaded.
#[derive(Debug, Error)]
pub enum ModelError {
    /// About a weight file.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// About the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// About memory.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// About the tokenizer.
    #[error(transparent)]
    Text(#[from] TextError),
    /// About a draft model.
    #[error(transparent)]
    Draft(#[from] DraftModelError),
    /// A weight cannot be packed for the device.
    #[error("tensor `{tensor}` cannot be packed: {source}")]
    Pack {
        /// The first of the tensors that were to be packed together.
        tensor: String,
        /// Reason.
        source: PackError,
    },
}

/// How to load a model.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where weights and KV cache go.
    pub device: Device,
    /// Format for unquantised matrices; `None` keeps the file's.
    pub dense_format: Option<WeightFormat>,
    /// How native products treat activations.
    pub activations: ActivationMode,
    /// Memory for the KV cache, in bytes; `None`: what one longest sequence needs, within limits.
    pub kv_memory_bytes: Option<u64>,
    /// Tokens per KV block: a power of two up to 256.
    pub block_size: usize,
}

impl LoadOptions {
    /// Defaults on `device`.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            dense_format: None,
            activations: ActivationMode::default(),
            kv_memory_bytes: None,
            block_size: 16,
        }
    }
}

/// A model's files, opened but not loaded.
pub struct ModelFiles {
    path: PathBuf,
    config: ModelConfig,
    weights: Weights,
}

enum Weights {
    Gguf(GgufFile),
    Folder(SafetensorsModel),
}

/// A model that is ready to run.
#[derive(Debug)]
pub struct LoadedModel {
    /// Its configuration.
    pub config: ModelConfig,
    /// Its memory.
    pub plan: MemoryPlan,
    /// Runs it.
    pub runner: ModelRunner,
    /// What drafts for it, if a model does.
    pub draft_model: Option<DraftModelInfo>,
}

impl ModelFiles {
    /// Opens a `.gguf` file or a folder with `config.json` and safetensors. Reads metadata only.
    ///
    /// # Errors
    /// [`ModelError`] naming what is wrong with which file.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let (config, weights) = if path.is_dir() {
            let config = config::hf::load(path)?;
            (config, Weights::Folder(SafetensorsModel::open(path)?))
        } else {
            let file = GgufFile::open(path)?;
            (config::gguf::load(&file)?, Weights::Gguf(file))
        };
        Ok(Self {
            path: path.to_path_buf(),
            config,
            weights,
        })
    }

    /// A short name: that of the file or folder.
    pub fn name(&self) -> String {
        let name = if self.path.is_dir() {
            self.path.file_name()
        } else {
            self.path.file_stem()
        };
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// The configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`ModelError::Text`].
    pub fn tokenizer(&self) -> Result<Tokenizer, ModelError> {
        let tokenizer = match &self.weights {
            Weights::Gguf(file) => Tokenizer::from_gguf(file)?,
            Weights::Folder(_) => Tokenizer::from_hf_folder(&self.path)?,
        };
        Ok(tokenizer)
    }

    /// How much memory the model would take.
    ///
    /// # Errors
    /// [`PlanError`] if it cannot fit.
    pub fn plan(&self, options: &LoadOptions) -> Result<MemoryPlan, PlanError> {
        let limits = DeviceLimits::of(&options.device);
        memory_plan::plan(&PlanRequest {
            weight_bytes: self.file_bytes(),
            kv_specs: &decoder_weights::kv_specs(&self.config, options.block_size),
            windows: &self.config.kv_windows(),
            max_seq_len: self.config.max_seq_len,
            kv_memory_bytes: options.kv_memory_bytes,
            kv_default_bytes_max: self.kv_default_bytes_max(limits.is_native),
            binding_bytes_max: limits.binding_bytes_max,
        })
    }

    /// The default KV memory is at most a gibibyte, and on the processor what the machine can spare
    /// beside the weights, less a fifth for everything else.
    fn kv_default_bytes_max(&self, is_native: bool) -> u64 {
        let available = is_native.then(free_memory::available_bytes).flatten();
        let spare = available.map(|bytes| (bytes / 5 * 4).saturating_sub(self.file_bytes()));
        spare.map_or(KV_DEFAULT_BYTES_MAX, |bytes| {
            bytes.min(KV_DEFAULT_BYTES_MAX)
        })
    }

    /// Plans memory, then reads and packs every weight and allocates the KV cache.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn load(&self, options: &LoadOptions) -> Result<LoadedModel, ModelError> {
        let plan = self.plan(options)?;
        let limits = DeviceLimits::of(&options.device);
        let decoder = self.decoder(options)?;
        let runner = ModelRunner::new(RunnerParts {
            decoder,
            device: options.device.clone(),
            kv_specs: self.kv_specs(options),
            num_blocks: plan.groups.iter().map(|group| group.num_blocks).collect(),
            vocab_size: self.config.vocab_size,
            padding: if limits.is_native {
                RowPadding::Exact
            } else {
                RowPadding::PowersOfTwo
            },
            steps_in_flight_max: if limits.is_native { 1 } else { 2 },
        });
        Ok(LoadedModel {
            config: self.config.clone(),
            plan,
            runner,
            draft_model: None,
        })
    }

    /// Reads and packs every weight.
    pub(crate) fn decoder(&self, options: &LoadOptions) -> Result<Decoder, ModelError> {
        let checkpoint = self.checkpoint();
        let source = WeightSource {
            checkpoint,
            config: &self.config,
            device: &options.device,
            dense_format: options.dense_format,
            activations: options.activations,
            block_size: options.block_size,
        };
        let decoder = source.decoder()?;
        let names = self.config.names();
        loaders::check_all_read(checkpoint, |name| names.is_ignorable(name))?;
        Ok(decoder)
    }

    /// How each layer keeps keys and values.
    pub(crate) fn kv_specs(&self, options: &LoadOptions) -> Vec<KvSpec> {
        decoder_weights::kv_specs(&self.config, options.block_size)
    }

    /// Bytes that a token takes in the KV pools of all layers.
    pub(crate) fn kv_token_bytes(&self, options: &LoadOptions) -> u64 {
        memory_plan::token_bytes(&self.kv_specs(options))
    }

    fn checkpoint(&self) -> &dyn Checkpoint {
        match &self.weights {
            Weights::Gguf(file) => file,
            Weights::Folder(model) => model,
        }
    }

    /// Bytes of the weight files, which packing keeps.
    fn file_bytes(&self) -> u64 {
        let len = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
        match std::fs::read_dir(&self.path) {
            Ok(entries) => entries
                .filter_map(Result::ok)
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|end| end == "safetensors"))
                .map(|path| len(&path))
                .sum(),
            Err(_) => len(&self.path),
        }
    }
}
