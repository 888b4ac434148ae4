use std::num::NonZeroUsize;

use super::*;
use crate::simd::sample_values;

fn threads(num_threads: usize) -> Threads {
    Threads::new(NonZeroUsize::new(num_threads).unwrap())
}

fn row(temperature: f32, seed: u64, position: u32) -> SamplingRow {
    SamplingRow::plain(temperature, seed, position)
}

fn run(isa: Isa, logits: &[f32], vocab_size: usize, rows: &[SamplingRow]) -> Vec<u32> {
    let mut verdicts = vec![9; 2 * rows.len()];
    sample_on(
        isa,
        &threads(3),
        (logits, vocab_size),
        |row| rows[row],
        &mut verdicts,
    );
    verdicts
}

#[test]
fn tokens_are_those_of_the_definition_for_every_vocabulary_and_temperature() {
    for vocab_size in [
        1, 2, 15, 16, 17, 319, 16_383, 16_384, 16_385, 49_152, 70_001,
    ] {
        let temperatures = [0.0, 1e-3, 0.3, 1.0, 2.0, 100.0, f32::NAN, 1e-7];
        let rows: Vec<SamplingRow> = temperatures
            .iter()
            .enumerate()
            .map(|(i, &temperature)| {
                row(temperature, 0x1234_5678_9abc_def0 + i as u64, 40 + i as u32)
            })
            .collect();
        let mut logits = sample_values(vocab_size as u64, rows.len() * vocab_size);
        for logit in &mut logits {
            *logit *= 12.0;
        }
        for isa in Isa::all() {
            let got = run(isa, &logits, vocab_size, &rows);
            for (i, sampling) in rows.iter().enumerate() {
                let logits = &logits[i * vocab_size..(i + 1) * vocab_size];
                let want = reference::sample(logits, sampling);
                assert_eq!(got[2 * i + 1], 0);
                if got[2 * i] != want[0] {
                    // f64 and f32 noise may order two tokens differently only if they are equal
                    // but for rounding.
                    let maximum = logits.iter().copied().fold(f32::MIN, f32::max);
                    let score = |t: u32| reference::score(logits[t as usize], maximum, sampling, t);
                    let (a, b) = (score(got[2 * i]), score(want[0]));
                    assert!((a - b).abs() <= 2e-6 * b.abs().max(1.0), "{isa:?} {a} {b}");
                }
                // Alone, a row gives what it gives among others.
                assert_eq!(
                    run(isa, logits, vocab_size, &[*sampling]),
                    got[2 * i..2 * i + 2]
                );
            }
        }
    }
}

#[test]
fn tiny_temperatures_give_the_argmax() {
    let vocab_size = 1000;
    let mut logits = sample_values(3, vocab_size);
    for logit in &mut logits {
        *logit *= 30.0;
    }
    logits[617] = 30.5;
    for isa in Isa::all() {
        for temperature in [0.0, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, -1.0] {
            assert_eq!(
                run(isa, &logits, vocab_size, &[row(temperature, 7, 7)]),
                [617, 0]
            );
        }
    }
}

#[test]
fn among_equal_logits_a_greedy_row_takes_the_lowest_id() {
    let mut logits = vec![-3.0; 40_000];
    for token_id in [20_000, 20_001, 33_000, 39_999] {
        logits[token_id] = 2.5;
    }
    for isa in Isa::all() {
        assert_eq!(run(isa, &logits, 40_000, &[row(0.0, 0, 0)]), [20_000, 0]);
        assert_eq!(run(isa, &[0.0; 33], 33, &[row(0.0, 0, 0)]), [0, 0]);
    }
}

#[test]
fn rows_that_cannot_be_sampled_say_so_and_leave_their_neighbours_alone() {
    let vocab_size = 17_000;
    let good = sample_values(1, vocab_size);
    let with = |values: &[(usize, f32)]| {
        let mut logits = good.clone();
        for &(i, value) in values {
            logits[i] = value;
        }
        logits
    };
    let rows = [
        vec![f32::NAN; vocab_size],
        good.clone(),
        with(&[(16_999, f32::NAN)]),
        vec![f32::NEG_INFINITY; vocab_size],
        with(&[(3, f32::INFINITY)]),
        with(&[(0, -f32::NAN), (5, f32::NEG_INFINITY)]),
        with(&[(5, f32::NEG_INFINITY)]),
    ];
    let logits = rows.concat();
    for isa in Isa::all() {
        for temperature in [0.0, 0.8, f32::INFINITY] {
            let sampling = [row(temperature, 11, 3); 7];
            let got = run(isa, &logits, vocab_size, &sampling);
            let statuses: Vec<u32> = got.chunks(2).map(|verdict| verdict[1]).collect();
            assert_eq!(statuses, [1, 0, 1, 1, 1, 1, 0]);
            assert_eq!(got[2..4], run(isa, &good, vocab_size, &sampling[..1]));
        }
    }
}

#[test]
fn a_masked_token_is_never_drawn() {
    // One token in 50 is left.
    let mut logits = vec![f32::NEG_INFINITY; 3000];
    (7..3000).step_by(50).for_each(|i| logits[i] = 0.0);
    for isa in Isa::all() {
        for position in 0..300 {
            for temperature in [1.0, 1e20, f32::INFINITY] {
                let got = run(isa, &logits, 3000, &[row(temperature, 5, position)]);
                assert!(got[0] % 50 == 7 && got[1] == 0, "{isa:?}: {got:?}");
            }
        }
    }
}

#[test]
fn draws_follow_the_probabilities() {
    let probabilities = [0.5_f32, 0.25, 0.125, 0.1, 0.02, 0.005];
    let logits: Vec<f32> = probabilities.iter().map(|p| p.ln() + 3.0).collect();
    let mut counts = [0_u32; 6];
    let num_draws = 40_000;
    let threads = threads(1);
    let mut verdict = [0; 2];
    for position in 0..num_draws {
        let sampling = |_| row(1.0, 99, position);
        sample_on(
            Isa::detect(),
            &threads,
            (&logits, 6),
            sampling,
            &mut verdict,
        );
        counts[verdict[0] as usize] += 1;
    }
    for (count, p) in counts.iter().zip(probabilities) {
        let expected = p * num_draws as f32;
        // Five standard deviations.
        let allowed = 5.0 * (expected * (1.0 - p)).sqrt();
        assert!((*count as f32 - expected).abs() < allowed, "{counts:?}");
    }
}

struct NoiseKernel(u32);
impl Kernel for NoiseKernel {
    type Output = [f32; LANES];
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; LANES] {
        s.to_array(gumbel(s, [self.0; LANES]))
    }
}

#[test]
fn noise_is_finite_and_accurate_up_to_both_ends() {
    let ends = [
        0,
        511,
        512,
        1 << 20,
        1 << 30,
        1 << 31,
        !0 - 100_000,
        !0 - 512,
        !0 - 511,
        !0,
    ];
    for isa in Isa::all() {
        for word in ends {
            let uniform = (f64::from(word >> 9_u32) + 0.5) / f64::from(1 << 23);
            let want = -(-uniform.ln()).ln();
            let got = f64::from(isa.run(NoiseKernel(word))[0]);
            assert!(
                (got - want).abs() <= 1e-6 * want.abs().max(1.0),
                "{word:x}: {got} {want}"
            );
            assert!(got < f64::from(NOISE_MAX));
        }
    }
}
