//! Compiles on a thread of its own, so that the engine's never waits for it.
//!
//! A request with a grammar waits in the engine under a ticket; whoever drives the engine submits
//! the source and, between steps, takes what is finished. What was compiled is remembered, so that
//! requests that ask for the same wait for a copy only.
//!
//! Neighbours: [`super::compiler`] (who compiles), the driver of the engine (who submits).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use forerun_engine::Grammar;

use super::compiler::GrammarCompiler;
use super::constraint::TokenConstraint;
use super::error::GrammarCompileError;
use super::source::{GrammarSource, Prepared};

/// A grammar of its own for the request that waits for it, or why there is none.
pub type CompiledGrammar = Result<Box<dyn Grammar>, GrammarCompileError>;

/// Compiles grammars in the order they were submitted. Dropping it ends the thread, after the
/// grammar that is being compiled; what still waits is dropped.
#[derive(Debug)]
pub struct CompileQueue {
    /// `None` only while dropping.
    jobs: Option<Sender<Job>>,
    finished: Receiver<Finished>,
    is_closing: Arc<AtomicBool>,
    /// `None` only while dropping.
    worker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Job {
    ticket: u64,
    source: GrammarSource,
}

#[derive(Debug)]
struct Finished {
    ticket: u64,
    grammar: CompiledGrammar,
}

impl CompileQueue {
    /// Starts the thread. The last `num_cached_max` different sources are remembered, those that
    /// failed too.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(compiler: GrammarCompiler, num_cached_max: usize) -> std::io::Result<Self> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let (done, finished) = mpsc::channel();
        let is_closing = Arc::new(AtomicBool::new(false));
        let closes = Arc::clone(&is_closing);
        let worker = thread::Builder::new()
            .name("grammar-queue".to_owned())
            .spawn(move || {
                let mut cache = Cache::new(compiler, num_cached_max);
                for Job { ticket, source } in waiting {
                    if closes.load(Ordering::Acquire) {
                        return;
                    }
                    let grammar = cache.compile(&source);
                    if done.send(Finished { ticket, grammar }).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            jobs: Some(jobs),
            finished,
            is_closing,
            worker: Some(worker),
        })
    }

    /// Asks for a grammar. The result comes under the same ticket, each ticket once.
    pub fn submit(&self, ticket: u64, source: GrammarSource) {
        let jobs = self.jobs.as_ref().expect("it is taken by drop alone");
        jobs.send(Job { ticket, source })
            .expect("the worker catches panics and runs until the queue is dropped");
    }

    /// A grammar that is finished, if there is one; the oldest first.
    pub fn try_finished(&self) -> Option<(u64, CompiledGrammar)> {
        let Finished { ticket, grammar } = self.finished.try_recv().ok()?;
        Some((ticket, grammar))
    }

    /// Waits for a grammar, at most for `timeout`.
    pub fn wait_finished(&self, timeout: Duration) -> Option<(u64, CompiledGrammar)> {
        let Finished { ticket, grammar } = self.finished.recv_timeout(timeout).ok()?;
        Some((ticket, grammar))
    }
}

impl Drop for CompileQueue {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Release);
        self.jobs = None;
        if let Some(worker) = self.worker.take()
            && worker.join().is_err()
        {
            tracing::error!("the thread that compiles grammars panicked");
        }
    }
}

/// The grammars compiled last, most recent at the end.
pub(super) struct Cache {
    compiler: GrammarCompiler,
    entries: Vec<(Prepared, Result<TokenConstraint, GrammarCompileError>)>,
    num_entries_max: usize,
}

impl Cache {
    pub(super) fn new(compiler: GrammarCompiler, num_entries_max: usize) -> Self {
        Self {
            compiler,
            entries: Vec::new(),
            num_entries_max,
        }
    }

    /// A grammar of its own, compiled or copied.
    pub(super) fn compile(&mut self, source: &GrammarSource) -> CompiledGrammar {
        let kind = source.kind();
        let compiled = catch_unwind(AssertUnwindSafe(|| {
            let entry = self.entry(source.prepare()?);
            Ok(entry?.separate())
        }));
        let compiled = compiled.unwrap_or_else(|_panic| {
            Err(GrammarCompileError::Refused {
                kind,
                detail: "llguidance panicked over it: simplify it".to_owned(),
            })
        });
        compiled.map(|constraint| Box::new(constraint) as Box<dyn Grammar>)
    }

    /// What is remembered, the most recent at the end.
    #[cfg(test)]
    pub(super) fn sources(&self) -> Vec<&str> {
        self.entries
            .iter()
            .map(|(source, _)| source.key().1)
            .collect()
    }

    fn entry(&mut self, source: Prepared) -> Result<TokenConstraint, GrammarCompileError> {
        let found = self
            .entries
            .iter()
            .position(|(known, _)| known.key() == source.key());
        let entry = if let Some(index) = found {
            self.entries.remove(index)
        } else {
            let compiled = self.compiler.compile_prepared(&source);
            (source, compiled)
        };
        let result = entry.1.clone();
        self.entries.push(entry);
        if self.entries.len() > self.num_entries_max {
            drop(self.entries.remove(0));
        }
        result
    }
}
