//! A model on a device, run one hand-made step at a time.
//!
//! Block tables are shuffled on purpose: a kernel that read neighbouring blocks instead of the
//! table's would give other logits.

use forerun_engine::{
    BatchSeq, Generation, GroupBatch, RequestId, SamplingParams, SamplingRow, SeqId, StepBatch,
    StepOutput, TokenId, Verdict,
};
use forerun_models::devices::{self, DeviceChoice};
use forerun_models::model::{ActivationMode, LoadOptions, ModelFiles};
use forerun_models::runner::ModelRunner;
use std::path::Path;

/// Tokens a sequence of a session may have.
const SEQ_LEN_MAX: usize = 1024;
const BLOCK_SIZE: usize = 8;
const BLOCKS_PER_SEQ: usize = SEQ_LEN_MAX / BLOCK_SIZE;
const SEQS_MAX: usize = 4;
const SEED: u64 = 7;

/// A loaded model and the tokens of up to [`SEQS_MAX`] sequences.
pub(crate) struct Session {
    runner: ModelRunner,
    vocab_size: usize,
    num_groups: usize,
    lens: [usize; SEQS_MAX],
}

/// Tokens to append to one sequence in a step.
pub(crate) struct Chunk<'a> {
    pub(crate) seq: usize,
    pub(crate) ids: &'a [u32],
    /// Ask for the logits of every token rather than of the last.
    pub(crate) all_rows: bool,
}

impl Session {
    /// Loads a model. `activations` matters on the CPU only.
    pub(crate) fn open(path: &Path, device: DeviceChoice, activations: ActivationMode) -> Self {
        let entry = devices::open(device).unwrap_or_else(|error| panic!("{error}"));
        let files = ModelFiles::open(path).unwrap_or_else(|error| panic!("{error}"));
        let config = files.config();
        let slot_bytes = config.num_layers * 2 * config.num_kv_heads * config.head_dim * 4;
        let num_blocks = 1 + SEQS_MAX * BLOCKS_PER_SEQ;
        // Groups with windows get a smaller share; these sessions keep every block.
        let num_groups = config.kv_windows().len();
        let kv_memory_bytes = num_groups * num_blocks * BLOCK_SIZE * slot_bytes;
        let options = LoadOptions {
            activations,
            block_size: BLOCK_SIZE,
            kv_memory_bytes: Some(kv_memory_bytes as u64),
            ..LoadOptions::new(entry.device().clone())
        };
        let loaded = files
            .load(&options)
            .unwrap_or_else(|error| panic!("{error}"));
        for group in &loaded.plan.groups {
            assert!(group.num_blocks >= num_blocks, "{}", loaded.plan);
        }
        let vocab_size = loaded.config.vocab_size;
        Self {
            runner: loaded.runner,
            vocab_size,
            num_groups,
            lens: [0; SEQS_MAX],
        }
    }

    /// Forgets every sequence.
    pub(crate) fn reset(&mut self) {
        self.lens = [0; SEQS_MAX];
    }

    /// Runs one ragged step and returns its logits, one `[V]` per row asked for, and its verdicts.
    pub(crate) fn step(&mut self, chunks: &[Chunk<'_>]) -> (Vec<Vec<f32>>, Vec<u32>) {
        let batch = self.batch(chunks);
        let mut output = StepOutput::default();
        let logits = self
            .runner
            .execute_with_logits(&batch, &mut output)
            .unwrap_or_else(|error| panic!("{error}"));
        for chunk in chunks {
            self.lens[chunk.seq] += chunk.ids.len();
        }
        let verdicts = output.verdicts().iter().map(|verdict| match verdict {
            Verdict::Token(TokenId(id)) => *id,
            Verdict::NotFinite | Verdict::Unreached => panic!("logits are not finite"),
        });
        let rows = logits
            .chunks_exact(self.vocab_size)
            .map(<[f32]>::to_vec)
            .collect();
        (rows, verdicts.collect())
    }

    /// Appends `ids` to sequence `seq` and returns the logits after the last of them.
    pub(crate) fn last_logits(&mut self, seq: usize, ids: &[u32]) -> Vec<f32> {
        let (mut rows, _) = self.step(&[Chunk {
            seq,
            ids,
            all_rows: false,
        }]);
        rows.pop().expect("one row was asked for")
    }

    /// The logits after each of `ids`, in chunks of at most `chunk_len` tokens.
    pub(crate) fn all_logits(
        &mut self,
        seq: usize,
        ids: &[u32],
        chunk_len: usize,
    ) -> Vec<Vec<f32>> {
        let chunks = ids.chunks(chunk_len);
        chunks
            .flat_map(|ids| {
                self.step(&[Chunk {
                    seq,
                    ids,
                    all_rows: true,
                }])
                .0
            })
            .collect()
    }

    /// Appends `prompt` and then `num_tokens` greedy tokens; returns those and the logits each was
    /// taken from.
    pub(crate) fn greedy(
        &mut self,
        seq: usize,
        prompt: &[u32],
        num_tokens: usize,
    ) -> (Vec<u32>, Vec<Vec<f32>>) {
        let mut tokens = Vec::new();
        let mut logits = Vec::new();
        let mut next = prompt.to_vec();
        while tokens.len() < num_tokens {
            let (mut rows, verdicts) = self.step(&[Chunk {
                seq,
                ids: &next,
                all_rows: false,
            }]);
            logits.extend(rows.pop());
            tokens.push(verdicts[0]);
            next = vec![verdicts[0]];
        }
        (tokens, logits)
    }

    /// The hidden states that enter each layer and leave the last norm, for a new sequence.
    pub(crate) fn hidden_states(&mut self, ids: &[u32]) -> Vec<Vec<f32>> {
        self.reset();
        let batch = self.batch(&[Chunk {
            seq: 0,
            ids,
            all_rows: false,
        }]);
        self.runner
            .hidden_states(&batch)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The runner, for its counts.
    pub(crate) fn runner(&self) -> &ModelRunner {
        &self.runner
    }

    fn batch(&self, chunks: &[Chunk<'_>]) -> StepBatch {
        let mut batch = StepBatch::new(0, self.vocab_size);
        let mut group = GroupBatch {
            blocks_per_seq: BLOCKS_PER_SEQ,
            ..GroupBatch::default()
        };
        batch.query_offsets.push(0);
        for (index, chunk) in chunks.iter().enumerate() {
            let start = self.lens[chunk.seq];
            let end = start + chunk.ids.len();
            let table = shuffled_table(chunk.seq);
            batch.seqs.push(BatchSeq {
                seq: SeqId(chunk.seq as u32),
                generation: Generation(0),
                request: RequestId(chunk.seq as u64),
                planned: index as u32,
            });
            for (offset, position) in (start..end).enumerate() {
                let is_last = position + 1 == end;
                if chunk.all_rows || is_last {
                    batch.logit_rows.push(batch.token_ids.len() as u32);
                    batch.logit_seqs.push(index as u32);
                    let position = position as u32 + 1;
                    let params = SamplingParams {
                        seed: SEED,
                        ..SamplingParams::default()
                    };
                    batch.sampling.push(SamplingRow::new(&params, position));
                }
                batch.token_ids.push(chunk.ids[offset]);
                batch.positions.push(position as u32);
                batch.seq_of_token.push(index as u32);
                let block = table[position / BLOCK_SIZE] as usize;
                group
                    .slot_mapping
                    .push((block * BLOCK_SIZE + position % BLOCK_SIZE) as u32);
            }
            batch.query_offsets.push(batch.token_ids.len() as u32);
            batch.context_lens.push(end as u32);
            group.block_tables.extend(&table);
        }
        batch.groups = vec![group; self.num_groups];
        batch
    }
}

/// Block ids of sequence `seq`: a permutation that interleaves the sequences' blocks.
fn shuffled_table(seq: usize) -> Vec<u32> {
    let num_blocks = SEQS_MAX * BLOCKS_PER_SEQ;
    // 37 is coprime to the power of two `num_blocks`, so this visits every block once.
    let place = |index: usize| (index * 37 + 11) % num_blocks;
    (0..BLOCKS_PER_SEQ)
        .map(|block| 1 + place(seq * BLOCKS_PER_SEQ + block) as u32)
        .collect()
}
