use super::*;

fn capacity() -> StepCapacity {
    StepCapacity {
        tokens: 7,
        seqs: 3,
        logit_rows: 5,
        copies: 2,
        blocks_per_seq: vec![4, 2],
    }
}

struct Sample {
    token_ids: Vec<u32>,
    positions: Vec<u32>,
    seq_of_token: Vec<u32>,
    query_offsets: Vec<u32>,
    context_lens: Vec<u32>,
    slots: Vec<u32>,
    tables: Vec<u32>,
}

impl Sample {
    fn new() -> Self {
        Self {
            token_ids: vec![5, 6, 7],
            positions: vec![9, 0, 1],
            seq_of_token: vec![0, 1, 1],
            query_offsets: vec![0, 1, 3],
            context_lens: vec![10, 2],
            slots: vec![13, 20, 21],
            tables: vec![1, 2, 3, 5, 0, 0],
        }
    }

    fn with<R>(&self, use_step: impl FnOnce(&StepArrays<'_>) -> R) -> R {
        let group = GroupArrays {
            slot_mapping: &self.slots,
            block_tables: &self.tables,
            blocks_per_seq: 3,
            num_blocks: 6,
            block_size: 4,
        };
        let sampling = [SamplingRow {
            temperature: 0.5,
            seed: 0x1_2345_6789_abcd,
            position: 10,
        }; 2];
        use_step(&StepArrays {
            token_ids: &self.token_ids,
            positions: &self.positions,
            seq_of_token: &self.seq_of_token,
            query_offsets: &self.query_offsets,
            context_lens: &self.context_lens,
            logit_rows: &[0, 2],
            sampling: &sampling,
            block_copies: &[(1, 4)],
            groups: &[group],
        })
    }
}

#[test]
fn a_packed_step_reads_back_as_it_was() {
    let sample = Sample::new();
    let mut inputs = StepInputs::new(capacity());
    sample.with(|step| inputs.fill(step, 11)).unwrap();
    let view = StepView::new(inputs.words());
    assert_eq!(view.token_ids(), sample.token_ids);
    assert_eq!(view.positions(), sample.positions);
    assert_eq!(view.seq_of_token(), sample.seq_of_token);
    assert_eq!(view.query_offsets(), sample.query_offsets);
    assert_eq!(view.context_lens(), sample.context_lens);
    assert_eq!(view.logit_rows(), [0, 2]);
    assert_eq!(view.slot_mapping(0), sample.slots);
    assert_eq!(view.block_table(0, 0), [1, 2, 3, 0]);
    assert_eq!(view.block_table(0, 1), [5, 0, 0, 0]);
    assert_eq!(view.sampling(1).seed, 0x1_2345_6789_abcd);
    assert_eq!(view.block_copies().collect::<Vec<_>>(), [(1, 4)]);
}

#[test]
fn refilling_leaves_nothing_of_the_step_before() {
    let sample = Sample::new();
    let mut inputs = StepInputs::new(capacity());
    sample.with(|step| inputs.fill(step, 11)).unwrap();
    let first = inputs.words().to_vec();
    let mut other = Sample::new();
    other.tables = vec![3, 1, 2, 2, 5, 0];
    other.with(|step| inputs.fill(step, 11)).unwrap();
    sample.with(|step| inputs.fill(step, 11)).unwrap();
    assert_eq!(inputs.words(), first);
}

#[test]
fn every_index_that_points_outside_is_refused() {
    let refused = |change: fn(&mut Sample)| {
        let mut sample = Sample::new();
        change(&mut sample);
        let mut inputs = StepInputs::new(capacity());
        sample.with(|step| inputs.fill(step, 11)).unwrap_err()
    };
    let is_index = |error: StepInputsError, name: &str| {
        assert!(
            matches!(error, StepInputsError::Index { array, .. } if array == name),
            "{error} is not about {name}"
        );
    };
    is_index(refused(|s| s.token_ids[1] = 11), "token_ids");
    is_index(refused(|s| s.slots[2] = 24), "slot_mapping");
    is_index(refused(|s| s.tables[0] = 6), "block_tables");
    is_index(refused(|s| s.seq_of_token[0] = 2), "seq_of_token");
    is_index(refused(|s| s.positions[0] = 10), "positions");
    is_index(refused(|s| s.query_offsets[1] = 4), "query_offsets");
}

#[test]
fn a_step_larger_than_the_buffer_is_refused() {
    let sample = Sample::new();
    let small = StepCapacity {
        tokens: 2,
        ..capacity()
    };
    let error = sample
        .with(|step| StepInputs::new(small).fill(step, 11))
        .unwrap_err();
    assert_eq!(
        error,
        StepInputsError::Capacity {
            what: "tokens",
            found: 3,
            capacity: 2
        }
    );
}
