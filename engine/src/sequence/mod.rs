//! One growing token stream of a request.
//!
//! Neighbours: lives in `sequence_store.rs`; `scheduler.rs` asks how much it has to run;
//! `step_batch.rs` reads its tokens and tables; `engine.rs` commits verdicts to it.

use crate::stop::StopConditions;
use crate::{
    BlockTable, EngineConfig, Events, FinishReason, Generation, IntegrityError, Request, RequestId,
    SamplingParams, SeqId, TokenId, Usage, Vocabulary,
};

/// Prompt and generated tokens, how far they are computed, and where their keys and values lie.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) id: SeqId,
    pub(crate) generation: Generation,
    pub(crate) request: RequestId,
    pub(crate) sampling: SamplingParams,
    /// Prompt, then generated tokens. All are known and, once here, final.
    pub(crate) tokens: Vec<TokenId>,
    /// The first so many tokens are the prompt, also after a preemption.
    pub(crate) num_prompt: usize,
    /// Tokens `[0, num_computed)` have their keys and values in the pool.
    pub(crate) num_computed: usize,
    /// One per KV group.
    pub(crate) tables: Vec<BlockTable>,
    stop: StopConditions,
}

/// What names a sequence: handed out by the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceName {
    pub(crate) id: SeqId,
    pub(crate) generation: Generation,
    pub(crate) request: RequestId,
}

impl Sequence {
    pub(crate) fn new(
        name: SequenceName,
        request: Request,
        tables: Vec<BlockTable>,
        config: &EngineConfig,
    ) -> Self {
        let stop = StopConditions::new(&request, config);
        Self {
            id: name.id,
            generation: name.generation,
            request: name.request,
            sampling: request.sampling,
            num_prompt: request.prompt.len(),
            tokens: request.prompt,
            num_computed: 0,
            tables,
            stop,
        }
    }

    /// Makes room for the longest this can get, so that decoding does not allocate. Only while it
    /// runs: waiting sequences stay small.
    pub(crate) fn reserve_capacity(&mut self, block_size: usize) {
        let num_tokens_max = self.stop.num_tokens_max();
        self.tokens
            .reserve_exact(num_tokens_max.saturating_sub(self.tokens.len()));
        for table in &mut self.tables {
            let num_blocks = num_tokens_max.div_ceil(block_size);
            table.reserve_capacity(num_blocks);
        }
    }

    /// Tokens to run until nothing is left to compute: what prefill, decode and recomputation have
    /// in common, and the only thing the scheduler asks.
    ///
    /// The full rule is known tokens + drafts + placeholders - computed tokens. Drafts
    /// (speculation) and placeholders (steps in flight, issue 3) are added here and nowhere else.
    pub(crate) fn num_to_schedule(&self) -> usize {
        self.tokens.len() - self.num_computed
    }

    /// Whether the last of `num_scheduled` tokens is the last one known, so that its logits give
    /// the next.
    pub(crate) fn is_sampled_after(&self, num_scheduled: usize) -> bool {
        num_scheduled == self.num_to_schedule()
    }

    /// Appends `verdict`, the tokens the target chose in order, up to and including the first that
    /// ends the sequence: ids, text and usage share this one cut. Tells `events` of each kept
    /// token.
    ///
    /// Without drafts a verdict is one token; accepted drafts come before it in the same slice.
    pub(crate) fn commit<V: Vocabulary + ?Sized>(
        &mut self,
        verdict: &[TokenId],
        vocabulary: &V,
        events: &mut Events,
    ) -> Option<FinishReason> {
        for &token in verdict {
            self.tokens.push(token);
            let num_tokens = self.tokens.len();
            let finish = self
                .stop
                .push(token, num_tokens, vocabulary, events.text_mut());
            events.push_token(self.request, token);
            if finish.is_some() {
                return finish;
            }
        }
        None
    }

    /// Tells `events` that the sequence has ended, with the text that was held back.
    pub(crate) fn finish(&mut self, reason: FinishReason, events: &mut Events) {
        self.stop.finish(events.text_mut());
        events.push_finished(self.request, reason, self.usage());
    }

    /// Back to having computed nothing; the blocks must be released already. Tokens, text and stop
    /// conditions stay: what was generated is never generated, nor streamed, again.
    pub(crate) fn restart(&mut self, generation: Generation) {
        self.generation = generation;
        self.num_computed = 0;
    }

    /// Whether everything computed has a slot and is known.
    pub(crate) fn check_integrity(&self) -> Result<(), IntegrityError> {
        let (num_computed, num_tokens) = (self.num_computed, self.tokens.len());
        for table in &self.tables {
            let capacity = table.capacity();
            if num_computed > num_tokens || num_computed > capacity {
                let seq = self.id;
                return Err(IntegrityError::Computed {
                    seq,
                    num_computed,
                    num_tokens,
                    capacity,
                });
            }
        }
        Ok(())
    }

    fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.num_prompt,
            completion_tokens: self.tokens.len() - self.num_prompt,
            cached_tokens: 0,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
