//! CubeCL kernel of [`super`]: one cube per row. It is launched twice, once for rows that want raw logprobs
//! (and for those that want none), once for those that want processed ones.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`; the search is
//! [`crate::logits_process::cube::search`].

use super::{ROW_WORDS, TEMPERATURE_MAX};
use crate::elementary::{exp, ln};
use crate::launch::{CompileTarget, buffer, cube_count, cube_sum, empty, units_per_cube};
use crate::logits_process::cube::search::{
    MASKED, RowView, Search, bits_of, find_limit, key_of, scaled,
};
use crate::sample::cube::cube_max;
use crate::step_inputs::{
    LOGPROBS_TOP_MAX, LogprobsKind, SAMPLING_WORDS, TEMPERATURE_MIN, flag, header, word,
};
use burn_backend::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;

/// Everything the kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blueprint {
    vocab_size: usize,
    units: u32,
    kind: LogprobsKind,
}

impl Blueprint {
    fn new(properties: &DeviceProperties, vocab_size: usize, kind: LogprobsKind) -> Self {
        Self {
            vocab_size,
            units: units_per_cube(properties, vocab_size),
            kind,
        }
    }
}

/// Verdicts and logprobs of each row; `distributions` are raw and processed logits.
pub(crate) fn logprobs(
    distributions: &[CubeTensor; 2],
    verdicts: &CubeTensor,
    step: &CubeTensor,
    num_top: usize,
) -> CubeTensor {
    let [num_rows, vocab_size] = {
        let shape = distributions[0].meta.shape();
        [shape[0], shape[1]]
    };
    let shape = Shape::from([num_rows, ROW_WORDS + 2 * num_top]);
    let out = empty(verdicts, shape, DType::U32);
    let kinds = [LogprobsKind::Raw, LogprobsKind::Processed];
    for (logits, kind) in distributions.iter().zip(kinds) {
        let blueprint = Blueprint::new(logits.client.properties(), vocab_size, kind);
        // SAFETY: the tensor function checked the shapes; the kernel checks the row.
        unsafe {
            logprobs_kernel::launch_unchecked(
                &logits.client,
                cube_count(num_rows),
                CubeDim::new_1d(blueprint.units),
                buffer(logits),
                buffer(verdicts),
                buffer(step),
                buffer(&out),
                blueprint,
            );
        }
    }
    out
}

/// The kernels that [`logprobs`] launches.
pub(crate) fn kernels(target: &CompileTarget, vocab_size: usize) -> Vec<Box<dyn CubeKernel>> {
    let mut kernels: Vec<Box<dyn CubeKernel>> = Vec::new();
    for kind in [LogprobsKind::Raw, LogprobsKind::Processed] {
        let blueprint = Blueprint::new(&target.properties, vocab_size, kind);
        kernels.push(Box::new(logprobs_kernel::create_dummy_kernel(
            target.properties.clone(),
            target.target.clone(),
            cube_count(1),
            CubeDim::new_1d(blueprint.units),
            target.buffer(vocab_size),
            target.buffer(2),
            target.buffer(1),
            target.buffer(ROW_WORDS),
            blueprint,
        )));
    }
    kernels
}

/// Words of shared memory that all units branch on.
mod place {
    /// The row wants logprobs and has a token.
    pub(super) const ACTIVE: usize = 0;
    /// It wants the most likely tokens.
    pub(super) const TOP: usize = 1;
    /// How many there are.
    pub(super) const COUNT: usize = 2;
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn logprobs_kernel(
    logits: &[u32],
    verdicts: &[u32],
    step: &[u32],
    out: &mut [u32],
    #[comptime] blueprint: Blueprint,
) {
    let vocab_size = comptime!(blueprint.vocab_size);
    let units = comptime!(blueprint.units);
    let stride = comptime!(units as usize);
    let mut scratch = Shared::<[f32]>::new_slice(comptime!(units as usize));
    let mut places = Shared::<[u32]>::new_slice(comptime!(place::COUNT));
    let num_rows = verdicts.len() / 2usize;
    let row_words = out.len() / num_rows;
    let row = CUBE_POS;
    let is_row = row < num_rows;
    let live = is_row && row < step[header::NUM_LOGIT_ROWS] as usize;
    let parameters = step[header::SAMPLING] as usize + select(live, row, 0usize) * SAMPLING_WORDS;
    let flags = select(live, step[parameters + word::FLAGS], 0u32);
    let is_processed = (flags & flag::PROCESSED) != 0u32;
    let is_ours = is_row && is_processed == comptime!(blueprint.kind == LogprobsKind::Processed);
    let verdict = select(is_row, row, 0usize) * 2usize;
    let sound = verdicts[verdict + 1usize] == 0u32;
    let active = is_ours && (flags & flag::LOGPROBS) != 0u32 && sound;
    let num_top = select(active, step[parameters + word::NUM_TOP], 0u32) as usize;
    let base = row * row_words;
    // Every word is written by one unit alone: here what is no logprob, below the rest.
    let end = select(is_ours, row_words, 0usize);
    for i in range_stepped(UNIT_POS as usize, end, stride) {
        if i < 2usize {
            out[base + i] = verdicts[verdict + i];
        } else if !active || i >= ROW_WORDS + 2usize * num_top {
            out[base + i] = 0u32;
        }
    }
    if UNIT_POS == 0 {
        places[comptime!(place::ACTIVE)] = select(active, 1u32, 0u32);
        places[comptime!(place::TOP)] = select(num_top > 0usize, 1u32, 0u32);
    }
    sync_cube();
    if places[comptime!(place::ACTIVE)] == 1u32 {
        let view = measure(
            logits,
            row * vocab_size,
            step[parameters + word::TEMPERATURE],
            &mut scratch,
            blueprint,
        );
        let ln_mass = ln_of_mass(logits, &view, &mut scratch, units);
        let has_target = (flags & flag::TARGET) != 0u32;
        let chosen = select(
            has_target,
            step[parameters + word::TARGET],
            verdicts[verdict],
        );
        let rank = rank_of(logits, &view, chosen as usize, &mut scratch, units);
        if UNIT_POS == 0 {
            out[base + 2usize] = logprob_bits(logits[view.start + chosen as usize], &view, ln_mass);
            out[base + 3usize] = rank;
        }
        if places[comptime!(place::TOP)] == 1u32 {
            let pairs = base + ROW_WORDS;
            write_likeliest(
                logits,
                out,
                &view,
                ln_mass,
                num_top,
                pairs,
                &mut scratch,
                units,
            );
        }
    }
}

/// The row with its greatest logit and the temperature its logprobs have.
#[cube]
fn measure(
    logits: &[u32],
    start: usize,
    temperature_bits: u32,
    scratch: &mut Shared<[f32]>,
    #[comptime] blueprint: Blueprint,
) -> RowView {
    let units = comptime!(blueprint.units);
    let vocab_size = comptime!(blueprint.vocab_size);
    let mut highest = f32::min_value();
    for i in range_stepped(UNIT_POS as usize, vocab_size, comptime!(units as usize)) {
        let bits = logits[start + i];
        let logit = f32::from_bits(select(bits == MASKED, f32::min_value().to_bits(), bits));
        highest = max(highest, logit);
    }
    let mut divisor = 1.0f32;
    if comptime!(blueprint.kind == LogprobsKind::Processed) {
        let limit = comptime!(TEMPERATURE_MAX);
        let finite = temperature_bits < 0x7f80_0000u32;
        let temperature = min(
            f32::from_bits(select(finite, temperature_bits, comptime!(limit.to_bits()))),
            limit,
        );
        let noisy = temperature >= TEMPERATURE_MIN && temperature_bits <= 0x7f80_0000u32;
        divisor = select(noisy, temperature, 1.0f32);
    }
    RowView {
        start,
        len: vocab_size,
        maximum: cube_max(highest, scratch, units),
        divisor,
        lowest: 0u32,
        centre: 0.0f32,
    }
}

#[cube]
fn ln_of_mass(
    logits: &[u32],
    row: &RowView,
    scratch: &mut Shared<[f32]>,
    #[comptime] units: u32,
) -> f32 {
    let mut total = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, row.len, comptime!(units as usize)) {
        let bits = logits[row.start + i];
        total += select(bits == MASKED, 0.0f32, exp(scaled(bits, row)));
    }
    ln(cube_sum(total, scratch, units))
}

#[cube]
fn logprob_bits(bits: u32, row: &RowView, ln_mass: f32) -> u32 {
    select(
        bits == MASKED,
        MASKED,
        (scaled(bits, row) - ln_mass).to_bits(),
    )
}

/// 1 and the number of tokens before `chosen`.
#[cube]
fn rank_of(
    logits: &[u32],
    row: &RowView,
    chosen: usize,
    scratch: &mut Shared<[f32]>,
    #[comptime] units: u32,
) -> u32 {
    let key = key_of(logits[row.start + chosen]);
    let mut before = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, row.len, comptime!(units as usize)) {
        let other = key_of(logits[row.start + i]);
        let first = other > key || (other == key && i < chosen);
        before += select(first, 1.0f32, 0.0f32);
    }
    u32::cast_from(cube_sum(before, scratch, units)) + 1u32
}

/// Writes the first `num_top` tokens, which is at least 1, and their logprobs.
#[cube]
#[expect(
    clippy::too_many_arguments,
    reason = "a kernel's shared memory has no struct to be in"
)]
fn write_likeliest(
    logits: &[u32],
    out: &mut [u32],
    row: &RowView,
    ln_mass: f32,
    num_top: usize,
    pairs: usize,
    scratch: &mut Shared<[f32]>,
    #[comptime] units: u32,
) {
    let stride = comptime!(units as usize);
    let mut counts = Shared::<[u32]>::new_slice(comptime!(units as usize));
    let mut keys = Shared::<[u32]>::new_slice(comptime!(LOGPROBS_TOP_MAX));
    let mut ids = Shared::<[u32]>::new_slice(comptime!(LOGPROBS_TOP_MAX));
    let wanted = f32::cast_from(num_top as u32);
    let view = RowView {
        start: row.start,
        len: row.len,
        maximum: row.maximum,
        divisor: row.divisor,
        lowest: find_limit(logits, row, wanted, scratch, Search::Count, units),
        centre: row.centre,
    };
    let mut above = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, row.len, stride) {
        above += select(key_of(logits[row.start + i]) > view.lowest, 1.0f32, 0.0f32);
    }
    let above = cube_sum(above, scratch, units);
    // Of those at the limit, the lowest ids fill what is left.
    let last_tie = !find_limit(logits, &view, wanted - above, scratch, Search::Ties, units);
    let mut count = 0u32;
    for i in range_stepped(UNIT_POS as usize, row.len, stride) {
        count += select(
            is_among(logits[row.start + i], i, view.lowest, last_tie),
            1u32,
            0u32,
        );
    }
    counts[UNIT_POS as usize] = count;
    sync_cube();
    let mut slot = 0usize;
    for unit in 0..UNIT_POS as usize {
        slot += counts[unit] as usize;
    }
    for i in range_stepped(UNIT_POS as usize, row.len, stride) {
        let bits = logits[row.start + i];
        if is_among(bits, i, view.lowest, last_tie) && slot < comptime!(LOGPROBS_TOP_MAX) {
            keys[slot] = key_of(bits);
            ids[slot] = u32::cast_from(i);
            slot += 1usize;
        }
    }
    sync_cube();
    for i in range_stepped(UNIT_POS as usize, num_top, stride) {
        let mut before = 0usize;
        for j in 0..num_top {
            let first = keys[j] > keys[i] || (keys[j] == keys[i] && ids[j] < ids[i]);
            before += select(first, 1usize, 0usize);
        }
        let pair = pairs + 2usize * before;
        out[pair] = ids[i];
        out[pair + 1usize] = logprob_bits(bits_of(keys[i]), row, ln_mass);
    }
}

#[cube]
fn is_among(bits: u32, id: usize, lowest: u32, last_tie: u32) -> bool {
    let key = key_of(bits);
    key > lowest || (key == lowest && u32::cast_from(id) <= last_tie)
}
