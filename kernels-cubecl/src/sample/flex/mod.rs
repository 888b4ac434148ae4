//! Native sampling: see the contract in [`super`].
//!
//! Two passes over a row: the first finds the maximum and bad values, and is all a greedy row needs;
//! the second adds noise, which is bounded, so that most tokens are passed over because not even
//! the greatest noise could make them win.

pub mod reference;

use std::cell::RefCell;

use super::philox::{self, Stream};
use crate::simd::shared::SharedMut;
use crate::simd::{Isa, Kernel, LANES, Simd, math};
use crate::step_inputs::{SamplingRow, StepView};
use crate::threads::Threads;

/// Tokens of a row that one task looks at.
pub const CHUNK: usize = 1 << 14;
/// From here on logits no longer matter; keeps `-inf / temperature` from being NaN.
const TEMPERATURE_MAX: f32 = 1e30;
/// More than any noise: -ln(-ln(1 - 2^-24)) = 16.64.
const NOISE_MAX: f32 = 16.7;

/// What a chunk of a row has to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Best {
    /// Greatest logit, or logit with noise.
    pub(crate) score: f32,
    /// Where it is first.
    pub(crate) token_id: u32,
    /// Whether a logit of the chunk is NaN.
    has_nan: bool,
}

impl Best {
    /// Of no tokens.
    pub(crate) const NONE: Self = Self {
        score: f32::NEG_INFINITY,
        token_id: 0,
        has_nan: false,
    };

    /// The better of two, the earlier one among equals.
    pub(crate) fn or(self, later: Self) -> Self {
        let has_nan = self.has_nan || later.has_nan;
        let best = if later.score > self.score {
            later
        } else {
            self
        };
        Self { has_nan, ..best }
    }

    /// Whether a row with this maximum can be sampled.
    pub(crate) fn is_bad(self) -> bool {
        self.has_nan || !self.score.is_finite()
    }
}

thread_local! {
    /// The caller's results: of each chunk from the first pass, then from the second.
    static CHUNKS: RefCell<Vec<Best>> = const { RefCell::new(Vec::new()) };
}

/// Token and status of each row.
///
/// # Shapes
/// `logits [R, vocab_size]`, `verdicts [R, 2]`.
pub fn sample(
    threads: &Threads,
    logits: &[f32],
    vocab_size: usize,
    step: StepView<'_>,
    verdicts: &mut [u32],
) {
    sample_on(
        Isa::detect(),
        threads,
        (logits, vocab_size),
        |row| step.sampling(row),
        verdicts,
    );
}

fn sample_on(
    isa: Isa,
    threads: &Threads,
    (logits, vocab_size): (&[f32], usize),
    sampling: impl Fn(usize) -> SamplingRow + Sync,
    verdicts: &mut [u32],
) {
    let num_rows = verdicts.len() / 2;
    assert!(vocab_size > 0, "an empty vocabulary");
    assert!(
        logits.len() >= num_rows * vocab_size,
        "{} logits, {num_rows} rows",
        logits.len()
    );
    let per_row = vocab_size.div_ceil(CHUNK);
    let is_noisy = |row| sampling(row).is_noisy();
    let chunk = |task: usize| {
        let (row, start) = (task / per_row, task % per_row * CHUNK);
        let end = vocab_size.min(start + CHUNK);
        (
            row,
            start as u32,
            &logits[row * vocab_size + start..row * vocab_size + end],
        )
    };
    CHUNKS.with_borrow_mut(|chunks| {
        chunks.clear();
        chunks.resize(2 * num_rows * per_row, Best::NONE);
        let (maxima, noisy) = chunks.split_at_mut(num_rows * per_row);
        {
            let maxima = SharedMut::new(maxima);
            threads.run(num_rows * per_row, |task| {
                let (_, first, logits) = chunk(task);
                // SAFETY: each task has an entry of its own.
                let place = unsafe { maxima.part(task, 1) };
                place[0] = greatest(isa, first, logits);
            });
        }
        let maxima = &*maxima;
        let row_best = |row: usize, chunks: &[Best]| {
            chunks[row * per_row..(row + 1) * per_row]
                .iter()
                .fold(Best::NONE, |a, &b| a.or(b))
        };
        if (0..num_rows).any(is_noisy) {
            let noisy = SharedMut::new(noisy);
            threads.run(num_rows * per_row, |task| {
                let (row, first, logits) = chunk(task);
                let maximum = row_best(row, maxima);
                if is_noisy(row) && !maximum.is_bad() {
                    let (maximum, sampling) = (maximum.score, sampling(row));
                    let temperature = sampling.temperature.min(TEMPERATURE_MAX);
                    // SAFETY: each task has an entry of its own.
                    let place = unsafe { noisy.part(task, 1) };
                    place[0] = isa.run(Noisy {
                        first,
                        logits,
                        maximum,
                        temperature,
                        seed: sampling.seed,
                        stream: sampling.stream(),
                    });
                }
            });
        }
        for (row, verdict) in verdicts.chunks_exact_mut(2).enumerate() {
            let maximum = row_best(row, maxima);
            let best = if is_noisy(row) {
                row_best(row, noisy)
            } else {
                maximum
            };
            let bad = maximum.is_bad();
            verdict.copy_from_slice(&if bad { [0, 1] } else { [best.token_id, 0] });
        }
    });
}

/// The greatest of some logits, the first of which is that of token `first`.
pub(crate) fn greatest(isa: Isa, first: u32, logits: &[f32]) -> Best {
    isa.run(Greatest { first, logits })
}

/// A token of the softmax of `logits` over a temperature, with the noise of a seed and a stream.
/// `maximum` is that of the logits, or more.
pub(crate) fn draw(
    isa: Isa,
    logits: &[f32],
    (maximum, temperature): (f32, f32),
    (seed, stream): (u64, Stream),
) -> u32 {
    let best = isa.run(Noisy {
        first: 0,
        logits,
        maximum,
        temperature,
        seed,
        stream,
    });
    best.token_id
}

/// First pass over a chunk.
struct Greatest<'a> {
    /// Token id of the first logit.
    first: u32,
    logits: &'a [f32],
}

impl Kernel for Greatest<'_> {
    type Output = Best;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Best {
        const CHAINS: usize = 4;
        let lowest = f32::NEG_INFINITY;
        let mut greatest = [s.splat(lowest); CHAINS];
        let mut nans = 0;
        let mut rows = self.logits.chunks_exact(CHAINS * LANES);
        for row in &mut rows {
            for (i, greatest) in greatest.iter_mut().enumerate() {
                let x = s.load(&row[i * LANES..]);
                *greatest = s.max(x, *greatest);
                nans |= s.nan_bits(x);
            }
        }
        for row in rows.remainder().chunks(LANES) {
            let x = s.load_part(row, lowest);
            greatest[0] = s.max(x, greatest[0]);
            nans |= s.nan_bits(x);
        }
        let low = s.max(greatest[0], greatest[1]);
        let score = s.greatest(s.max(low, s.max(greatest[2], greatest[3])));
        let mut best = Best {
            score,
            token_id: self.first,
            has_nan: nans != 0,
        };
        for (i, row) in self.logits.chunks(LANES).enumerate() {
            // What fills up the last row comes after every token that could be equal to it.
            let equal = s.equal_bits(s.load_part(row, lowest), s.splat(score));
            if equal != 0 {
                best.token_id += (i * LANES) as u32 + equal.trailing_zeros();
                break;
            }
        }
        best
    }
}

/// Second pass over a chunk.
struct Noisy<'a> {
    first: u32,
    logits: &'a [f32],
    /// Of the whole row.
    maximum: f32,
    temperature: f32,
    seed: u64,
    stream: Stream,
}

impl Kernel for Noisy<'_> {
    type Output = Best;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Best {
        let temperature = self.temperature;
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let (maximum, divisor) = (s.splat(self.maximum), s.splat(temperature));
        let mut best = Best::NONE;
        // Logits up to here lose whatever their noise.
        let mut hopeless = f32::NEG_INFINITY;
        let mut pending = Pending {
            logits: [0.0; 2 * LANES],
            tokens: [0; 2 * LANES],
            len: 0,
        };
        let whole = self.logits.len() / LANES * LANES;
        for start in (0..self.logits.len()).step_by(LANES) {
            let x = if start < whole {
                s.load(&self.logits[start..])
            } else {
                s.load_part(&self.logits[start..], f32::NEG_INFINITY)
            };
            let hopeful = s.less_bits(s.splat(hopeless), x);
            if hopeful != 0 {
                pending.add(hopeful, &s.to_array(x), self.first + start as u32);
            }
            if pending.len < LANES && start + LANES < self.logits.len() {
                continue;
            }
            // Twice at the end, if more than 16 are left.
            while pending.len > 0 {
                let (logits, tokens) = pending.take();
                let words = philox::first_words(s, &tokens, self.stream, key);
                let logits = s.div(s.sub(s.load(&logits), maximum), divisor);
                let scores = s.add(logits, gumbel(s, words));
                let score = s.greatest(scores);
                if score > best.score {
                    let lane = s.equal_bits(scores, s.splat(score)).trailing_zeros();
                    best = Best {
                        score,
                        token_id: tokens[lane as usize],
                        has_nan: false,
                    };
                    let distance = (score - NOISE_MAX) * temperature;
                    // Less what rounding may have taken, here and in the scores.
                    let slack = 1e-6 * (self.maximum.abs() + distance.abs());
                    hopeless = self.maximum + distance - slack;
                }
                if pending.len < LANES && start + LANES < self.logits.len() {
                    break;
                }
            }
        }
        best
    }
}

/// Tokens that may still win, in order of their ids; noise is made for 16 at a time.
struct Pending {
    logits: [f32; 2 * LANES],
    tokens: [u32; 2 * LANES],
    len: usize,
}

impl Pending {
    /// Adds the logits of a row of 16 whose bits are set. There are fewer than 16 before.
    #[inline(always)]
    fn add(&mut self, mut bits: u32, logits: &[f32; LANES], first: u32) {
        while bits != 0 {
            let lane = bits.trailing_zeros();
            bits &= bits - 1;
            self.logits[self.len] = logits[lane as usize];
            self.tokens[self.len] = first + lane;
            self.len += 1;
        }
    }

    /// Takes the first 16; where there are fewer, what fills up cannot win.
    #[inline(always)]
    fn take(&mut self) -> ([f32; LANES], [u32; LANES]) {
        let mut logits = [f32::NEG_INFINITY; LANES];
        let mut tokens = [0; LANES];
        let len = self.len.min(LANES);
        logits[..len].copy_from_slice(&self.logits[..len]);
        tokens[..len].copy_from_slice(&self.tokens[..len]);
        self.logits.copy_within(LANES.., 0);
        self.tokens.copy_within(LANES.., 0);
        self.len -= len;
        (logits, tokens)
    }
}

/// -ln(-ln u), where u are the uniform numbers that the words stand for.
#[inline(always)]
fn gumbel<S: Simd>(s: S, words: [u32; LANES]) -> S::V {
    let mut uniform = [0.0; LANES];
    for (u, word) in uniform.iter_mut().zip(words) {
        *u = ((word >> 9) as f32 + 0.5) * (1.0 / (1 << 23) as f32);
    }
    let zero = s.splat(0.0);
    let exponential = s.sub(zero, math::ln(s, s.load(&uniform)));
    s.sub(zero, math::ln(s, exponential))
}

#[cfg(test)]
mod tests;
