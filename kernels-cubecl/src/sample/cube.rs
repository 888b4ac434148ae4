//! CubeCL kernel of [`super`]: one cube per row of logits.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`.

use crate::elementary::ln;
use crate::launch::{CompileTarget, buffer, contiguous, cube_count, empty, units_per_cube};
use crate::step_inputs::{SAMPLING_WORDS, TEMPERATURE_MIN, header, word};
use burn_backend::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;

/// Everything the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blueprint {
    vocab_size: usize,
    units: u32,
}

impl Blueprint {
    fn new(properties: &DeviceProperties, vocab_size: usize) -> Self {
        Self {
            vocab_size,
            units: units_per_cube(properties, vocab_size),
        }
    }
}

/// Token and status of each row of `logits [R, V]`; rows past their live number are zeros.
pub(crate) fn sample(logits: CubeTensor, step: &CubeTensor) -> CubeTensor {
    let logits = contiguous(logits);
    let [num_rows, vocab_size] = [logits.meta.shape()[0], logits.meta.shape()[1]];
    let blueprint = Blueprint::new(logits.client.properties(), vocab_size);
    let out = empty(&logits, Shape::from([num_rows, 2]), DType::U32);
    // SAFETY: the tensor function checked the shapes; the kernel checks the row.
    unsafe {
        sample_kernel::launch_unchecked(
            &logits.client,
            cube_count(num_rows),
            CubeDim::new_1d(blueprint.units),
            buffer(&logits),
            buffer(step),
            buffer(&out),
            blueprint,
        );
    }
    out
}

/// The kernels that [`sample`] launches.
pub(crate) fn kernels(target: &CompileTarget, vocab_size: usize) -> Vec<Box<dyn CubeKernel>> {
    let blueprint = Blueprint::new(&target.properties, vocab_size);
    vec![Box::new(sample_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        cube_count(1),
        CubeDim::new_1d(blueprint.units),
        target.buffer(vocab_size),
        target.buffer(1),
        target.buffer(2),
        blueprint,
    ))]
}

/// A logit that is a number was seen.
pub(crate) const SEEN_FINITE: u32 = 1;
/// A logit was not a number, or plus infinity.
const SEEN_BAD: u32 = 2;

/// No token of any vocabulary.
const NO_TOKEN: i64 = u32::MAX as i64;

/// The best token a unit has seen: the highest score, and of equals the lowest id.
#[derive(CubeType, Clone, Copy)]
struct Best {
    score: f32,
    token_id: u32,
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn sample_kernel(
    logits: &[f32],
    step: &[u32],
    verdicts: &mut [u32],
    #[comptime] blueprint: Blueprint,
) {
    let vocab_size = comptime!(blueprint.vocab_size);
    let units = comptime!(blueprint.units);
    let mut scores = Shared::<[f32]>::new_slice(comptime!(units as usize));
    let mut words = Shared::<[u32]>::new_slice(comptime!(units as usize));
    let row = CUBE_POS;
    let live = row < step[header::NUM_LOGIT_ROWS] as usize && row * 2 < verdicts.len();
    let start = row * vocab_size;
    // A dead row looks at no logits, but takes part in every barrier.
    let end = select(live, vocab_size, 0usize);

    let mut highest = f32::min_value();
    let mut seen = 0u32;
    for i in range_stepped(UNIT_POS as usize, end, comptime!(units as usize)) {
        let logit = logits[start + i];
        seen |= classify(logit);
        if is_finite(logit) {
            highest = max(highest, logit);
        }
    }
    let highest = cube_max(highest, &mut scores, units);
    let seen = cube_or(seen, &mut words, units);

    let parameters = step[header::SAMPLING] as usize + select(live, row, 0usize) * SAMPLING_WORDS;
    let temperature = f32::from_bits(step[parameters + word::TEMPERATURE]);
    let noisy = temperature >= TEMPERATURE_MIN;
    let divisor = select(noisy, temperature, 1.0f32);
    let purpose = step[parameters + word::PURPOSE];
    let anchor = select(purpose == 0u32, 0u32, step[parameters + word::ANCHOR]);
    let mut best_score = f32::min_value();
    let mut best_id = u32::new(NO_TOKEN);
    for i in range_stepped(UNIT_POS as usize, end, comptime!(units as usize)) {
        let logit = logits[start + i];
        if is_finite(logit) {
            let token_id = u32::cast_from(i);
            let mut score = (logit - highest) / divisor;
            if noisy {
                score += gumbel(
                    step[parameters + word::SEED_LOW],
                    step[parameters + word::SEED_HIGH],
                    step[parameters + word::POSITION],
                    purpose,
                    anchor,
                    token_id,
                );
            }
            // Ids ascend, so of equals the first stays.
            if score > best_score || best_id == u32::new(NO_TOKEN) {
                best_score = score;
                best_id = token_id;
            }
        }
    }
    let token_id = cube_best(best_score, best_id, &mut scores, &mut words, units);
    if UNIT_POS == 0 && row * 2 < verdicts.len() {
        let ok = !live || seen == SEEN_FINITE;
        verdicts[row * 2] = select(live && ok, token_id, 0u32);
        verdicts[row * 2 + 1] = select(ok, 0u32, 1u32);
    }
}

/// By its bits, because compilers may assume that there are no infinities.
#[cube]
pub(crate) fn is_finite(x: f32) -> bool {
    (x.to_bits() & 0x7f80_0000u32) != 0x7f80_0000u32
}

/// Minus infinity is a masked token: neither finite nor bad.
#[cube]
pub(crate) fn classify(x: f32) -> u32 {
    let bad = select(x.to_bits() == 0xff80_0000u32, 0u32, SEEN_BAD);
    select(is_finite(x), SEEN_FINITE, bad)
}

#[cube]
fn better(a: Best, b: Best) -> Best {
    let second = b.score > a.score || (b.score >= a.score && b.token_id < a.token_id);
    Best {
        score: select(second, b.score, a.score),
        token_id: select(second, b.token_id, a.token_id),
    }
}

/// Standard Gumbel noise of a token at a position, from the seed of the request.
#[cube]
pub(crate) fn gumbel(
    seed_low: u32,
    seed_high: u32,
    position: u32,
    purpose: u32,
    anchor: u32,
    token_id: u32,
) -> f32 {
    -ln(-ln(uniform(
        seed_low, seed_high, position, purpose, anchor, token_id,
    )))
}

/// The middle of one of 2^23 intervals, which f32 holds exactly.
#[cube]
pub(crate) fn uniform(
    seed_low: u32,
    seed_high: u32,
    position: u32,
    purpose: u32,
    anchor: u32,
    index: u32,
) -> f32 {
    let word = philox(seed_low, seed_high, position, purpose, anchor, index);
    (f32::cast_from(word >> 9u32) + 0.5f32) * 0.000_000_119_209_29_f32
}

/// First word of Philox 4x32-10 with key (seed) and counter (index, position, purpose, anchor).
#[cube]
fn philox(
    seed_low: u32,
    seed_high: u32,
    position: u32,
    purpose: u32,
    anchor: u32,
    index: u32,
) -> u32 {
    let mut c0 = index;
    let mut c1 = position;
    let mut c2 = purpose;
    let mut c3 = anchor;
    let mut k0 = seed_low;
    let mut k1 = seed_high;
    #[unroll]
    for round in 0..10u32 {
        if round > 0 {
            k0 += 0x9E37_79B9u32;
            k1 += 0xBB67_AE85u32;
        }
        let low0 = c0 * 0xD251_1F53u32;
        let low1 = c2 * 0xCD9E_8D57u32;
        let high0 = c0.mul_hi(0xD251_1F53u32);
        let high1 = c2.mul_hi(0xCD9E_8D57u32);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
    }
    c0
}

#[cube]
pub(crate) fn cube_max(value: f32, scratch: &mut Shared<[f32]>, #[comptime] units: u32) -> f32 {
    let unit = UNIT_POS as usize;
    scratch[unit] = value;
    sync_cube();
    #[unroll]
    for level in 0..comptime!(units.ilog2()) {
        let half = comptime!((units >> (level + 1)) as usize);
        if unit < half {
            scratch[unit] = max(scratch[unit], scratch[unit + half]);
        }
        sync_cube();
    }
    let highest = scratch[0];
    sync_cube();
    highest
}

#[cube]
pub(crate) fn cube_or(value: u32, scratch: &mut Shared<[u32]>, #[comptime] units: u32) -> u32 {
    let unit = UNIT_POS as usize;
    scratch[unit] = value;
    sync_cube();
    #[unroll]
    for level in 0..comptime!(units.ilog2()) {
        let half = comptime!((units >> (level + 1)) as usize);
        if unit < half {
            let other = scratch[unit + half];
            scratch[unit] |= other;
        }
        sync_cube();
    }
    let all = scratch[0];
    sync_cube();
    all
}

/// The token with the greatest score among those of all units, the lowest id among equals.
#[cube]
pub(crate) fn cube_best(
    score: f32,
    token_id: u32,
    scores: &mut Shared<[f32]>,
    token_ids: &mut Shared<[u32]>,
    #[comptime] units: u32,
) -> u32 {
    let unit = UNIT_POS as usize;
    scores[unit] = score;
    token_ids[unit] = token_id;
    sync_cube();
    #[unroll]
    for level in 0..comptime!(units.ilog2()) {
        let half = comptime!((units >> (level + 1)) as usize);
        if unit < half {
            let mine = Best {
                score: scores[unit],
                token_id: token_ids[unit],
            };
            let other = Best {
                score: scores[unit + half],
                token_id: token_ids[unit + half],
            };
            let winner = better(mine, other);
            scores[unit] = winner.score;
            token_ids[unit] = winner.token_id;
        }
        sync_cube();
    }
    token_ids[0]
}
