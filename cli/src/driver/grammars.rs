//! Where grammars come from.
//!
//! Neighbours: `forerun_models::grammar` compiles; `driver/mod.rs` submits and collects.

use std::time::Duration;

use forerun_engine::Grammar;
use forerun_models::grammar::GrammarSource;

/// A compiled grammar, or why there is none.
pub(crate) type Compiled = Result<Box<dyn Grammar>, String>;

/// Compiles grammars beside the engine.
pub(crate) trait GrammarQueue {
    /// Asks for a grammar. It comes under the same ticket, each ticket once.
    fn submit(&mut self, ticket: u64, source: GrammarSource);

    /// A grammar that is finished, if there is one.
    fn try_finished(&mut self) -> Option<(u64, Compiled)>;

    /// Waits for a grammar, at most for `timeout`.
    fn wait_finished(&mut self, timeout: Duration) -> Option<(u64, Compiled)>;
}

/// Compiles none: for workloads without grammars. Every source fails.
#[derive(Debug, Default)]
pub(crate) struct NoGrammars {
    refused: Vec<u64>,
}

impl GrammarQueue for NoGrammars {
    fn submit(&mut self, ticket: u64, _source: GrammarSource) {
        self.refused.push(ticket);
    }

    fn try_finished(&mut self) -> Option<(u64, Compiled)> {
        let ticket = self.refused.pop()?;
        Some((ticket, Err("grammars are not compiled here".to_owned())))
    }

    fn wait_finished(&mut self, _timeout: Duration) -> Option<(u64, Compiled)> {
        self.try_finished()
    }
}
