//! Passes of the draft model, which has a pool of its own, and of the target's first layers.

use forerun_engine::{StepBatch, TokenId, Verdict};

use super::FakeExecutor;
use crate::batch_checks;
use crate::fake_model::mix;
use crate::kv_pool::KvPool;

impl FakeExecutor {
    /// Tokens of a draft pass, those that the pass before decides filled in.
    fn draft_ids(&self, batch: &StepBatch) -> Vec<u32> {
        let mut ids = batch.token_ids.clone();
        for carried in &batch.carried {
            let token = self.previous_drafts[carried.row as usize];
            ids[carried.token as usize] = token.unwrap_or(u32::MAX - 1);
        }
        ids
    }

    pub(super) fn draft_pass(&mut self, batch: &StepBatch) -> Vec<Verdict> {
        batch_checks::check_pass(&self.draft_config, &self.draft_pool, batch);
        let (ids, tenants) = (self.draft_ids(batch), self.tenants_of(batch));
        self.draft_pool.copy_blocks(batch);
        self.draft_pool.write(batch, &ids, &tenants);
        self.draft_pool.check_visible(batch, &tenants);
        self.draft_pool.check_tokens(batch, &self.committed);
        self.guesses(&self.draft_pool, batch, &ids)
    }

    pub(super) fn layer_pass(&mut self, batch: &StepBatch) -> Vec<Verdict> {
        batch_checks::check_pass(&self.config, &self.pool, batch);
        let (ids, tenants) = (self.draft_ids(batch), self.tenants_of(batch));
        self.pool.write(batch, &ids, &tenants);
        let rows = self.guesses(&self.pool, batch, &ids);
        self.pool.mark_partial(batch);
        rows
    }

    /// Often what the target will say.
    fn guesses(&self, pool: &KvPool, batch: &StepBatch, ids: &[u32]) -> Vec<Verdict> {
        let guess = |row: usize| {
            let token = batch.logit_rows[row] as usize;
            let hash = pool.attend(
                batch,
                batch.seq_of_token[token] as usize,
                batch.positions[token],
                |entry| entry.state,
            );
            if mix(hash, 77).is_multiple_of(4) {
                let any = mix(hash, 78) % (self.config.vocab_size as u64);
                return Verdict::Token(TokenId(any as u32));
            }
            self.row_of_hash(batch, row, ids, hash, &|_| None).0
        };
        (0..batch.num_logit_rows()).map(guess).collect()
    }
}
