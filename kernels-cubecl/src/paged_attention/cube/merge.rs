//! Combines the partial results of a context's runs, in their order.
//!
//! ```text
//! cube:  a row: one token, one head      unit: values u, u + U, .. of D
//! ```
//!
//! Neighbours: [`super::attend`] writes the partial results.

use super::attend::AttendBlueprint;
use super::math::exp2;
use crate::launch;
use cubecl::ir::DeviceProperties;
use cubecl::prelude::*;

/// How `merge_runs` is specialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MergeBlueprint {
    /// D.
    pub(crate) head_dim: usize,
    /// Runs of a context.
    pub(crate) splits: usize,
    /// Units per cube.
    pub(crate) units: usize,
}

impl MergeBlueprint {
    /// For the partial results of `attend`.
    pub(super) fn new(properties: &DeviceProperties, attend: &AttendBlueprint) -> Self {
        let units = if attend.units == 1 {
            1
        } else {
            launch::units_per_cube(properties, attend.head_dim.next_power_of_two()) as usize
        };
        Self {
            head_dim: attend.head_dim,
            splits: attend.splits,
            units,
        }
    }

    /// Values of a partial result.
    pub(crate) const fn partial_len(&self) -> usize {
        self.head_dim + 2
    }
}

/// See `super::launch`: `partials [T, H, splits, D + 2]`, `output [T, H * D]`.
#[cube(launch_unchecked, create_dummy_kernel)]
pub(crate) fn merge_runs(
    partials: &[f32],
    output: &mut [f32],
    #[comptime] blueprint: MergeBlueprint,
) {
    let d = comptime!(blueprint.head_dim);
    let splits = comptime!(blueprint.splits);
    let len = comptime!(blueprint.partial_len());
    let row = CUBE_POS;
    if row < output.len() / d {
        let start = row * splits * len;
        let mut maximum = partials[start + d];
        for split in 1..splits {
            maximum = maximum.max(partials[start + split * len + d]);
        }
        let mut weights = Array::<f32>::new(splits);
        let mut sum = 0.0f32;
        #[unroll]
        for split in 0..splits {
            let at = start + split * len + d;
            // A run without positions has the sum 0.
            weights[split] = exp2(partials[at] - maximum);
            sum = fma(partials[at + 1], weights[split], sum);
        }
        let factor = select(sum > 0.0f32, 1.0f32 / sum, 0.0f32);
        let mut column = UNIT_POS as usize;
        while column < d {
            let mut value = 0.0f32;
            #[unroll]
            for split in 0..splits {
                value = fma(
                    partials[start + split * len + column],
                    weights[split],
                    value,
                );
            }
            output[row * d + column] = value * factor;
            column += comptime!(blueprint.units);
        }
    }
}
