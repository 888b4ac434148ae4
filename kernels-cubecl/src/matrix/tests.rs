//! Merging and splitting of rows, and where the bytes end up.

use super::*;

fn rows(format: WeightFormat, num_rows: usize, bytes: &[u8]) -> RawRows<'_> {
    RawRows {
        format,
        num_rows,
        bytes,
    }
}

#[test]
fn neighbours_of_one_format_become_one_part_and_others_do_not() {
    let d_input = 32;
    let a = vec![1; 3 * 34];
    let b = vec![2; 5 * 34];
    let c = vec![3; 2 * 18];
    let rows = [
        rows(WeightFormat::Q8_0, 3, &a),
        rows(WeightFormat::Q8_0, 5, &b),
        rows(WeightFormat::Q4_0, 2, &c),
    ];
    let matrix = PackedMatrix::pack(&rows, d_input, &Device::flex(), None).unwrap();
    assert_eq!(
        matrix.spec(),
        &MatrixSpec {
            d_input,
            d_output: 10,
            parts: vec![
                PartSpec {
                    format: WeightFormat::Q8_0,
                    row_start: 0,
                    num_rows: 8
                },
                PartSpec {
                    format: WeightFormat::Q4_0,
                    row_start: 8,
                    num_rows: 2
                },
            ],
            activations: ActivationMode::Int8,
        }
    );
}

#[test]
fn native_parts_keep_their_alignment_inside_a_tensor() {
    let bytes = vec![0; 7 * 34];
    let matrix = PackedMatrix::pack(
        &[rows(WeightFormat::Q8_0, 7, &bytes)],
        32,
        &Device::flex(),
        None,
    )
    .unwrap();
    for part in &matrix.parts {
        assert_eq!(part.val().dtype(), DType::U8);
    }
    for part in matrix.dispatch_parts() {
        let start = crate::backend::native_address(part);
        assert_eq!(start % 64, 0, "at {start:#x}");
    }
}

#[test]
fn a_run_is_cut_into_parts_of_whole_tiles_that_the_device_can_bind() {
    let d_input = 64;
    let row_bytes = WeightFormat::F32.row_bytes(d_input).unwrap();
    let (a, b) = (vec![7; 150 * row_bytes], vec![8; 51 * row_bytes]);
    let run = Run {
        format: WeightFormat::F32,
        num_rows: 201,
        pieces: vec![a.as_slice(), b.as_slice()],
    };
    let parts = split(&run, d_input, 70 * row_bytes as u64).unwrap();
    assert_eq!(
        parts.iter().map(|part| part.num_rows).collect::<Vec<_>>(),
        [64, 64, 64, 9]
    );
    let joined: Vec<u8> = parts
        .iter()
        .flat_map(|part| part.bytes().into_owned())
        .collect();
    assert_eq!(joined, run.bytes().as_ref());
}

#[test]
fn rows_that_no_binding_holds_are_an_error_with_the_numbers() {
    let bytes = vec![0; 64 * 4 * 40];
    let run = Run {
        format: WeightFormat::F32,
        num_rows: 40,
        pieces: vec![bytes.as_slice()],
    };
    let Err(error) = split(&run, 64, 1000) else {
        panic!("must not fit")
    };
    assert!(error.to_string().contains("8192 bytes"), "{error}");
}

#[test]
fn a_wrong_number_of_bytes_is_an_error() {
    let bytes = vec![0; 33];
    let result = PackedMatrix::pack(
        &[rows(WeightFormat::Q8_0, 1, &bytes)],
        32,
        &Device::flex(),
        None,
    );
    assert!(matches!(
        result,
        Err(PackError::Rows(native::PackError::Length {
            expected: 34,
            found: 33,
            ..
        }))
    ));
}
