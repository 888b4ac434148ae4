//! Where a draft model keeps its keys and values: pools of its own, so that drafting never takes a
//! block that a request needs.
//!
//! Neighbours: `device_drafter.rs` prepares sequences here before it runs passes; blocks, copies and
//! the prefix cache are those of `block_manager/`.
//!
//! The model may have missed any number of tokens: those of a prefix that the target had cached, or
//! of steps without a draft. It computes what it misses before it drafts, or drafts nothing.

use super::DraftModelConfig;
use crate::block_manager::BlockManager;
use crate::sequence::Sequence;
use crate::{BlockTable, EngineConfig, HashChain, IntegrityError, SeqId, TokenId};

/// The draft model's pools, and what they hold of each sequence.
#[derive(Debug)]
pub(crate) struct DraftCache {
    blocks: BlockManager,
    max_seq_len: usize,
    /// By sequence.
    states: Vec<Option<DraftState>>,
    /// Counts up with every preparation, to find whoever was left alone the longest.
    clock: u64,
}

/// What the draft model has of one sequence.
#[derive(Debug)]
struct DraftState {
    tables: Vec<BlockTable>,
    chain: HashChain,
    /// Committed tokens that were computed.
    num_committed: usize,
    /// Guesses that were computed behind them.
    guesses: Vec<TokenId>,
    last_used: u64,
}

impl DraftCache {
    /// Empty pools.
    pub(crate) fn new(config: &EngineConfig, draft_model: &DraftModelConfig) -> Self {
        let own = EngineConfig {
            groups: draft_model.groups.clone(),
            ..config.clone()
        };
        Self {
            blocks: BlockManager::new(&own),
            max_seq_len: draft_model.max_seq_len.min(own.seq_len_max()),
            states: Vec::new(),
            clock: 0,
        }
    }

    /// The blocks of every KV group.
    pub(crate) fn blocks(&self) -> &BlockManager {
        &self.blocks
    }

    /// The blocks, after a pass with their copies was built.
    pub(crate) fn blocks_mut(&mut self) -> &mut BlockManager {
        &mut self.blocks
    }

    /// Tables of a sequence that was prepared.
    pub(crate) fn tables(&self, seq: SeqId) -> &[BlockTable] {
        let state = self.states[seq.index()].as_ref();
        &state
            .expect("a sequence is prepared before it drafts")
            .tables
    }

    /// Gives the committed tokens of a sequence, and `num_guesses` computed behind them, their slots.
    /// Returns how many tokens are computed already, at most all but the last; `None` if there is no
    /// room, or the model does not reach so far. Sequences that `keeps` does not name may lose theirs.
    pub(crate) fn prepare(
        &mut self,
        sequence: &Sequence,
        num_guesses: usize,
        keeps: impl Fn(SeqId) -> bool,
    ) -> Option<usize> {
        let num_tokens = sequence.tokens.len();
        let end = num_tokens + num_guesses;
        if end > self.max_seq_len {
            return None;
        }
        self.clock += 1;
        let index = sequence.id.index();
        if self.states.len() <= index {
            self.states.resize_with(index + 1, || None);
        }
        let mut state = match self.states[index].take() {
            Some(state) => state,
            None => self.new_state(sequence),
        };
        state.last_used = self.clock;
        state.settle(&sequence.tokens);
        let first = state.num_committed;
        let is_reserved = loop {
            if self.blocks.reserve(&mut state.tables, first, end).is_ok() {
                break true;
            }
            if !self.evict(|seq| seq == sequence.id || keeps(seq)) {
                break false;
            }
        };
        if is_reserved {
            self.states[index] = Some(state);
            return Some(first);
        }
        self.blocks.release(&mut state.tables);
        None
    }

    /// Starts with what other sequences left in the cache.
    fn new_state(&mut self, sequence: &Sequence) -> DraftState {
        let mut state = DraftState {
            tables: self.blocks.new_tables(),
            // Hashes are of tokens and keys: those of the target's chain are as good here.
            chain: sequence.chain.clone(),
            num_committed: 0,
            guesses: Vec::new(),
            last_used: 0,
        };
        let num_tokens_max = sequence.tokens.len() - 1;
        let hit = (self.blocks).lookup(&mut state.chain, &sequence.tokens, num_tokens_max);
        let adopted = self.blocks.adopt(&mut state.tables, &hit);
        state.num_committed = adopted.unwrap_or(0);
        state
    }

    /// Blocks of the sequence that was left alone the longest go back. Says whether there was one.
    fn evict(&mut self, keeps: impl Fn(SeqId) -> bool) -> bool {
        let states = self.states.iter().enumerate();
        let oldest = states
            .filter_map(|(index, state)| {
                let seq = SeqId(index as u32);
                let state = state.as_ref().filter(|_| !keeps(seq))?;
                Some((state.last_used, seq))
            })
            .min();
        if let Some((_, seq)) = oldest {
            self.release(seq);
        }
        oldest.is_some()
    }

    /// `num_computed` committed tokens of a sequence are computed now, and `guesses` behind them.
    pub(crate) fn note_computed(
        &mut self,
        sequence: &Sequence,
        num_computed: usize,
        guesses: &[TokenId],
    ) {
        let state = self.states[sequence.id.index()].as_mut();
        let state = state.expect("a sequence is prepared before it drafts");
        state.num_committed = num_computed;
        state.guesses.clear();
        state.guesses.extend_from_slice(guesses);
        self.blocks.publish(
            &mut state.tables,
            &mut state.chain,
            &sequence.tokens,
            num_computed,
        );
        // The last of them may be run again: with a step that fails, nothing comes after it.
        self.blocks
            .release_outside_windows(&mut state.tables, num_computed.saturating_sub(1));
    }

    /// Takes all blocks of a sequence that has ended, stopped running, or failed to draft. Full
    /// blocks can still be found.
    pub(crate) fn release(&mut self, seq: SeqId) {
        let state = self.states.get_mut(seq.index()).and_then(Option::take);
        if let Some(mut state) = state {
            self.blocks.release(&mut state.tables);
        }
    }

    /// Takes the blocks of every sequence that does not run.
    pub(crate) fn release_others(&mut self, is_running: impl Fn(SeqId) -> bool) {
        for index in 0..self.states.len() {
            let seq = SeqId(index as u32);
            if self.states[index].is_some() && !is_running(seq) {
                self.release(seq);
            }
        }
    }

    /// Forgets everything: weights have changed.
    pub(crate) fn reset(&mut self) {
        self.release_others(|_| false);
        self.blocks.reset_cache();
    }

    /// Recounts the blocks.
    pub(crate) fn check_integrity(&self) -> Result<(), IntegrityError> {
        let states = self.states.iter().flatten();
        let tables: Vec<_> = states.map(|state| state.tables.as_slice()).collect();
        self.blocks.check_integrity(&tables)
    }
}

impl DraftState {
    /// Counts those guesses as committed that came true, up to all tokens but the last; the others
    /// are forgotten, and written over.
    fn settle(&mut self, tokens: &[TokenId]) {
        let came = tokens[self.num_committed..].iter();
        let is_true = |(token, guess): &(&TokenId, &TokenId)| token == guess;
        let num_true = came.zip(&self.guesses).take_while(is_true).count();
        self.num_committed = (self.num_committed + num_true).min(tokens.len() - 1);
        self.guesses.clear();
    }
}
