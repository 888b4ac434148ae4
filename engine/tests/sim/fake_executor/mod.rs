//! An executor over a simulated KV pool, which distrusts every array it is given.
//!
//! Neighbours: `kv_pool.rs` holds what it computed, `batch_checks.rs` what arrays promise,
//! `fake_model.rs` the arithmetic, `faults.rs` what goes wrong.

mod drafts;
mod rows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forerun_engine::{
    DraftSource, EngineConfig, Executor, ExecutorError, FailureScope, LogprobsKind, RequestId,
    RowPurpose, SeqId, StepBatch, StepOutput, TokenId, Verdict,
};

use self::rows::{Row, damaged, params_of, push, walk_drafts};
use crate::batch_checks;
use crate::fake_model::{Chain, Counts, choose, nan_token, raw_logits, scores};
use crate::faults::{Canary, Fault};
use crate::kv_pool::KvPool;
use crate::trace::Trace;

/// A step that was submitted.
struct Pending {
    batch: StepBatch,
    fault: Option<Fault>,
    /// Once it was computed.
    rows: Option<Vec<Row>>,
}

pub(crate) struct FakeExecutor {
    config: EngineConfig,
    pool: KvPool,
    /// With the groups of the draft model.
    draft_config: EngineConfig,
    draft_pool: KvPool,
    /// Rows of draft passes that were not collected.
    draft_rows: VecDeque<Vec<Verdict>>,
    /// Rows of the last draft pass.
    previous_drafts: Vec<Option<u32>>,
    /// Draft passes that fail: every so many.
    pub(crate) draft_failures: Option<u64>,
    pub(crate) num_passes: u64,
    /// Tokens of sequences by position, as far as steps ran them and drafts were accepted.
    committed: BTreeMap<(RequestId, SeqId), BTreeMap<u32, u32>>,
    pending: VecDeque<Pending>,
    /// What the step before the next one to be computed decided, and the one before that.
    previous: [Vec<Option<u32>>; 2],
    /// A step failed, and those behind it compute from nothing.
    is_broken: bool,
    /// A step is computed when it is collected, not when it is submitted.
    pub(crate) computes_late: bool,
    pub(crate) depth: usize,
    /// Faults of the next steps, `None` for a step that works.
    pub(crate) faults: VecDeque<Option<Fault>>,
    pub(crate) canary: Option<Canary>,
    /// Whose keys each request has.
    pub(crate) tenants: BTreeMap<RequestId, u64>,
    pub(crate) trace: Trace,
    pub(crate) num_seqs_max_seen: usize,
    pub(crate) num_copies: usize,
    /// Draft tokens accepted.
    pub(crate) num_accepted: usize,
    /// Most steps that were in flight at once.
    pub(crate) depth_max_seen: usize,
    /// Requests in the order in which they ran first, since last asked.
    pub(crate) started: Vec<RequestId>,
    has_started: BTreeSet<RequestId>,
}

impl FakeExecutor {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let mut draft_config = config.clone();
        if let Some(draft_model) = &config.speculation.draft_model {
            draft_config.groups.clone_from(&draft_model.groups);
        }
        Self {
            draft_pool: KvPool::new(&draft_config),
            draft_config,
            draft_rows: VecDeque::new(),
            previous_drafts: Vec::new(),
            draft_failures: None,
            num_passes: 0,
            committed: BTreeMap::new(),
            pool: KvPool::new(config),
            config: config.clone(),
            pending: VecDeque::new(),
            previous: [Vec::new(), Vec::new()],
            is_broken: false,
            computes_late: false,
            depth: 1,
            faults: VecDeque::new(),
            canary: None,
            tenants: BTreeMap::new(),
            trace: Trace::default(),
            num_seqs_max_seen: 0,
            num_copies: 0,
            num_accepted: 0,
            depth_max_seen: 0,
            started: Vec::new(),
            has_started: BTreeSet::new(),
        }
    }

    fn tenants_of(&self, batch: &StepBatch) -> Vec<u64> {
        let tenant = |request| self.tenants.get(request).copied().unwrap_or(0);
        batch.seqs.iter().map(|s| tenant(&s.request)).collect()
    }

    fn note(&mut self, batch: &StepBatch) {
        let num_in_flight = self.pending.len() + 1;
        self.trace.record_step(batch, num_in_flight);
        self.depth_max_seen = self.depth_max_seen.max(num_in_flight);
        self.num_seqs_max_seen = self.num_seqs_max_seen.max(batch.num_seqs());
        self.num_copies += batch.groups[0].block_copies.len();
        for entry in &batch.seqs {
            if self.has_started.insert(entry.request) {
                self.started.push(entry.request);
            }
        }
    }

    /// Computes what was submitted and not computed, in order.
    fn compute_all(&mut self) {
        for index in 0..self.pending.len() {
            if self.pending[index].rows.is_none() {
                let step = &self.pending[index];
                let (batch, fault) = (step.batch.clone(), step.fault.clone());
                let rows = self.compute(&batch, fault.as_ref());
                self.pending[index].rows = Some(rows);
            }
        }
    }

    fn compute(&mut self, batch: &StepBatch, fault: Option<&Fault>) -> Vec<Row> {
        if let Some(Fault::Collect(_)) = fault {
            self.fail(batch);
            return Vec::new();
        }
        let source = usize::from(matches!(self.canary, Some(Canary::StaleCarry)));
        let carried = self.previous[source].clone();
        let carried = |row: u32| carried.get(row as usize).copied().flatten();
        let mut ids = batch.token_ids.clone();
        for entry in &batch.carried {
            // A row without a token ended its sequence: what comes after it is dropped.
            ids[entry.token as usize] = carried(entry.row).unwrap_or(u32::MAX - 1);
        }
        let tenants = self.tenants_of(batch);
        self.pool.copy_blocks(batch);
        if let Some(Canary::WrongToken) = self.canary {
            *ids.last_mut().expect("a step has tokens") ^= 1;
        }
        self.pool.write(batch, &ids, &tenants);
        if !self.is_broken {
            self.pool.check_visible(batch, &tenants);
        }
        let row = |row: usize| {
            let verdict = self.row(batch, row, &ids, &carried);
            damaged(verdict, batch, row, fault)
        };
        let mut rows: Vec<Row> = (0..batch.num_logit_rows()).map(row).collect();
        let accepted = walk_drafts(batch, &mut rows);
        self.note_committed(batch, &ids, &accepted);
        if !matches!(self.canary, Some(Canary::NotCompacted)) {
            self.pool.compact(batch, &accepted);
        }
        self.num_accepted += accepted.iter().map(|(_, path)| path.len()).sum::<usize>();
        match self.canary {
            Some(Canary::SwappedVerdicts) if rows.len() > 1 => rows.swap(0, 1),
            Some(Canary::ShiftedLogprobs) => {
                for index in (1..rows.len()).rev() {
                    if rows[index].1.is_some() && rows[index - 1].1.is_some() {
                        let before = rows[index - 1].1.clone();
                        rows[index].1 = before;
                    }
                }
            }
            _ => {}
        }
        let token = |row: &Row| match row.0 {
            Verdict::Token(token) => Some(token.0),
            Verdict::NotFinite | Verdict::Unreached => None,
        };
        self.previous.swap(0, 1);
        self.previous[0] = rows.iter().map(token).collect();
        rows
    }

    /// What the sequences of a batch hold for good.
    fn note_committed(&mut self, batch: &StepBatch, ids: &[u32], accepted: &[(usize, Vec<usize>)]) {
        let drafts = batch.purposes.iter().zip(&batch.logit_rows);
        let drafts: BTreeSet<_> = drafts
            .filter(|(purpose, _)| matches!(purpose, RowPurpose::Draft { .. }))
            .map(|(_, &token)| token as usize)
            .collect();
        let known = (0..ids.len()).filter(|token| !drafts.contains(token));
        let accepted = accepted.iter().flat_map(|(_, path)| path.iter().copied());
        for token in known.chain(accepted) {
            let entry = batch.seqs[batch.seq_of_token[token] as usize];
            let committed = self
                .committed
                .entry((entry.request, entry.seq))
                .or_default();
            committed.insert(batch.positions[token], ids[token]);
        }
    }

    fn row(
        &self,
        batch: &StepBatch,
        row: usize,
        ids: &[u32],
        carried: &dyn Fn(u32) -> Option<u32>,
    ) -> Row {
        let token = batch.logit_rows[row] as usize;
        let seq = batch.seq_of_token[token] as usize;
        let position = batch.positions[token];
        let hash = self.pool.attend(batch, seq, position, |entry| entry.state);
        self.row_of_hash(batch, row, ids, hash, carried)
    }

    fn row_of_hash(
        &self,
        batch: &StepBatch,
        row: usize,
        ids: &[u32],
        hash: u64,
        carried: &dyn Fn(u32) -> Option<u32>,
    ) -> Row {
        let vocab_size = self.config.vocab_size;
        let token = batch.logit_rows[row] as usize;
        if Some(ids[token]) == nan_token(vocab_size) {
            return (Verdict::NotFinite, None);
        }
        let raw = raw_logits(hash, vocab_size);
        let sampling = &batch.sampling[row];
        let num_top = sampling.logprobs.map(|asked| asked.num_top as usize);
        if let Some(target) = sampling.target {
            let scores = num_top.map(|num_top| scores(&raw, target, num_top));
            return (Verdict::Token(target), scores);
        }
        let history = &batch.history[sampling.history.0 as usize..sampling.history.1 as usize];
        let counts = history
            .iter()
            .map(|c| (c.token.0, (c.num_output, c.is_in_prompt)));
        let mut counts: Counts = counts.collect();
        let newest = sampling.carried_row.and_then(carried);
        if let Some(newest) = newest.filter(|&newest| (newest as usize) < vocab_size) {
            counts.entry(newest).or_default().0 += 1;
        }
        let bias = &batch.bias[sampling.bias.0 as usize..sampling.bias.1 as usize];
        let bias: Vec<_> = bias.iter().map(|bias| (bias.token.0, bias.bias)).collect();
        let params = params_of(sampling);
        let words = batch.mask_words;
        let mask = |row: u32| &batch.masks[row as usize * words..(row as usize + 1) * words];
        let chain = Chain {
            params: &params,
            bias: &bias,
            counts: &counts,
            mask: sampling.mask.map(mask),
        };
        let mut logits = raw.clone();
        chain.process(&mut logits);
        let Some(chosen) = choose(&logits, &params, sampling.seed, sampling.position) else {
            return (Verdict::NotFinite, None);
        };
        let scores = sampling.logprobs.map(|asked| {
            let of = match asked.kind {
                LogprobsKind::Raw => &raw,
                LogprobsKind::Processed => &logits,
            };
            scores(of, chosen, asked.num_top as usize)
        });
        (Verdict::Token(chosen), scores)
    }

    /// Whatever a step was to write is spoiled; its copies were made or not.
    fn fail(&mut self, batch: &StepBatch) {
        self.is_broken = true;
        if self.trace.num_steps.is_multiple_of(2) {
            self.pool.copy_blocks(batch);
        } else {
            self.pool.poison_copies(batch);
        }
        self.pool.poison_writes(batch);
    }
}

impl Executor for FakeExecutor {
    fn submit(&mut self, batch: &StepBatch) -> Result<(), ExecutorError> {
        assert!(self.pending.len() < self.depth, "too many steps in flight");
        assert!(
            batch.carried.is_empty() || !self.pending.is_empty(),
            "tokens are carried from a step that was collected"
        );
        let mut batch = batch.clone();
        batch_checks::check(&self.config, &self.pool, &batch);
        if let Some(Canary::Batch(damage)) = self.canary {
            damage(&mut batch);
        }
        self.note(&batch);
        let fault = self.faults.pop_front().flatten();
        if let Some(Fault::Submit(error)) = fault {
            self.compute_all();
            let was_broken = self.is_broken;
            self.fail(&batch);
            self.is_broken = was_broken;
            return Err(error);
        }
        self.pending.push_back(Pending {
            batch,
            fault,
            rows: None,
        });
        if !self.computes_late {
            self.compute_all();
        }
        Ok(())
    }

    fn collect(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        assert!(output.verdicts().is_empty(), "the output comes empty");
        self.compute_all();
        let step = self.pending.pop_front().expect("a step was submitted");
        if self.pending.is_empty() {
            self.is_broken = false;
        }
        if let Some(Fault::Collect(error)) = step.fault {
            if !matches!(self.canary, Some(Canary::HiddenFailure)) {
                return Err(error);
            }
            for _ in &step.batch.logit_rows {
                output.push(Verdict::Token(TokenId(0)));
            }
            return Ok(());
        }
        let mut rows = step.rows.expect("just computed");
        match step.fault {
            Some(Fault::ExtraVerdict) => rows.push((Verdict::Token(TokenId(0)), None)),
            Some(Fault::MissingVerdict) => drop(rows.pop()),
            _ => {}
        }
        for row in rows {
            push(output, row);
        }
        Ok(())
    }

    fn steps_in_flight_max(&self) -> usize {
        self.depth
    }

    fn submit_draft(
        &mut self,
        source: DraftSource,
        batch: &StepBatch,
    ) -> Result<(), ExecutorError> {
        self.compute_all();
        self.num_passes += 1;
        let num_passes = self.num_passes;
        let is_failing = |every: u64| num_passes.is_multiple_of(every);
        let rows = match source {
            DraftSource::DraftModel => self.draft_pass(batch),
            DraftSource::LayerSkip => self.layer_pass(batch),
        };
        if self.draft_failures.is_some_and(is_failing) {
            return Err(ExecutorError {
                scope: FailureScope::All,
                message: "a planted failure of a draft pass".into(),
            });
        }
        let token = |row: &Verdict| match row {
            Verdict::Token(token) => Some(token.0),
            Verdict::NotFinite | Verdict::Unreached => None,
        };
        self.previous_drafts = rows.iter().map(token).collect();
        self.draft_rows.push_back(rows);
        Ok(())
    }

    fn collect_draft(&mut self, output: &mut StepOutput) -> Result<(), ExecutorError> {
        let rows = self.draft_rows.pop_front();
        for verdict in rows.expect("a draft pass was submitted") {
            output.push(verdict);
        }
        Ok(())
    }
}
