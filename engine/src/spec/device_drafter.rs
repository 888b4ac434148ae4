//! Drafts of models: a draft model over pools of its own, or the target's first layers over the
//! target's.
//!
//! Neighbours: called by `speculator.rs` with the sequences that are to have such a draft, all in one
//! batch; `draft_cache.rs` is the draft model's memory, `draft_pass.rs` fills the batches, the
//! executor runs them.
//!
//! The first pass runs what the model has not computed, the anchor last, and draws the first guess;
//! each pass after it runs one guess and draws the next. Where the host takes part (grammars), or a
//! pass is done when it is submitted, a guess is known before the next pass; else it is carried over
//! on the device.

use super::draft_cache::DraftCache;
use super::draft_pass::PassTokens;
use super::{DraftDraw, DraftTree};
use crate::block_manager::BlockManager;
use crate::sequence_store::SequenceStore;
use crate::{
    BlockTable, DraftSource, Executor, ExecutorError, Grammar, SeqId, StepBatch, StepOutput,
    TokenId, Verdict, Verification,
};

/// A sequence that is to have a draft.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) seq: SeqId,
    /// Guesses, at least 1.
    pub(crate) num_drafts: usize,
}

/// Where guesses go.
#[derive(Debug)]
pub(crate) enum DraftPools<'a> {
    /// The draft model's.
    Own(&'a mut DraftCache),
    /// The target's, at the places where the step will write.
    Target(&'a mut BlockManager),
}

/// What drafting needs besides the sequences.
#[derive(Debug)]
pub(crate) struct DraftRun<'a, E> {
    pub(crate) executor: &'a mut E,
    pub(crate) pools: DraftPools<'a>,
    /// Reused from pass to pass; of the right number of groups.
    pub(crate) batch: &'a mut StepBatch,
    pub(crate) output: &'a mut StepOutput,
    /// Most tokens of a pass.
    pub(crate) num_tokens_max: usize,
    pub(crate) vocab_size: usize,
}

/// One sequence while its draft is made.
struct Entry {
    seq: SeqId,
    num_drafts: usize,
    /// Tokens that are computed already.
    start: usize,
    /// What the first pass runs: to the anchor, or as far as the pass has room.
    end: usize,
    /// Its row in the last pass, while it goes on.
    row: Option<u32>,
    guesses: Vec<TokenId>,
    /// Rows of the kept distributions.
    kept_rows: Vec<u32>,
    grammar: Option<Box<dyn Grammar>>,
    /// Its guesses are verified against the distributions they were drawn from.
    is_drawn: bool,
}

impl<E: Executor> DraftRun<'_, E> {
    /// Fills the drafts of `wanted`, as far as there is room for them.
    ///
    /// # Errors
    /// [`ExecutorError`] of a pass: then nobody has a draft.
    pub(crate) fn run(
        &mut self,
        wanted: &[Wanted],
        sequences: &mut SequenceStore,
    ) -> Result<(), ExecutorError> {
        let mut entries = self.prepare(wanted, sequences);
        if entries.is_empty() {
            self.release_copies();
            return Ok(());
        }
        let result = self.run_passes(&mut entries, sequences);
        for entry in &entries {
            let sequence = sequences.get_mut(entry.seq);
            match (&mut self.pools, &result) {
                (DraftPools::Own(cache), Ok(())) => {
                    let num_computed = entry.guesses.len().saturating_sub(1);
                    cache.note_computed(sequence, entry.end, &entry.guesses[..num_computed]);
                }
                (DraftPools::Own(cache), Err(_)) => cache.release(entry.seq),
                (DraftPools::Target(_), _) => {}
            }
            if result.is_ok() {
                entry.fill(&mut sequence.draft);
            }
        }
        result
    }

    /// Slots for everybody, within the tokens of a pass.
    fn prepare(&mut self, wanted: &[Wanted], sequences: &mut SequenceStore) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::with_capacity(wanted.len());
        let mut num_tokens = 0;
        for (index, &Wanted { seq, num_drafts }) in wanted.iter().enumerate() {
            // Everybody else runs the anchor at least.
            let num_left = wanted.len() - index - 1;
            let room = self.num_tokens_max.saturating_sub(num_tokens + num_left);
            if room == 0 {
                break;
            }
            let sequence = sequences.get_mut(seq);
            let anchor_end = sequence.tokens.len();
            let start = match &mut self.pools {
                DraftPools::Own(cache) => {
                    let is_wanted = |seq| wanted.iter().any(|other| other.seq == seq);
                    cache.prepare(sequence, num_drafts - 1, is_wanted)
                }
                DraftPools::Target(blocks) => {
                    let (first, end) = (anchor_end - 1, anchor_end + num_drafts - 1);
                    let tables = &mut sequence.tables;
                    let is_own = !blocks.needs_copies(tables, first, end);
                    (is_own && blocks.reserve(tables, first, end).is_ok()).then_some(first)
                }
            };
            let Some(start) = start else { continue };
            let end = anchor_end.min(start + room);
            num_tokens += end - start;
            entries.push(Entry {
                seq,
                num_drafts,
                start,
                end,
                row: None,
                guesses: Vec::new(),
                kept_rows: Vec::new(),
                grammar: sequence.grammar.as_ref().map(|grammar| grammar.fork()),
                is_drawn: sequence.verification != Verification::SharedNoise
                    && !sequence.sampling.is_greedy(),
            });
        }
        entries
    }

    fn run_passes(
        &mut self,
        entries: &mut [Entry],
        sequences: &SequenceStore,
    ) -> Result<(), ExecutorError> {
        let keeps = entries.iter().any(|entry| entry.is_drawn);
        let needs_host = entries.iter().any(|entry| entry.grammar.is_some());
        let is_overlapped = !needs_host && self.executor.steps_in_flight_max() > 1;
        let num_passes = entries.iter().map(|entry| entry.num_drafts).max();
        let mut num_kept = 0;
        let mut num_in_flight = 0;
        let mut result = Ok(());
        for pass in 0..num_passes.unwrap_or(0) {
            self.fill(entries, sequences, pass, !is_overlapped);
            if self.batch.seqs.is_empty() {
                break;
            }
            self.batch.keeps_distributions = keeps;
            let source = self.source();
            result = self.executor.submit_draft(source, self.batch);
            self.release_copies();
            if result.is_err() {
                break;
            }
            num_in_flight += 1;
            for entry in entries.iter_mut().filter(|entry| entry.row.is_some()) {
                entry.kept_rows.extend(entry.row.map(|row| num_kept + row));
            }
            num_kept += self.batch.num_logit_rows() as u32;
            if !is_overlapped {
                num_in_flight -= 1;
                result = self.collect(entries, 0, pass);
                if result.is_err() {
                    break;
                }
            }
        }
        let num_passes = num_in_flight;
        for pass in 0..num_passes {
            let collected = self.collect(entries, num_in_flight, pass);
            result = result.and(collected);
        }
        result
    }

    fn source(&self) -> DraftSource {
        match self.pools {
            DraftPools::Own(_) => DraftSource::DraftModel,
            DraftPools::Target(_) => DraftSource::LayerSkip,
        }
    }

    /// The copies of a pass are part of its batch once it is filled.
    fn release_copies(&mut self) {
        if let DraftPools::Own(cache) = &mut self.pools {
            cache.blocks_mut().release_copy_sources();
        }
    }

    /// The batch of pass `pass`: in the first everybody's missing tokens, then the newest guess of
    /// those that go on.
    fn fill(
        &mut self,
        entries: &mut [Entry],
        sequences: &SequenceStore,
        pass: usize,
        is_known: bool,
    ) {
        self.batch.clear();
        for entry in entries.iter_mut() {
            let sequence = sequences.get(entry.seq);
            let tables = self.pools.tables(entry.seq, &sequence.tables);
            let anchor_end = sequence.tokens.len();
            if pass == 0 {
                let tokens = PassTokens::Known(&sequence.tokens[entry.start..entry.end]);
                self.batch.push_pass(sequence, tables, entry.start, tokens);
            } else if entry.num_drafts > pass && entry.row.is_some() {
                let newest = entry.guesses.last().copied();
                let tokens = match (is_known, &newest, entry.row) {
                    (true, Some(newest), _) => PassTokens::Known(std::slice::from_ref(newest)),
                    (_, _, row) => PassTokens::Carried(row.expect("it goes on")),
                };
                let position = anchor_end + pass - 1;
                self.batch.push_pass(sequence, tables, position, tokens);
            } else {
                entry.row = None;
                continue;
            }
            entry.row = None;
            if entry.end == anchor_end {
                entry.row = Some(self.batch.num_logit_rows() as u32);
                let grammar = entry.grammar.as_mut();
                (self.batch).push_pass_row(sequence, grammar, &entry.guesses, pass);
            }
        }
        let block_size = self.block_size();
        let seqs: Vec<SeqId> = self.batch.seqs.iter().map(|entry| entry.seq).collect();
        let pools = &self.pools;
        let tables = seqs
            .iter()
            .map(|&seq| pools.tables(seq, &sequences.get(seq).tables));
        self.batch.close_pass(block_size, tables);
        if let DraftPools::Own(cache) = &self.pools {
            for (index, group) in self.batch.groups.iter_mut().enumerate() {
                let copies = cache.blocks().copies(index);
                group.block_copies.extend_from_slice(copies);
            }
        }
    }

    fn block_size(&self) -> usize {
        match &self.pools {
            DraftPools::Own(cache) => cache.blocks().block_size(),
            DraftPools::Target(blocks) => blocks.block_size(),
        }
    }

    /// Takes the verdicts of pass `pass`. With several passes in flight, entries have left off where
    /// their rows end.
    fn collect(
        &mut self,
        entries: &mut [Entry],
        num_passes: usize,
        pass: usize,
    ) -> Result<(), ExecutorError> {
        self.output.clear();
        self.executor.collect_draft(self.output)?;
        let is_overlapped = num_passes > 0;
        let mut rows = self.output.verdicts().iter();
        for entry in entries {
            let has_row = if is_overlapped {
                entry.kept_rows.len() > pass
            } else {
                entry.row.is_some()
            };
            if !has_row {
                continue;
            }
            let verdict = rows.next();
            let is_unbroken = entry.guesses.len() == pass;
            match verdict {
                Some(&Verdict::Token(token))
                    if is_unbroken && (token.0 as usize) < self.vocab_size =>
                {
                    entry.take(token);
                }
                _ => entry.row = None,
            }
        }
        Ok(())
    }
}

impl DraftPools<'_> {
    fn tables<'a>(&'a self, seq: SeqId, target: &'a [BlockTable]) -> &'a [BlockTable] {
        match self {
            Self::Own(cache) => cache.tables(seq),
            Self::Target(_) => target,
        }
    }
}

impl Entry {
    /// One more guess. Nothing is guessed behind the end of a grammar.
    fn take(&mut self, token: TokenId) {
        self.guesses.push(token);
        if let Some(grammar) = &mut self.grammar
            && (grammar.accept(token).is_err() || grammar.is_finished())
        {
            self.row = None;
        }
    }

    /// The guesses as a chain. A guess that was drawn is never dropped for its value.
    fn fill(&self, draft: &mut DraftTree) {
        let mut parent = None;
        for (&token, &row) in self.guesses.iter().zip(&self.kept_rows) {
            let draw = if self.is_drawn {
                DraftDraw::Sampled { row }
            } else {
                DraftDraw::Deterministic
            };
            parent = Some(draft.push_drawn(parent, token, draw));
        }
    }
}
