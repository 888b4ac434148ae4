//! An executor over a simulated KV pool, which distrusts every array it is given.

use std::collections::{BTreeSet, VecDeque};

use forerun_engine::{
    EngineConfig, Executor, ExecutorError, GroupBatch, RequestId, StepBatch, StepOutput, Verdict,
};

use crate::fake_model::{NAN_TOKEN, mix, next_token, visible};

/// What a token leaves in a slot.
#[derive(Clone, Copy)]
struct Entry {
    token: u32,
    position: u32,
    /// Layer two: a hash of what the token saw when it was computed.
    state: u64,
}

struct Group {
    slots: Vec<Option<Entry>>,
    window: Option<usize>,
}

pub(crate) struct FakeExecutor {
    block_size: usize,
    step_tokens_max: usize,
    step_seqs_max: usize,
    groups: Vec<Group>,
    /// Errors of the next steps, `None` for a step that works.
    pub(crate) faults: VecDeque<Option<ExecutorError>>,
    /// Damages the arrays as an engine with a bug would.
    pub(crate) canary: Option<fn(&mut StepBatch)>,
    /// Hash of every array of every step.
    pub(crate) trace: u64,
    pub(crate) num_steps: usize,
    pub(crate) num_seqs_max_seen: usize,
    started: BTreeSet<RequestId>,
}

impl FakeExecutor {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let groups = config.groups.iter().map(|group| Group {
            slots: vec![None; group.num_blocks * config.block_size],
            window: group.window,
        });
        Self {
            block_size: config.block_size,
            step_tokens_max: config.step_tokens_max,
            step_seqs_max: config.step_seqs_max,
            groups: groups.collect(),
            faults: VecDeque::new(),
            canary: None,
            trace: 0,
            num_steps: 0,
            num_seqs_max_seen: 0,
            started: BTreeSet::new(),
        }
    }

    /// What the arrays promise, from their documentation.
    fn check(&self, batch: &StepBatch) {
        let (num_tokens, num_seqs) = (batch.num_tokens(), batch.num_seqs());
        assert!(
            (1..=self.step_tokens_max).contains(&num_tokens),
            "{num_tokens} tokens"
        );
        assert!(
            (1..=self.step_seqs_max).contains(&num_seqs),
            "{num_seqs} sequences"
        );
        assert_eq!(batch.query_offsets.len(), num_seqs + 1);
        assert_eq!(
            (
                batch.query_offsets[0],
                batch.query_offsets[num_seqs] as usize
            ),
            (0, num_tokens)
        );
        for seq in 0..num_seqs {
            let rows = batch.query_offsets[seq] as usize..batch.query_offsets[seq + 1] as usize;
            assert!(!rows.is_empty(), "sequence {seq} runs nothing");
            let first = batch.positions[rows.start];
            for (offset, row) in rows.clone().enumerate() {
                assert_eq!(
                    batch.positions[row],
                    first + offset as u32,
                    "positions are consecutive"
                );
                assert_eq!(batch.seq_of_token[row], seq as u32);
            }
            assert_eq!(batch.context_lens[seq], first + rows.len() as u32);
        }
        assert_eq!(batch.logit_rows.len(), batch.sampling.len());
        assert_eq!(batch.logit_rows.len(), batch.logit_seqs.len());
        assert!(batch.logit_rows.is_sorted());
        for (&row, &seq) in batch.logit_rows.iter().zip(&batch.logit_seqs) {
            assert_eq!(
                row + 1,
                batch.query_offsets[seq as usize + 1],
                "a row is its sequence's last"
            );
        }
        for group in &batch.groups {
            self.check_group(batch, group);
        }
    }

    fn check_group(&self, batch: &StepBatch, group: &GroupBatch) {
        assert_eq!(
            group.block_tables.len(),
            batch.num_seqs() * group.blocks_per_seq
        );
        let mut written = BTreeSet::new();
        for (token, &slot) in group.slot_mapping.iter().enumerate() {
            let seq = batch.seq_of_token[token] as usize;
            assert_eq!(slot as usize, self.slot(group, seq, batch.positions[token]));
            assert!(
                slot as usize >= self.block_size,
                "slot {slot} is in the null block"
            );
            assert!(
                written.insert(slot),
                "slot {slot} is written twice in one step"
            );
        }
        assert_eq!(written.len(), batch.num_tokens());
    }

    fn slot(&self, group: &GroupBatch, seq: usize, position: u32) -> usize {
        let logical = position as usize / self.block_size;
        assert!(
            logical < group.blocks_per_seq,
            "position {position} is past the block table"
        );
        let block = group.block_tables[seq * group.blocks_per_seq + logical] as usize;
        block * self.block_size + position as usize % self.block_size
    }

    /// Hash of what the query at `position` of `seq` sees in every group.
    fn attend(&self, batch: &StepBatch, seq: usize, position: u32, of: fn(&Entry) -> u64) -> u64 {
        let mut hash = 0;
        for (group, arrays) in self.groups.iter().zip(&batch.groups) {
            for seen in visible(position, group.window) {
                let slot = self.slot(arrays, seq, seen);
                assert!(
                    slot >= self.block_size,
                    "position {seen} was let go but is visible"
                );
                let entry = group.slots[slot]
                    .as_ref()
                    .expect("read of a slot never written");
                hash = mix(mix(hash, u64::from(entry.position)), of(entry));
            }
        }
        hash
    }

    /// Keys and values of every token, layer by layer.
    fn write(&mut self, batch: &StepBatch) {
        for (group, arrays) in self.groups.iter_mut().zip(&batch.groups) {
            for (token, &slot) in arrays.slot_mapping.iter().enumerate() {
                let (id, position) = (batch.token_ids[token], batch.positions[token]);
                group.slots[slot as usize] = Some(Entry {
                    token: id,
                    position,
                    state: 0,
                });
            }
        }
        for token in 0..batch.num_tokens() {
            let (seq, position) = (batch.seq_of_token[token] as usize, batch.positions[token]);
            let state = self.attend(batch, seq, position, |entry| u64::from(entry.token));
            for (group, arrays) in self.groups.iter_mut().zip(&batch.groups) {
                let entry = group.slots[arrays.slot_mapping[token] as usize].as_mut();
                entry.expect("written above").state = state;
            }
        }
    }

    /// A failed step leaves anything at all in the slots it was to write.
    fn poison(&mut self, batch: &StepBatch) {
        for (group, arrays) in self.groups.iter_mut().zip(&batch.groups) {
            for &slot in &arrays.slot_mapping {
                let garbage = Entry {
                    token: u32::MAX,
                    position: u32::MAX,
                    state: u64::MAX,
                };
                group.slots[slot as usize] = Some(garbage);
            }
        }
    }

    /// First come, first served: whoever runs for the first time came after all who ran before.
    fn check_order(&mut self, batch: &StepBatch) {
        for entry in &batch.seqs {
            let newest = self.started.last().copied();
            if self.started.insert(entry.request) {
                assert!(
                    newest < Some(entry.request),
                    "{} overtook {newest:?}",
                    entry.request
                );
            }
        }
    }

    fn record(&mut self, batch: &StepBatch) {
        let mut arrays: Vec<&[u32]> = vec![
            &batch.token_ids,
            &batch.positions,
            &batch.query_offsets,
            &batch.context_lens,
            &batch.logit_rows,
        ];
        for group in &batch.groups {
            arrays.extend([group.slot_mapping.as_slice(), group.block_tables.as_slice()]);
        }
        for array in arrays {
            let fold = |hash, &word| mix(hash, u64::from(word));
            self.trace = array.iter().fold(mix(self.trace, array.len() as u64), fold);
        }
        self.num_steps += 1;
        self.num_seqs_max_seen = self.num_seqs_max_seen.max(batch.num_seqs());
    }
}

impl Executor for FakeExecutor {
    fn execute(&mut self, batch: &StepBatch, output: &mut StepOutput) -> Result<(), ExecutorError> {
        assert!(output.verdicts().is_empty());
        let mut batch = batch.clone();
        if let Some(damage) = self.canary {
            damage(&mut batch);
        } else {
            self.check(&batch);
        }
        self.check_order(&batch);
        self.record(&batch);
        if let Some(error) = self.faults.pop_front().flatten() {
            self.poison(&batch);
            return Err(error);
        }
        self.write(&batch);
        for (row, &token) in batch.logit_rows.iter().enumerate() {
            let token = token as usize;
            let (seq, position) = (batch.seq_of_token[token] as usize, batch.positions[token]);
            let hash = self.attend(&batch, seq, position, |entry| entry.state);
            output.push(if batch.token_ids[token] == NAN_TOKEN {
                Verdict::NotFinite
            } else {
                Verdict::Token(next_token(hash, &batch.sampling[row]))
            });
        }
        Ok(())
    }
}
