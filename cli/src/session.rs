//! A model that is loaded, ready for an engine: what `generate`, `batch` and `bench` begin with.
//!
//! Neighbours: `args/` says which model and how; `model_source.rs` finds it; `driver/` runs it.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use forerun_engine::{EngineConfig, TokenId};
use forerun_models::devices::{self, DeviceEntry, DeviceHardware};
use forerun_models::draft_model;
use forerun_models::grammar::{CompileQueue, CompiledGrammar, GrammarCompiler, GrammarSource};
use forerun_models::memory_plan::mebibytes;
use forerun_models::model::{LoadOptions, LoadedModel, ModelFiles};
use forerun_models::text::Tokenizer;

use crate::args::{EngineArgs, MessageArgs, ModelArgs};
use crate::codec::TokenizerCodec;
use crate::driver::{Compiled, GrammarQueue};
use crate::model_source;
use crate::speculation::Settings;

/// Of so many layers of the target one drafts, with layer skip.
const LAYERS_PER_DRAFT_LAYER: usize = 3;

/// Compiled grammars that are remembered.
const GRAMMARS_CACHED_MAX: usize = 64;

/// How much is said on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Nothing but errors.
    Quiet,
    /// What runs where.
    Normal,
    /// And how memory is used.
    Verbose,
}

impl From<MessageArgs> for Verbosity {
    fn from(args: MessageArgs) -> Self {
        match (args.quiet, args.verbose) {
            (true, _) => Self::Quiet,
            (false, false) => Self::Normal,
            (false, true) => Self::Verbose,
        }
    }
}

/// A loaded model with its tokenizer.
pub(crate) struct Session {
    /// The model's name.
    pub(crate) name: String,
    /// Where it runs.
    pub(crate) device: String,
    pub(crate) loaded: LoadedModel,
    pub(crate) tokenizer: Tokenizer,
}

impl Session {
    /// Finds, plans and loads the model that `args` name.
    pub(crate) fn open(args: &ModelArgs, verbosity: Verbosity) -> Result<Self> {
        Self::open_with(args, &Settings::default(), verbosity)
    }

    /// [`Self::open`], with the models that draft.
    pub(crate) fn open_with(
        args: &ModelArgs,
        speculation: &Settings,
        verbosity: Verbosity,
    ) -> Result<Self> {
        if let Some(threads) = args.threads {
            devices::set_cpu_threads(threads)?;
        }
        let path = model_source::resolve(&args.model, verbosity == Verbosity::Quiet)?;
        let files = ModelFiles::open(&path)?;
        let entry = devices::open(args.device)?;
        let tokenizer = files.tokenizer()?;
        let mut loaded = load(args, speculation, &files, &entry, verbosity)?;
        let eos_ids: Vec<u32> = tokenizer.eos_token_ids().iter().map(|id| id.0).collect();
        loaded.config.add_eos_ids(&eos_ids);
        let name = files.name();
        if verbosity != Verbosity::Quiet {
            eprintln!("{}", opening_line(&name, &entry, &loaded));
        }
        if verbosity == Verbosity::Verbose {
            eprint!("{}", memory_lines(&loaded));
        }
        Ok(Self {
            name,
            device: entry.id,
            loaded,
            tokenizer,
        })
    }

    /// The configuration of an engine for it that runs up to `num_seqs_max` sequences at once.
    pub(crate) fn engine_config(&self, args: EngineArgs, num_seqs_max: usize) -> EngineConfig {
        let mut config = self
            .loaded
            .engine_config(args.max_num_batched_tokens, num_seqs_max);
        config.prefix_cache.enabled = !args.no_prefix_cache;
        config
    }
}

/// Notes for the user, unless they want none.
pub(crate) fn show_notes(notes: &[String], verbosity: Verbosity) {
    if verbosity != Verbosity::Quiet {
        for note in notes {
            eprintln!("note: {note}");
        }
    }
}

/// A seed that differs from run to run.
pub(crate) fn new_seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
}

/// Loads the model, and what drafts for it.
fn load(
    args: &ModelArgs,
    speculation: &Settings,
    files: &ModelFiles,
    entry: &DeviceEntry,
    verbosity: Verbosity,
) -> Result<LoadedModel> {
    let options = load_options(args, entry);
    let mut loaded = match &speculation.model {
        Some(name) => {
            let path = model_source::resolve(name, verbosity == Verbosity::Quiet)?;
            draft_model::load(files, &ModelFiles::open(&path)?, &options)?
        }
        None => files.load(&options)?,
    };
    if speculation.wants_layers() {
        let num_layers = loaded.runner.decoder().num_layers();
        let asked = speculation.num_layers.map(|layers| layers as usize);
        if let Some(asked) = asked.filter(|&asked| asked > num_layers) {
            bail!("--spec-layers is {asked}, the model has {num_layers} layers");
        }
        let third = num_layers.div_ceil(LAYERS_PER_DRAFT_LAYER);
        loaded.runner.set_draft_layers(asked.unwrap_or(third));
    }
    Ok(loaded)
}

fn load_options(args: &ModelArgs, entry: &DeviceEntry) -> LoadOptions {
    LoadOptions {
        dense_format: args.dtype.format(),
        kv_memory_bytes: args.kv_memory,
        block_size: args.block_size,
        ..LoadOptions::new(entry.device().clone())
    }
}

fn opening_line(name: &str, entry: &DeviceEntry, loaded: &LoadedModel) -> String {
    let note = match entry.hardware {
        DeviceHardware::SoftwareGpu => " (a software GPU: slow)",
        DeviceHardware::Gpu | DeviceHardware::Processor => "",
    };
    let drafts = match &loaded.draft_model {
        Some(draft) => format!("; {} drafts: {}", draft.name, draft.plan),
        None => String::new(),
    };
    format!(
        "{name} on {} ({}){note}: {}{drafts}",
        entry.id, entry.name, loaded.plan
    )
}

/// The memory plan, a line per part.
fn memory_lines(loaded: &LoadedModel) -> String {
    let plan = &loaded.plan;
    let mut lines = format!("memory: weights {}\n", mebibytes(plan.weight_bytes));
    for (index, group) in plan.groups.iter().enumerate() {
        let window = group
            .window
            .map_or_else(String::new, |window| format!(", window {window} tokens"));
        // Writing to a text cannot fail.
        let _ = writeln!(
            lines,
            "memory: KV group {index}: {} layers{window}: {} blocks of {} tokens (1 of them null), \
             {} each, {} in all",
            group.num_layers,
            group.num_blocks,
            plan.block_size,
            kibibytes(group.block_bytes),
            mebibytes(group.bytes()),
        );
    }
    lines
}

fn kibibytes(bytes: u64) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}

/// Compiles grammars for a model. Starts with the first: to read the vocabulary takes up to a
/// second, which texts of free form need not wait for.
pub(crate) struct ModelGrammars<'a> {
    tokenizer: TokenizerCodec<'a>,
    vocab_size: usize,
    eos_token_ids: Vec<TokenId>,
    queue: Option<CompileQueue>,
    /// Could not even be submitted.
    failed: VecDeque<(u64, String)>,
}

impl<'a> ModelGrammars<'a> {
    pub(crate) fn new(tokenizer: &'a Tokenizer, config: &EngineConfig) -> Self {
        Self {
            tokenizer: TokenizerCodec(tokenizer),
            vocab_size: config.vocab_size,
            eos_token_ids: config.eos_token_ids.clone(),
            queue: None,
            failed: VecDeque::new(),
        }
    }

    fn queue(&mut self) -> Result<&CompileQueue> {
        if self.queue.is_none() {
            let compiler =
                GrammarCompiler::new(&self.tokenizer, self.vocab_size, &self.eos_token_ids)?;
            self.queue = Some(CompileQueue::start(compiler, GRAMMARS_CACHED_MAX)?);
        }
        Ok(self.queue.as_ref().expect("it was just made"))
    }

    fn failed(&mut self) -> Option<(u64, Compiled)> {
        let (ticket, message) = self.failed.pop_front()?;
        Some((ticket, Err(message)))
    }
}

fn with_message((ticket, grammar): (u64, CompiledGrammar)) -> (u64, Compiled) {
    (ticket, grammar.map_err(|error| error.to_string()))
}

impl GrammarQueue for ModelGrammars<'_> {
    fn submit(&mut self, ticket: u64, source: GrammarSource) {
        match self.queue() {
            Ok(queue) => queue.submit(ticket, source),
            Err(error) => self.failed.push_back((ticket, format!("{error:#}"))),
        }
    }

    fn try_finished(&mut self) -> Option<(u64, Compiled)> {
        self.failed()
            .or_else(|| Some(with_message(self.queue.as_ref()?.try_finished()?)))
    }

    fn wait_finished(&mut self, timeout: Duration) -> Option<(u64, Compiled)> {
        self.failed()
            .or_else(|| Some(with_message(self.queue.as_ref()?.wait_finished(timeout)?)))
    }
}
