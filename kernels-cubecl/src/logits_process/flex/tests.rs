use std::num::NonZeroUsize;

use super::*;
use crate::simd::sample_values;
use crate::step_inputs::{StepArrays, StepCapacity, StepInputs, TokenCount, mask_row_words};

/// Rows of one call.
#[derive(Clone, Default)]
struct Batch {
    vocab_size: usize,
    logits: Vec<f32>,
    rows: Vec<SamplingRow>,
    history: Vec<TokenCount>,
    bias: Vec<(u32, f32)>,
    masks: Vec<u32>,
}

impl Batch {
    fn new(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            ..Self::default()
        }
    }

    /// Adds a row with history, biases and a mask if it is to have them.
    fn push(&mut self, row: &reference::Row<'_>) {
        let start = (self.history.len() as u32, self.bias.len() as u32);
        self.history.extend(row.history);
        self.bias.extend(row.bias);
        let mask = row.mask.map(|words| {
            self.masks.extend(words);
            (self.masks.len() / words.len()) as u32 - 1
        });
        self.logits.extend(row.logits);
        self.rows.push(SamplingRow {
            history: (start.0, self.history.len() as u32),
            bias: (start.1, self.bias.len() as u32),
            mask,
            carried_row: row.carried,
            ..row.sampling
        });
    }

    /// Processes; the carried token of a row is its carried row.
    fn run(&self, isa: Isa, num_threads: usize) -> Vec<f32> {
        let mut inputs = StepInputs::new(StepCapacity {
            tokens: 1,
            seqs: 1,
            logit_rows: self.rows.len() + 1,
            history: self.history.len(),
            bias: self.bias.len(),
            mask_words: self.masks.len(),
            ..StepCapacity::default()
        });
        let step = StepArrays {
            token_ids: &[0],
            positions: &[0],
            seq_of_token: &[0],
            query_offsets: &[0, 1],
            context_lens: &[1],
            logit_rows: &vec![0; self.rows.len()],
            sampling: &self.rows,
            history: &self.history,
            bias: &self.bias,
            masks: &self.masks,
            previous_rows: self.vocab_size,
            ..StepArrays::default()
        };
        inputs.fill(&step, self.vocab_size).unwrap();
        let mut words = inputs.words().to_vec();
        let verdicts: Vec<u32> = (0..self.vocab_size as u32).collect();
        crate::advance::flex::advance(&mut words, &verdicts, 1);
        let mut logits = self.logits.clone();
        let threads = Threads::new(NonZeroUsize::new(num_threads).unwrap());
        let view = StepView::new(&words);
        logits_process_on(isa, &threads, &mut logits, self.vocab_size, view);
        logits
    }
}

/// Awkward and ordinary rows' parameters.
fn parameters(vocab_size: usize) -> Vec<SamplingRow> {
    let base = SamplingRow::plain(0.8, 1, 2);
    let v = vocab_size as u32;
    let mut rows: Vec<SamplingRow> = [0, 1, 2, v - 1, v, 9_999_999]
        .into_iter()
        .map(|top_k| SamplingRow { top_k, ..base })
        .collect();
    for temperature in [1e-8, 1e-5, 0.01, 0.7, 1.0, 100.0] {
        let row = SamplingRow {
            temperature,
            ..base
        };
        rows.push(SamplingRow { top_p: 0.9, ..row });
        rows.push(SamplingRow { top_p: 0.0, ..row });
        rows.push(SamplingRow {
            typical_p: 0.6,
            ..row
        });
        rows.push(SamplingRow { min_p: 0.05, ..row });
        rows.push(SamplingRow { min_p: 1.0, ..row });
        rows.push(SamplingRow {
            top_k: 40,
            top_p: 0.95,
            min_p: 0.02,
            ..row
        });
        rows.push(SamplingRow {
            top_k: 50,
            top_p: 0.98,
            typical_p: 0.9,
            min_p: 0.1,
            repetition_penalty: 1.3,
            presence_penalty: 0.4,
            frequency_penalty: -0.2,
            ..row
        });
    }
    rows
}

/// The reference with masses moved by what f32 may be off.
fn neighbours(row: &reference::Row<'_>) -> Vec<reference::Processed> {
    let mut all = Vec::new();
    for step in 0..27 {
        let moved = |value: f32, digit: i32| value * (1.0 + 1e-6 * (digit % 3 - 1) as f32);
        let mut sampling = row.sampling;
        if sampling.top_p < 1.0 {
            sampling.top_p = moved(sampling.top_p, step);
        }
        if sampling.typical_p < 1.0 {
            sampling.typical_p = moved(sampling.typical_p, step / 3);
        }
        sampling.min_p = moved(sampling.min_p, step / 9);
        all.push(reference::process(&reference::Row {
            sampling,
            ..row.clone()
        }));
    }
    all
}

fn check(row: &reference::Row<'_>, found: &[f32], context: &str) {
    let is_it = |expected: &reference::Processed| {
        found.iter().enumerate().all(|(token, &found)| {
            let logit = expected.logits[token];
            if expected.kept[token] {
                (f64::from(found) - logit).abs() <= 1e-5 * logit.abs().max(1.0)
            } else {
                found.to_bits() == f32::NEG_INFINITY.to_bits()
            }
        })
    };
    if is_it(&reference::process(row)) || neighbours(row).iter().any(is_it) {
        return;
    }
    let expected = reference::process(row);
    let kept = expected.kept.iter().filter(|kept| **kept).count();
    let found = found.iter().filter(|x| x.is_finite()).count();
    panic!(
        "{context}: {found} tokens kept, expected {kept}; {:?}",
        row.sampling
    );
}

/// What rows of a vocabulary have besides logits.
struct Extras {
    history: Vec<TokenCount>,
    bias: Vec<(u32, f32)>,
    mask: Vec<u32>,
}

fn extras(vocab_size: usize, seed: u64) -> Extras {
    let v = vocab_size as u32;
    let mut mask: Vec<u32> = sample_values(seed, mask_row_words(vocab_size))
        .iter()
        .map(|x| x.to_bits().wrapping_mul(0x9e37_79b9) | 1)
        .collect();
    mask[0] |= u32::from(seed.is_multiple_of(2)).wrapping_neg();
    let history = (0..v.min(40)).filter(|i| i % 3 != 1).map(|i| TokenCount {
        token: (u64::from(i) * u64::from(v) / u64::from(v.min(40))) as u32,
        output_count: i % 4,
        in_prompt: i % 2 == 0,
    });
    Extras {
        history: history.collect(),
        bias: vec![(v / 2, 1.5), (v - 1, f32::NEG_INFINITY)][..usize::from(v > 1) * 2].to_vec(),
        mask,
    }
}

#[test]
fn rows_become_what_the_definition_says_for_every_vocabulary_and_parameter() {
    for (seed, vocab_size) in [1, 2, 31, 33, 319, 1000, 49_152].into_iter().enumerate() {
        let extras = extras(vocab_size, seed as u64);
        let logits = [
            sample_values(seed as u64, vocab_size),
            vec![0.5; vocab_size],
        ];
        let logits = logits.map(|row| row.iter().map(|x| x * 9.0).collect::<Vec<f32>>());
        let mut rows = Vec::new();
        for (i, sampling) in parameters(vocab_size).into_iter().enumerate() {
            let has = |bit: usize| (i + seed) >> bit & 1 == 1;
            rows.push(reference::Row {
                logits: &logits[usize::from(i % 7 == 5)],
                sampling,
                history: if has(0) { &extras.history } else { &[] },
                bias: if has(1) { &extras.bias } else { &[] },
                mask: has(2).then_some(&extras.mask[..]),
                carried: (i % 5 > 2).then_some((i % 5 - 3) as u32 * (vocab_size as u32 - 1)),
            });
        }
        let mut batch = Batch::new(vocab_size);
        for row in &rows {
            batch.push(row);
        }
        let isas = if vocab_size > 1000 {
            vec![Isa::detect()]
        } else {
            Isa::all()
        };
        for isa in isas {
            let found = batch.run(isa, 3);
            for (row, found) in rows.iter().zip(found.chunks(vocab_size)) {
                check(row, found, &format!("V={vocab_size} {isa:?}"));
            }
        }
    }
}

#[test]
fn a_row_depends_neither_on_its_neighbours_nor_on_threads() {
    let vocab_size = 20_011;
    let extras = extras(vocab_size, 5);
    let logits = sample_values(5, vocab_size);
    let logits: Vec<f32> = logits.iter().map(|x| x * 6.0).collect();
    let mut together = Batch::new(vocab_size);
    let mut alone = Vec::new();
    for (i, sampling) in parameters(vocab_size).into_iter().enumerate() {
        let mut rotated = logits.clone();
        rotated.rotate_left(17 * i);
        let row = reference::Row {
            logits: &rotated,
            sampling,
            history: &extras.history,
            bias: &extras.bias,
            mask: (i % 2 == 0).then_some(&extras.mask[..]),
            carried: None,
        };
        together.push(&row);
        let mut single = Batch::new(vocab_size);
        single.push(&row);
        alone.extend(single.run(Isa::detect(), 1));
    }
    let bits = |row: Vec<f32>| row.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
    let alone = bits(alone);
    for num_threads in [1, 2, 5] {
        assert!(bits(together.run(Isa::detect(), num_threads)) == alone);
    }
}

#[test]
fn rows_that_ask_for_nothing_and_rows_that_cannot_be_sampled_keep_every_bit() {
    let vocab_size = 100;
    let good = sample_values(2, vocab_size);
    let mask = [1_u32, 0, 0, 0];
    let mut batch = Batch::new(vocab_size);
    let wanting = SamplingRow {
        top_k: 3,
        top_p: 0.5,
        ..SamplingRow::plain(1.0, 0, 0)
    };
    let with = |value: f32| {
        let mut row = good.clone();
        row[77] = value;
        row
    };
    let rows = [
        (good.clone(), SamplingRow::plain(1.0, 0, 0), None),
        (with(f32::NAN), wanting, Some(&mask[..])),
        (with(f32::INFINITY), wanting, Some(&mask[..])),
        (vec![f32::NEG_INFINITY; vocab_size], wanting, None),
    ];
    for (logits, sampling, mask) in &rows {
        batch.push(&reference::Row {
            logits,
            sampling: *sampling,
            history: &[],
            bias: &[],
            mask: *mask,
            carried: None,
        });
    }
    // All tokens masked by the grammar: filters have nothing to keep.
    batch.push(&reference::Row {
        logits: &good,
        sampling: wanting,
        history: &[],
        bias: &[],
        mask: Some(&[0; 4]),
        carried: None,
    });
    let found = batch.run(Isa::detect(), 2);
    let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
    assert!(same(
        &found[..4 * vocab_size],
        &batch.logits[..4 * vocab_size]
    ));
    assert!(same(&found[4 * vocab_size..], &[f32::NEG_INFINITY; 100]));
}
