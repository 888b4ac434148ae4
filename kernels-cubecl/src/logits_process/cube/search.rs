//! Finding limits on devices: the greatest integer at which a count or a mass is still reached, two bits
//! per pass over the row.
//!
//! Logits are read as bits and compared as integers of the same order, because shader compilers may assume
//! that there are no infinities.
//!
//! Neighbours: [`super`] finds the limits of filters with it, [`crate::logprobs`] the most likely tokens.

use crate::elementary::exp;
use crate::launch::cube_sum;
use cubecl::prelude::*;

/// Bits of minus infinity, which masks a token.
pub(crate) const MASKED: u32 = 0xff80_0000;

/// What is searched for, and what counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Search {
    /// By logit; every token counts 1.
    Count,
    /// By logit; tokens not below `lowest` count their mass.
    Mass,
    /// By nearness to `centre`; tokens not below `lowest` count their mass.
    Nearness,
    /// By id, lowest first, among the tokens at `lowest`; each counts 1.
    Ties,
}

/// A row of logits and what its tokens are measured by.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct RowView {
    /// Where it begins.
    pub(crate) start: usize,
    /// V.
    pub(crate) len: usize,
    /// Its greatest logit.
    pub(crate) maximum: f32,
    /// Temperature.
    pub(crate) divisor: f32,
    /// Key of the least logit that counts.
    pub(crate) lowest: u32,
    /// What is most typical.
    pub(crate) centre: f32,
}

/// An integer that orders as the float of these bits does; both zeros are equal.
#[cube]
pub(crate) fn key_of(bits: u32) -> u32 {
    let negative = (bits >> 31u32) == 1u32 && bits != 0x8000_0000u32;
    select(negative, !bits, bits | 0x8000_0000u32)
}

/// The bits of the float with this key.
#[cube]
pub(crate) fn bits_of(key: u32) -> u32 {
    select((key >> 31u32) == 1u32, key & 0x7fff_ffffu32, !key)
}

/// `(logit - maximum) / temperature`; 0 for a masked token, whose infinity no arithmetic may see.
#[cube]
pub(crate) fn scaled(bits: u32, row: &RowView) -> f32 {
    let logit = f32::from_bits(select(bits == MASKED, row.maximum.to_bits(), bits));
    (logit - row.maximum) / row.divisor
}

/// Share of the greatest probability, 0 for masked tokens and those below `lowest`.
#[cube]
pub(crate) fn mass(bits: u32, row: &RowView) -> f32 {
    let live = bits != MASKED && key_of(bits) >= row.lowest;
    select(live, exp(scaled(bits, row)), 0.0f32)
}

/// Bits of the distance from what is most typical.
#[cube]
pub(crate) fn distance_bits(bits: u32, row: &RowView) -> u32 {
    (scaled(bits, row) - row.centre).to_bits() & 0x7fff_ffffu32
}

/// The greatest integer such that what is not below it reaches `target` together, which is above 0; 0 if
/// nothing does. To be called by all units of a cube.
#[cube]
pub(crate) fn find_limit(
    logits: &[u32],
    row: &RowView,
    target: f32,
    scratch: &mut Shared<[f32]>,
    #[comptime] what: Search,
    #[comptime] units: u32,
) -> u32 {
    let mut found = 0u32;
    for pass in 0..16u32 {
        let bit = 1u32 << (30u32 - 2u32 * pass);
        let first = found | bit;
        let second = found | (2u32 * bit);
        let third = found | (3u32 * bit);
        let mut from_first = 0.0f32;
        let mut from_second = 0.0f32;
        let mut from_third = 0.0f32;
        for i in range_stepped(UNIT_POS as usize, row.len, comptime!(units as usize)) {
            let bits = logits[row.start + i];
            let mut place = key_of(bits);
            let mut weight = 1.0f32;
            if comptime!(what == Search::Mass) {
                weight = mass(bits, row);
            }
            if comptime!(what == Search::Nearness) {
                place = !distance_bits(bits, row);
                weight = mass(bits, row);
            }
            if comptime!(what == Search::Ties) {
                weight = select(place == row.lowest, 1.0f32, 0.0f32);
                place = !u32::cast_from(i);
            }
            from_first += select(place >= first, weight, 0.0f32);
            from_second += select(place >= second, weight, 0.0f32);
            from_third += select(place >= third, weight, 0.0f32);
        }
        let from_first = cube_sum(from_first, scratch, units);
        let from_second = cube_sum(from_second, scratch, units);
        let from_third = cube_sum(from_third, scratch, units);
        // The sums descend: each adds the same values in the same order, and some are left out.
        let low = select(from_first >= target, first, found);
        let middle = select(from_second >= target, second, low);
        found = select(from_third >= target, third, middle);
    }
    found
}
