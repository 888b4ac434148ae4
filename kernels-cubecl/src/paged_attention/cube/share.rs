//! How the units of a cube divide rows and positions, or rows and values, among themselves.
//!
//! Where the division comes out even no index needs a bound, and where one unit stands for all rows
//! their numbers are constants: addresses then differ by constants, and one register holds them all.
//!
//! Neighbours: used by [`super::tile`] alone.

use super::TILE;
use super::attend::AttendBlueprint;
use cubecl::prelude::*;

/// Which rows and positions, or values, a unit works on.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// Units along the positions or values.
    pub(super) lanes: usize,
    /// Units along the rows.
    pub(super) row_lanes: usize,
    /// Positions or values per unit.
    pub(super) per_lane: usize,
    /// Rows per unit.
    pub(super) rows: usize,
}

impl Share {
    fn of(blueprint: &AttendBlueprint, len: usize) -> Self {
        let lanes = len.next_power_of_two().min(blueprint.units);
        let row_lanes = blueprint.units / lanes;
        let rows = blueprint.rows().div_ceil(row_lanes);
        Self {
            lanes,
            row_lanes,
            per_lane: len.div_ceil(lanes),
            rows,
        }
    }

    pub(super) fn of_positions(blueprint: &AttendBlueprint) -> Self {
        Self::of(blueprint, TILE)
    }

    pub(super) fn of_values(blueprint: &AttendBlueprint) -> Self {
        Self::of(blueprint, blueprint.head_dim)
    }

    /// Whether every unit's rows are among `rows`.
    pub(super) const fn rows_fit(&self, rows: usize) -> bool {
        rows.is_multiple_of(self.row_lanes)
    }

    /// Whether every unit's positions or values are among `len`.
    pub(super) const fn lanes_fit(&self, len: usize) -> bool {
        len.is_multiple_of(self.lanes)
    }
}

/// Which of the rows' lanes unit `unit` is. Where there is one, rows are constants.
#[cube]
pub(super) fn row_lane_of(unit: usize, #[comptime] share: Share) -> usize {
    if comptime!(share.row_lanes == 1) {
        0usize.runtime()
    } else {
        unit / comptime!(share.lanes)
    }
}

/// `index` if `fits`, or else at most the last of `len`: what is past the last is computed from it
/// and not kept.
#[cube]
pub(super) fn at_most_last(index: usize, #[comptime] len: usize, #[comptime] fits: bool) -> usize {
    if comptime!(fits) {
        index
    } else {
        index.min(comptime!(len - 1))
    }
}
