use super::*;

fn capacity() -> StepCapacity {
    StepCapacity {
        tokens: 7,
        seqs: 3,
        logit_rows: 5,
        history: 3,
        bias: 2,
        mask_words: 2,
        carried: 2,
        tails: 2,
        blocks_per_seq: vec![4, 2],
        copies: vec![2, 1],
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
    sampling: [SamplingRow; 2],
    history: Vec<TokenCount>,
    bias: Vec<(u32, f32)>,
    masks: Vec<u32>,
    carried: Vec<CarriedToken>,
    tail_bases: Vec<u32>,
    tail_offsets: Vec<u32>,
    tails: Vec<u32>,
    copies: Vec<(u32, u32)>,
}

impl Sample {
    fn new() -> Self {
        let second = SamplingRow {
            top_k: 3,
            top_p: 0.9,
            min_p: 0.1,
            typical_p: 0.8,
            repetition_penalty: 1.1,
            presence_penalty: 0.2,
            frequency_penalty: 0.3,
            history: (1, 3),
            bias: (0, 1),
            mask: Some(1),
            carried_row: Some(2),
            target: Some(10),
            draft_row: Some(6),
            verification: Verification::Block,
            purpose: NoisePurpose::Draft,
            anchor: 8,
            logprobs: Some(LogprobsRow {
                num_top: 4,
                kind: LogprobsKind::Processed,
            }),
            ..SamplingRow::plain(0.5, 0x1_2345_6789_abcd, 10)
        };
        let count = |token, output_count, in_prompt| TokenCount {
            token,
            output_count,
            in_prompt,
        };
        Self {
            token_ids: vec![5, 6, 7],
            positions: vec![9, 0, 1],
            seq_of_token: vec![0, 1, 1],
            query_offsets: vec![0, 1, 3],
            context_lens: vec![10, 2],
            slots: vec![13, 20, 21],
            tables: vec![1, 2, 3, 5, 0, 0],
            sampling: [SamplingRow::greedy(3), second],
            history: vec![
                count(9, 0, true),
                count(10, 3, false),
                count(0, OUTPUT_COUNT_BITS, true),
            ],
            bias: vec![(10, f32::NEG_INFINITY), (1, 0.5)],
            masks: vec![0x7ff, 0x123],
            carried: vec![CarriedToken { token: 2, row: 1 }],
            tail_bases: vec![9, 2],
            tail_offsets: vec![0, 1, 1],
            tails: vec![11],
            copies: vec![(1, 4)],
        }
    }

    fn with<R>(&self, use_step: impl FnOnce(&StepArrays<'_>) -> R) -> R {
        let group = GroupArrays {
            slot_mapping: &self.slots,
            block_tables: &self.tables,
            blocks_per_seq: 3,
            num_blocks: 6,
            block_size: 4,
            block_copies: &self.copies,
        };
        use_step(&StepArrays {
            token_ids: &self.token_ids,
            positions: &self.positions,
            seq_of_token: &self.seq_of_token,
            query_offsets: &self.query_offsets,
            context_lens: &self.context_lens,
            logit_rows: &[0, 2],
            sampling: &self.sampling,
            history: &self.history,
            bias: &self.bias,
            masks: &self.masks,
            carried: &self.carried,
            previous_rows: 3,
            tail_bases: &self.tail_bases,
            tail_offsets: &self.tail_offsets,
            tails: &self.tails,
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
    assert_eq!([view.sampling(0), view.sampling(1)], sample.sampling);
    assert_eq!(view.carried_token(0), None);
    assert_eq!(view.carried_token(1), Some(0));
    let history: Vec<TokenCount> = view.history((1, 3)).collect();
    assert_eq!(history, sample.history[1..]);
    assert_eq!(view.bias((0, 2)).collect::<Vec<_>>(), sample.bias);
    assert_eq!(view.mask(1, 11), [0x123]);
    assert_eq!(view.carried().collect::<Vec<_>>(), sample.carried);
    assert_eq!(view.block_copies(0).collect::<Vec<_>>(), [(1, 4)]);
    assert_eq!(view.block_copies(1).count(), 0);
    let places = [(0, 8), (0, 9), (1, 1)].map(|(seq, position)| view.place_of(seq, position));
    assert_eq!(places, [8, 11, 1]);
}

#[test]
fn rows_need_processing_exactly_where_a_parameter_is_on() {
    let plain = SamplingRow::plain(0.7, 1, 2);
    let off = [
        plain,
        SamplingRow::greedy(0),
        SamplingRow {
            repetition_penalty: 1.5,
            ..plain
        },
        SamplingRow {
            top_k: 5,
            typical_p: 0.5,
            ..SamplingRow::greedy(0)
        },
        SamplingRow {
            history: (0, 2),
            carried_row: Some(0),
            ..plain
        },
    ];
    let on = [
        SamplingRow { top_k: 1, ..plain },
        SamplingRow {
            top_p: 0.99,
            ..plain
        },
        SamplingRow {
            min_p: 0.01,
            ..plain
        },
        SamplingRow {
            typical_p: 0.9,
            ..plain
        },
        SamplingRow {
            bias: (0, 1),
            ..plain
        },
        SamplingRow {
            mask: Some(0),
            ..SamplingRow::greedy(0)
        },
        SamplingRow {
            frequency_penalty: -0.1,
            carried_row: Some(0),
            ..plain
        },
        SamplingRow {
            presence_penalty: 0.1,
            history: (0, 1),
            ..plain
        },
    ];
    assert!(off.iter().all(|row| !row.needs_processing()));
    assert!(on.iter().all(SamplingRow::needs_processing));
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
    is_index(refused(|s| s.copies[0].1 = 6), "block_copies");
    is_index(refused(|s| s.history[0].token = 11), "history");
    is_index(
        refused(|s| s.history[0].output_count = 1 << 31),
        "history counts",
    );
    is_index(refused(|s| s.bias[1].0 = 11), "bias");
    is_index(refused(|s| s.carried[0].token = 3), "carried");
    is_index(refused(|s| s.carried[0].row = 3), "carried rows");
    is_index(
        refused(|s| s.sampling[0].history = (2, 1)),
        "sampling history",
    );
    is_index(
        refused(|s| s.sampling[0].history = (0, 4)),
        "sampling history",
    );
    is_index(refused(|s| s.sampling[0].bias = (3, 3)), "sampling bias");
    is_index(refused(|s| s.sampling[0].mask = Some(2)), "sampling mask");
    is_index(
        refused(|s| s.sampling[0].carried_row = Some(3)),
        "sampling carried_row",
    );
    is_index(
        refused(|s| s.sampling[0].target = Some(11)),
        "sampling target",
    );
    is_index(refused(|s| s.tail_bases[0] = 11), "tail_bases");
    is_index(refused(|s| s.tail_offsets[1] = 2), "tail_offsets");
    is_index(refused(|s| s.tails[0] = 12), "tails");
    is_index(refused(|s| s.sampling[0].num_drafts = 2), "num_drafts");
    is_index(refused(|s| s.sampling[0].num_drafts = 1), "parent_row");
    is_index(
        refused(|s| s.sampling[1].logprobs.as_mut().unwrap().num_top = 12),
        "sampling num_top",
    );
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
