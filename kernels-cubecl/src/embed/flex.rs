//! Native twin of [`super`]: rows of a packed table, decoded.

use crate::linear::flex::Weights;
use crate::packed::native::{TileLayout, unpack_row};

/// Writes row `token_ids[t]` of the table, times `scale`, to row `t` of `out [T, M]`: exactly the
/// values that [`dequantize_row`](crate::packed::dequantize::dequantize_row) gives.
///
/// # Panics
///
/// If lengths do not fit the table's shape, or an id is not below its number of rows.
pub fn embed(table: &Weights<'_>, token_ids: &[u32], scale: f32, out: &mut [f32]) {
    let d_input = table.spec.d_input;
    assert_eq!(
        out.len(),
        token_ids.len() * d_input,
        "one row for each token"
    );
    for (&id, out) in token_ids.iter().zip(out.chunks_exact_mut(d_input)) {
        let id = id as usize;
        let (part, bytes) = table
            .spec
            .parts
            .iter()
            .zip(table.parts)
            .find(|(part, _)| (part.row_start..part.row_start + part.num_rows).contains(&id))
            .unwrap_or_else(|| panic!("token {id} in a table of {} rows", table.spec.d_output));
        unpack_row(
            &TileLayout::new(part.format, d_input),
            bytes,
            id - part.row_start,
            out,
        );
        for value in out {
            *value *= scale;
        }
    }
}
