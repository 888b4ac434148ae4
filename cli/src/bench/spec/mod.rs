//! `forerun bench spec`: speculation off and on, in turn, per drafter, temperature and class of prompts.
//!
//! ```text
//! prompts.rs   texts by class
//! runner.rs    runs them off and on
//! numbers.rs   what came of it
//! tables.rs    as sections
//! ```
//!
//! Every drafter gets an engine of its own and every request a tenant of its own: what a drafter knows
//! of a text is the text. What an engine has learnt of when drafts pay it keeps from run to run, as it
//! does for users.
//!
//! Neighbours: `args/bench.rs` has the flags; `report.rs` and `html.rs` of the benches show sections.

mod numbers;
mod prompts;
mod runner;
mod tables;
#[cfg(test)]
mod tests;

use std::io::Write;

use anyhow::{Result, bail};
use clap::ValueEnum;
use forerun_engine::{EngineConfig, Executor, TokenId};
use forerun_models::grammar::GrammarSource;
use forerun_models::text::{GenerationPrompt, Message, TemplateError, TextError};

use self::prompts::Prompt;
use self::runner::{Group, Job, Lab, Setup};
use super::report::Section;
use super::{NUM_SEQS_MAX, STEP_TOKENS_MAX};
use crate::args::{EngineArgs, MethodArg, SpecBenchArgs};
use crate::codec::{Codec, TokenizerCodec};
use crate::driver::GrammarQueue;
use crate::session::{self, ModelGrammars, Session, Verbosity};
use crate::speculation::Settings;

/// Runs the command and prints its tables to `out`.
pub(super) fn run(args: &SpecBenchArgs, out: &mut impl Write) -> Result<()> {
    let verbosity = Verbosity::from(args.common.messages);
    let (settings, notes) = settings(args)?;
    session::show_notes(&notes, verbosity);
    let prompts = chosen_prompts(args)?;
    let session = Session::open_with(&args.common.model, &settings, verbosity)?;
    let engine = EngineArgs {
        max_num_batched_tokens: STEP_TOKENS_MAX,
        no_prefix_cache: false,
    };
    let num_seqs_max = args.concurrent.map_or(0, |count| count as usize);
    let mut config = session.engine_config(engine, num_seqs_max.max(NUM_SEQS_MAX));
    settings.apply(&mut config.speculation);
    let Session {
        name,
        device,
        mut loaded,
        tokenizer,
    } = session;
    let codec = TokenizerCodec(&tokenizer);
    let study = Study::new(args, settings, &prompts, (&codec, config))?;
    let grammars = |config: &EngineConfig| ModelGrammars::new(&tokenizer, config);
    let tell = |what: &str| {
        if verbosity != Verbosity::Quiet {
            eprintln!("{what}");
        }
    };
    let sections = study.run(&mut loaded.runner, (&codec, grammars), tell)?;
    let report = super::report("spec", &args.common, (&name, &device), sections);
    write!(out, "{report}")?;
    super::write_files(&args.common, &report)
}

/// What the flags say of speculation, with what the methods need.
fn settings(args: &SpecBenchArgs) -> Result<(Settings, Vec<String>)> {
    let (settings, notes) = Settings::of(&args.speculation)?;
    Ok((settings.for_methods(&args.methods)?, notes))
}

/// The prompts that are asked for.
fn chosen_prompts(args: &SpecBenchArgs) -> Result<Vec<Prompt>> {
    let mut prompts = match &args.prompts_dir {
        Some(dir) => prompts::of_dir(dir)?,
        None => prompts::shipped(),
    };
    let known = classes_of(&prompts);
    if let Some(unknown) = args.classes.iter().find(|class| !known.contains(class)) {
        bail!(
            "there is no class {unknown:?} of prompts; there are {}",
            known.join(", ")
        );
    }
    prompts.retain(|prompt| args.classes.is_empty() || args.classes.contains(&prompt.class));
    if args.common.quick {
        prompts.dedup_by(|second, first| second.class == first.class);
    }
    Ok(prompts)
}

/// Names in the order in which they first come.
fn classes_of(prompts: &[Prompt]) -> Vec<String> {
    let mut classes: Vec<String> = Vec::new();
    for prompt in prompts {
        if !classes.contains(&prompt.class) {
            classes.push(prompt.class.clone());
        }
    }
    classes
}

/// All that is to be measured.
struct Study {
    config: EngineConfig,
    methods: Vec<MethodArg>,
    temperatures: Vec<f32>,
    groups: Vec<Group>,
    setup: Setup,
    /// Whether requests run at once.
    at_once: bool,
}

impl Study {
    fn new(
        args: &SpecBenchArgs,
        settings: Settings,
        prompts: &[Prompt],
        (codec, config): (&impl Codec, EngineConfig),
    ) -> Result<Self> {
        let (default_repeats, default_tokens) = if args.common.quick { (1, 64) } else { (3, 128) };
        let seq_len_max = config.seq_len_max();
        let max_tokens = args.max_tokens.unwrap_or(default_tokens);
        let max_tokens = max_tokens.min(u32::try_from(seq_len_max / 2).unwrap_or(u32::MAX));
        let prompt_len_max = seq_len_max - max_tokens as usize;
        Ok(Self {
            groups: groups(prompts, args.concurrent, |text| {
                // Models that take only short sequences get the beginning.
                let mut ids = encode(codec, text)?;
                ids.truncate(prompt_len_max);
                Ok(ids)
            })?,
            config,
            methods: args.methods.clone(),
            temperatures: args.temperatures.clone(),
            setup: Setup {
                settings,
                num_repeats: args.repeats.unwrap_or(default_repeats),
                max_tokens,
                seed: args.common.seed,
            },
            at_once: args.concurrent.is_some(),
        })
    }

    /// Measures everything. `tell` hears what is measured.
    fn run<E: Executor, C: Codec, G: GrammarQueue>(
        &self,
        executor: &mut E,
        (codec, grammars): (&C, impl Fn(&EngineConfig) -> G),
        tell: impl Fn(&str),
    ) -> Result<Vec<Section>> {
        let mut sections = Vec::new();
        let Some(warm_up) = self.groups.first().and_then(|group| group.jobs.first()) else {
            bail!("there are no prompts");
        };
        for &method in &self.methods {
            let mut config = self.config.clone();
            config.speculation.method = method.into();
            let parts = (&mut *executor, codec, grammars(&config));
            let mut lab = Lab::new(config, parts, &self.setup, warm_up)?;
            for &temperature in &self.temperatures {
                let title = format!("{} at temperature {temperature}", name_of(method));
                let mut cells = Vec::new();
                for group in &self.groups {
                    tell(&format!("{title}: {}", group.label));
                    cells.push(lab.measure(group, temperature)?);
                }
                sections.extend(tables::sections(&title, cells, self.at_once));
            }
        }
        Ok(sections)
    }
}

/// The name as it is typed.
fn name_of(method: MethodArg) -> String {
    method
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A group per class, or one of so many requests of all classes in turn.
fn groups(
    prompts: &[Prompt],
    concurrent: Option<u32>,
    encode: impl Fn(&str) -> Result<Vec<TokenId>>,
) -> Result<Vec<Group>> {
    let classes = classes_of(prompts);
    let mut groups = Vec::new();
    for class in classes {
        let mut jobs = Vec::new();
        for prompt in prompts.iter().filter(|prompt| prompt.class == class) {
            jobs.push(Job {
                prompt: encode(&prompt.text)?,
                grammar: prompt.schema.clone().map(GrammarSource::JsonSchema),
            });
        }
        groups.push(Group {
            label: class,
            jobs,
            at_once: false,
        });
    }
    let Some(count) = concurrent else {
        return Ok(groups);
    };
    Ok(vec![Group {
        label: format!("{count} at once"),
        jobs: mixed(&groups, count as usize),
        at_once: true,
    }])
}

/// One job of each group, then the second of each, and so on, from the beginning again when all have
/// come.
fn mixed(groups: &[Group], count: usize) -> Vec<Job> {
    let longest = groups.iter().map(|group| group.jobs.len()).max();
    let in_turn: Vec<&Job> = (0..longest.unwrap_or(0))
        .flat_map(|turn| groups.iter().filter_map(move |group| group.jobs.get(turn)))
        .collect();
    in_turn.into_iter().cycle().take(count).cloned().collect()
}

/// As a user's message, for models that chat.
fn encode(codec: &impl Codec, text: &str) -> Result<Vec<TokenId>> {
    let text = text.trim_end();
    let messages = [Message::new("user", text)];
    match codec.encode_chat(&messages, GenerationPrompt::Add) {
        Err(TextError::Template(TemplateError::Absent)) => Ok(codec.encode(text)?),
        ids => Ok(ids?),
    }
}
