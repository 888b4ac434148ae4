//! The layout read back on the host and on devices, against the definition of every format.

use super::read::{RUN_LEN, group_scale, packed_row, read_run};
use super::*;
use crate::launch;
use crate::linear::cube::testing::{Random, devices, read, words};
use crate::packed::dequantize::dequantize_row;
use cubecl::prelude::*;

#[test]
fn packed_weights_are_as_small_as_the_file() {
    for format in WeightFormat::ALL {
        for d_input in [576, 640, 1536, 2048, 4096] {
            let Some(row_bytes) = format.row_bytes(d_input) else {
                continue;
            };
            let device_bytes = (4 * num_words(format, d_input, 576)) as f64;
            let growth = device_bytes / (576 * row_bytes) as f64;
            assert!(
                (1.0..1.03).contains(&growth),
                "{format} {d_input}: {growth}"
            );
        }
    }
}

#[test]
fn rows_of_odd_length_are_padded_to_groups() {
    let mut random = Random(5);
    let bytes = random.rows(WeightFormat::F16, 5, 3);
    let words = pack(WeightFormat::F16, 5, 3, &bytes);
    assert_eq!(words.len(), 32 * 16);
    for row in 0..3 {
        let halves = bytes[10 * row..][..10].as_chunks::<2>().0;
        let half = |i: usize| {
            halves
                .get(i)
                .map_or(0, |&half| u32::from(u16::from_le_bytes(half)))
        };
        for i in 0..16 {
            assert_eq!(
                words[32 * i + row],
                half(2 * i) | half(2 * i + 1) << 16,
                "{row} {i}"
            );
        }
    }
}

#[test]
fn every_format_reads_back_exactly() {
    for (name, device) in devices() {
        for format in WeightFormat::ALL {
            let mut random = Random(format.block_bytes() as u64);
            let (d_input, num_rows) = (format.block_len().max(32) * 3, 35);
            let bytes = random.rows(format, d_input, num_rows);
            let packed = words(&device, &pack(format, d_input, num_rows, &bytes));
            let output = launch::empty_f32(&packed, [num_rows, d_input]);
            let properties = packed.client.properties();
            let num_runs = num_rows * d_input / RUN_LEN;
            let (count, dim) = launch::elementwise(properties, num_runs);
            // SAFETY: units past the last run do nothing, the others stay in both buffers.
            unsafe {
                read_all::launch_unchecked(
                    &packed.client,
                    count,
                    dim,
                    launch::buffer(&packed),
                    launch::buffer(&output),
                    d_input,
                    format,
                );
            }
            let found = read(&output);
            for (row, bytes) in bytes
                .chunks_exact(format.row_bytes(d_input).unwrap())
                .enumerate()
            {
                let mut expected = vec![0.0; d_input];
                dequantize_row(format, bytes, &mut expected);
                let found = &found[row * d_input..][..d_input];
                assert_eq!(found, expected, "{name} {format} row {row}");
            }
        }
    }
}

#[cube(launch_unchecked)]
fn read_all(words: &[u32], output: &mut [f32], d_input: usize, #[comptime] format: WeightFormat) {
    let start = ABSOLUTE_POS * RUN_LEN;
    if start < output.len() {
        let row = packed_row(start / d_input, d_input.div_ceil(GROUP_LEN), format);
        let group = start % d_input / GROUP_LEN;
        let scale = group_scale(words, &row, group, format);
        let run = start % GROUP_LEN / RUN_LEN;
        let values = read_run(words, &row, group, run, &scale, format);
        #[unroll]
        for i in 0..RUN_LEN {
            output[start + i] = values[i];
        }
    }
}
