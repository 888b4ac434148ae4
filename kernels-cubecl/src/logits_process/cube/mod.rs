//! CubeCL kernel of [`super`]: one cube per row of logits.
//!
//! Every unit looks at the tokens whose id is its own modulo the number of units, in every pass, edits
//! included: so that no unit reads what another wrote, and no barrier for global memory is needed.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`; `edits` changes
//! single tokens, `search` finds limits.

mod edits;
pub(crate) mod search;

use crate::elementary::exp;
use crate::launch::{CompileTarget, buffer, cube_count, cube_sum, units_per_cube, writable};
use crate::sample::cube::{SEEN_FINITE, classify, cube_max, cube_or};
use crate::step_inputs::{SAMPLING_WORDS, TEMPERATURE_MIN, flag, header, word};
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;
use edits::{add_biases, apply_mask, penalise_seen};
use search::{MASKED, RowView, Search, distance_bits, find_limit, key_of, mass, scaled};

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

/// Processes rows of `logits [R, V]`, in place where they are ours alone.
pub(crate) fn logits_process(logits: CubeTensor, step: &CubeTensor) -> CubeTensor {
    let logits = writable(logits);
    let [num_rows, vocab_size] = [logits.meta.shape()[0], logits.meta.shape()[1]];
    let blueprint = Blueprint::new(logits.client.properties(), vocab_size);
    // SAFETY: the kernel checks the row; tokens were checked when the step was packed.
    unsafe {
        logits_process_kernel::launch_unchecked(
            &logits.client,
            cube_count(num_rows),
            CubeDim::new_1d(blueprint.units),
            buffer(&logits),
            buffer(step),
            blueprint,
        );
    }
    logits
}

/// The kernels that [`logits_process`] launches.
pub(crate) fn kernels(target: &CompileTarget, vocab_size: usize) -> Vec<Box<dyn CubeKernel>> {
    let blueprint = Blueprint::new(&target.properties, vocab_size);
    vec![Box::new(logits_process_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        cube_count(1),
        CubeDim::new_1d(blueprint.units),
        target.buffer(vocab_size),
        target.buffer(1),
        blueprint,
    ))]
}

/// Words of shared memory that say what all units do next: branches with barriers inside must be taken by
/// all of them, and compilers must see that.
mod place {
    /// The row has something to be done.
    pub(super) const PROCESS: usize = 0;
    /// All its logits are numbers or masked.
    pub(super) const SOUND: usize = 1;
    /// Its filters are to be applied.
    pub(super) const FILTER: usize = 2;
    /// Top-k among them.
    pub(super) const TOP_K: usize = 3;
    /// Top-p among them.
    pub(super) const TOP_P: usize = 4;
    /// The typical filter among them.
    pub(super) const TYPICAL: usize = 5;
    /// How many there are.
    pub(super) const COUNT: usize = 6;
}

/// Least mass that is searched for: a target of 0 would be reached by nothing.
const TARGET_MIN: f32 = 1e-30;
/// From here on logits no longer matter.
const TEMPERATURE_MAX: f32 = 1e30;

#[cube(launch_unchecked, create_dummy_kernel)]
fn logits_process_kernel(logits: &mut [u32], step: &[u32], #[comptime] blueprint: Blueprint) {
    let vocab_size = comptime!(blueprint.vocab_size);
    let units = comptime!(blueprint.units);
    let mut scores = Shared::<[f32]>::new_slice(comptime!(units as usize));
    let mut words = Shared::<[u32]>::new_slice(comptime!(units as usize));
    let mut places = Shared::<[u32]>::new_slice(comptime!(place::COUNT));
    let row = CUBE_POS;
    let start = row * vocab_size;
    let live = row < step[header::NUM_LOGIT_ROWS] as usize && start + vocab_size <= logits.len();
    let parameters = step[header::SAMPLING] as usize + select(live, row, 0usize) * SAMPLING_WORDS;
    if UNIT_POS == 0 {
        let wanted = (step[parameters + word::FLAGS] & flag::PROCESS) != 0u32;
        places[comptime!(place::PROCESS)] = select(live && wanted, 1u32, 0u32);
    }
    sync_cube();
    if places[comptime!(place::PROCESS)] == 1u32 {
        let mut seen = 0u32;
        for i in range_stepped(UNIT_POS as usize, vocab_size, comptime!(units as usize)) {
            seen |= classify(f32::from_bits(logits[start + i]));
        }
        let seen = cube_or(seen, &mut words, units);
        if UNIT_POS == 0 {
            places[comptime!(place::SOUND)] = select(seen == SEEN_FINITE, 1u32, 0u32);
        }
        sync_cube();
        if places[comptime!(place::SOUND)] == 1u32 {
            add_biases(logits, step, start, parameters, units);
            penalise_seen(logits, step, start, parameters, blueprint);
            apply_mask(logits, step, start, parameters, blueprint);
            let maximum = choose_filters(
                &*logits,
                step,
                start,
                parameters,
                &mut scores,
                &mut words,
                &mut places,
                blueprint,
            );
            if places[comptime!(place::FILTER)] == 1u32 {
                let row = RowView {
                    start,
                    len: vocab_size,
                    maximum,
                    divisor: divisor(step[parameters + word::TEMPERATURE]),
                    // The key of the least finite number.
                    lowest: 0x0080_0000u32,
                    centre: 0.0f32,
                };
                filter(logits, step, parameters, &row, &mut scores, &places, units);
            }
        }
    }
}

/// The temperature, or what stands for infinity.
#[cube]
fn divisor(temperature_bits: u32) -> f32 {
    let finite = temperature_bits < 0x7f80_0000u32;
    let bits = select(
        finite,
        temperature_bits,
        comptime!(TEMPERATURE_MAX.to_bits()),
    );
    min(f32::from_bits(bits), TEMPERATURE_MAX)
}

/// The greatest logit, and in `places` which filters are to be applied.
#[cube]
#[expect(
    clippy::too_many_arguments,
    reason = "a kernel's shared memory has no struct to be in"
)]
fn choose_filters(
    logits: &[u32],
    step: &[u32],
    start: usize,
    parameters: usize,
    scores: &mut Shared<[f32]>,
    words: &mut Shared<[u32]>,
    places: &mut Shared<[u32]>,
    #[comptime] blueprint: Blueprint,
) -> f32 {
    let units = comptime!(blueprint.units);
    let vocab_size = comptime!(blueprint.vocab_size);
    let mut highest = f32::min_value();
    let mut seen = 0u32;
    for i in range_stepped(UNIT_POS as usize, vocab_size, comptime!(units as usize)) {
        let logit = f32::from_bits(logits[start + i]);
        let class = classify(logit);
        seen |= class;
        if class == SEEN_FINITE {
            highest = max(highest, logit);
        }
    }
    let highest = cube_max(highest, scores, units);
    let seen = cube_or(seen, words, units);
    if UNIT_POS == 0 {
        let noisy = f32::from_bits(step[parameters + word::TEMPERATURE]) >= TEMPERATURE_MIN;
        let top_k = step[parameters + word::TOP_K];
        let has_top_k = top_k > 0u32 && top_k < comptime!(blueprint.vocab_size as u32);
        let has_top_p = f32::from_bits(step[parameters + word::TOP_P]) < 1.0f32;
        let has_typical = f32::from_bits(step[parameters + word::TYPICAL_P]) < 1.0f32;
        let has_min_p = f32::from_bits(step[parameters + word::MIN_P]) > 0.0f32;
        let any = has_top_k || has_top_p || has_typical || has_min_p;
        let filter = any && noisy && seen == SEEN_FINITE;
        places[comptime!(place::FILTER)] = select(filter, 1u32, 0u32);
        places[comptime!(place::TOP_K)] = select(has_top_k, 1u32, 0u32);
        places[comptime!(place::TOP_P)] = select(has_top_p, 1u32, 0u32);
        places[comptime!(place::TYPICAL)] = select(has_typical, 1u32, 0u32);
    }
    sync_cube();
    highest
}

/// Masks what the filters do not keep.
#[cube]
#[expect(
    clippy::too_many_arguments,
    reason = "a kernel's shared memory has no struct to be in"
)]
fn filter(
    logits: &mut [u32],
    step: &[u32],
    parameters: usize,
    row: &RowView,
    scratch: &mut Shared<[f32]>,
    places: &Shared<[u32]>,
    #[comptime] units: u32,
) {
    let mut view = RowView {
        start: row.start,
        len: row.len,
        maximum: row.maximum,
        divisor: row.divisor,
        lowest: row.lowest,
        centre: row.centre,
    };
    if places[comptime!(place::TOP_K)] == 1u32 {
        let target = f32::cast_from(step[parameters + word::TOP_K]);
        let found = find_limit(&*logits, &view, target, scratch, Search::Count, units);
        view.lowest = max(view.lowest, found);
    }
    if places[comptime!(place::TOP_P)] == 1u32 {
        let share = f32::from_bits(step[parameters + word::TOP_P]);
        let total = total_mass(&*logits, &view, scratch, units);
        let target = max(share * total, TARGET_MIN);
        let found = find_limit(&*logits, &view, target, scratch, Search::Mass, units);
        view.lowest = max(view.lowest, found);
    }
    // The bits of the greatest distance there is.
    let mut farthest = 0x7f7f_ffffu32;
    if places[comptime!(place::TYPICAL)] == 1u32 {
        let share = f32::from_bits(step[parameters + word::TYPICAL_P]);
        let total = total_mass(&*logits, &view, scratch, units);
        view.centre = total_moment(&*logits, &view, scratch, units) / total;
        let target = max(share * total, TARGET_MIN);
        farthest = !find_limit(&*logits, &view, target, scratch, Search::Nearness, units);
    }
    let share = f32::from_bits(step[parameters + word::MIN_P]);
    let mut greatest = f32::min_value();
    for i in range_stepped(UNIT_POS as usize, row.len, comptime!(units as usize)) {
        let bits = logits[row.start + i];
        if keeps(bits, &view, farthest) {
            greatest = max(greatest, f32::from_bits(bits));
        }
    }
    let greatest = cube_max(greatest, scratch, units);
    for i in range_stepped(UNIT_POS as usize, row.len, comptime!(units as usize)) {
        let bits = logits[row.start + i];
        let kept = keeps(bits, &view, farthest);
        // A token that is kept is not above the greatest; what others give is not used.
        let logit = select(kept, f32::from_bits(bits), greatest);
        let likelihood = exp((logit - greatest) / view.divisor);
        let likely = share <= 0.0f32 || likelihood >= min(share, 1.0f32);
        if !(kept && likely) {
            logits[row.start + i] = MASKED;
        }
    }
}

/// Whether a token passes all filters but min-p.
#[cube]
fn keeps(bits: u32, row: &RowView, farthest: u32) -> bool {
    bits != MASKED && key_of(bits) >= row.lowest && distance_bits(bits, row) <= farthest
}

#[cube]
fn total_mass(
    logits: &[u32],
    row: &RowView,
    scratch: &mut Shared<[f32]>,
    #[comptime] units: u32,
) -> f32 {
    let mut total = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, row.len, comptime!(units as usize)) {
        total += mass(logits[row.start + i], row);
    }
    cube_sum(total, scratch, units)
}

#[cube]
fn total_moment(
    logits: &[u32],
    row: &RowView,
    scratch: &mut Shared<[f32]>,
    #[comptime] units: u32,
) -> f32 {
    let mut total = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, row.len, comptime!(units as usize)) {
        let bits = logits[row.start + i];
        total += mass(bits, row) * scaled(bits, row);
    }
    cube_sum(total, scratch, units)
}
