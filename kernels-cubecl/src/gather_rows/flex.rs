//! Native picking of rows: see the contract in [`super`].

/// Copies row `rows[r]` of `x` to row r of `out`.
///
/// # Shapes
/// `x [T, columns]`, `rows [R]`, `out [R, columns]`.
pub fn gather_rows(x: &[f32], columns: usize, rows: &[u32], out: &mut [f32]) {
    assert!(
        out.len() >= rows.len() * columns,
        "{} values for {} rows",
        out.len(),
        rows.len()
    );
    for (out, &row) in out.chunks_exact_mut(columns).zip(rows) {
        out.copy_from_slice(&x[row as usize * columns..][..columns]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_the_order_asked_for() {
        let x: Vec<f32> = (0..35).map(|i| i as f32).collect();
        let mut out = [0.0; 21];
        gather_rows(&x, 7, &[4, 0, 4], &mut out);
        assert_eq!(out[..7], x[28..]);
        assert_eq!(out[7..14], x[..7]);
        assert_eq!(out[14..], x[28..]);
    }
}
