//! CubeCL kernel of [`super`]: one cube per row of logits, of which those of anchors verify their tree.
//!
//! Greedy rows and shared noise are one unit's walk. Rejection goes from node to node: all units sum
//! and subtract distributions, and what they branch on lies in shared memory. `rows` has the sums over
//! a row, `rejection` and `block` the two rules.
//!
//! Neighbours: [`super::flex`] is the native twin; called from `backend/cube.rs`.

mod block;
mod rejection;
mod rows;

use self::rows::{Buffers, Tree, state};
use super::{STATUS_TOKEN, STATUS_UNREACHED};
use crate::launch::{CompileTarget, buffer, contiguous, cube_count, empty, units_per_cube};
use crate::step_inputs::{SAMPLING_WORDS, TEMPERATURE_MIN, flag, header, word};
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

/// Verified verdicts of each row.
pub(crate) fn verify(
    logits: CubeTensor,
    verdicts: CubeTensor,
    draft_logits: CubeTensor,
    step: &CubeTensor,
) -> CubeTensor {
    let (logits, sampled) = (contiguous(logits), contiguous(verdicts));
    let draft_logits = contiguous(draft_logits);
    let [num_rows, vocab_size] = [logits.meta.shape()[0], logits.meta.shape()[1]];
    let blueprint = Blueprint::new(logits.client.properties(), vocab_size);
    let residual = empty(&logits, Shape::from([num_rows, vocab_size]), DType::F32);
    let out = empty(&logits, Shape::from([num_rows, 2]), DType::U32);
    // SAFETY: the tensor function checked the shapes; rows were checked when the step was packed, and
    // the kernel checks those of the launch.
    unsafe {
        verify_kernel::launch_unchecked(
            &logits.client,
            cube_count(num_rows),
            CubeDim::new_1d(blueprint.units),
            buffer(&logits),
            buffer(&sampled),
            buffer(&draft_logits),
            buffer(step),
            buffer(&residual),
            buffer(&out),
            blueprint,
        );
    }
    out
}

/// The kernels that [`verify`] launches.
pub(crate) fn kernels(target: &CompileTarget, vocab_size: usize) -> Vec<Box<dyn CubeKernel>> {
    let blueprint = Blueprint::new(&target.properties, vocab_size);
    vec![Box::new(verify_kernel::create_dummy_kernel(
        target.properties.clone(),
        target.target.clone(),
        cube_count(1),
        CubeDim::new_1d(blueprint.units),
        target.buffer(vocab_size),
        target.buffer(2),
        target.buffer(vocab_size),
        target.buffer(1),
        target.buffer(vocab_size),
        target.buffer(2),
        blueprint,
    ))]
}

#[cube(launch_unchecked, create_dummy_kernel)]
fn verify_kernel(
    logits: &[f32],
    sampled: &[u32],
    draft_logits: &[f32],
    step: &[u32],
    residual: &mut [f32],
    verdicts: &mut [u32],
    #[comptime] blueprint: Blueprint,
) {
    let units = comptime!(blueprint.units);
    let mut buffers = Buffers {
        scratch: Shared::<[f32]>::new_slice(comptime!(units as usize)),
        words: Shared::<[u32]>::new_slice(comptime!(units as usize)),
        state: Shared::<[u32]>::new_slice(comptime!(state::LEN)),
    };
    let row = CUBE_POS;
    let is_row = row * 2 < verdicts.len();
    let live = is_row && row < step[header::NUM_LOGIT_ROWS] as usize;
    let sampling = step[header::SAMPLING] as usize;
    let parameters = sampling + select(live, row, 0usize) * SAMPLING_WORDS;
    let is_draft = (step[parameters + word::FLAGS] & flag::DRAFT) != 0u32;
    let num_drafts = select(live, step[parameters + word::NUM_DRAFTS], 0u32);
    if UNIT_POS == 0 {
        // Of a tree's rows only its own cube writes any.
        if is_row && !(live && is_draft) {
            verdicts[row * 2] = select(live, sampled[row * 2], 0u32);
            verdicts[row * 2 + 1] = select(live, sampled[row * 2 + 1], 0u32);
        }
        for draft in 0..num_drafts as usize {
            verdicts[(row + 1 + draft) * 2] = 0u32;
            verdicts[(row + 1 + draft) * 2 + 1] = STATUS_UNREACHED;
        }
        buffers.state[state::NUM_DRAFTS] = num_drafts;
    }
    sync_cube();
    let tree = Tree {
        row,
        num_drafts: buffers.state[state::NUM_DRAFTS] as usize,
        sampling,
    };
    if tree.num_drafts > 0 {
        let temperature = f32::from_bits(step[parameters + word::TEMPERATURE]);
        let verification = step[parameters + word::VERIFICATION];
        let is_shared = verification == 0u32 || temperature < TEMPERATURE_MIN;
        let is_block = verification == 2u32 && tree.is_chain(step);
        if UNIT_POS == 0 {
            buffers.state[state::RULE] = select(is_shared, 0u32, select(is_block, 2u32, 1u32));
        }
        sync_cube();
        let rule = buffers.state[state::RULE];
        if rule == 0u32 {
            if UNIT_POS == 0 {
                walk(&tree, sampled, step, verdicts);
            }
        } else if rule == 1u32 {
            rejection::verify(
                &tree,
                logits,
                sampled,
                draft_logits,
                step,
                residual,
                verdicts,
                &mut buffers,
                blueprint,
            );
        } else {
            block::verify(
                &tree,
                logits,
                sampled,
                draft_logits,
                step,
                residual,
                verdicts,
                &mut buffers,
                blueprint,
            );
        }
    }
}

/// Follows the sampled tokens as far as there are drafts like them.
#[cube]
fn walk(tree: &Tree, sampled: &[u32], step: &[u32], verdicts: &mut [u32]) {
    let mut at = 0usize;
    let mut going = true;
    while going {
        let row = tree.row + at;
        let token = sampled[row * 2];
        let status = sampled[row * 2 + 1];
        verdicts[row * 2] = token;
        verdicts[row * 2 + 1] = status;
        let mut next = 0usize;
        if status == STATUS_TOKEN {
            for child in at + 1..tree.num_nodes() {
                let is_it = next == 0 && tree.is_child(step, at, child);
                if is_it && tree.token(step, child) == token {
                    next = child;
                }
            }
        }
        going = next > 0;
        at = next;
    }
}
