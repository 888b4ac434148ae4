//! Crafted and damaged files are refused with a typed error, and never panic.

use super::super::*;
use super::writer::{Writer, text};
use super::{floats, open, use_all};
use crate::loaders::test_files::{Scratch, fixture};

#[track_caller]
fn refused(bytes: &[u8], expected: &str) {
    let error = open(bytes).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}\n  lacks: {expected}");
    assert!(error.contains("model.gguf"), "{error}");
}

/// A file with one matrix of 2 x 3.
fn good() -> Writer {
    Writer::new().tensor("w", &[3, 2], 0, &floats(&[0.; 6]))
}

#[test]
fn a_header_that_is_not_ours_is_refused() {
    refused(
        b"GGML0000",
        "begins with the letters GGUF, found the bytes [47, 47, 4d, 4c]",
    );
    refused(b"GGUF\x01\0\0\0", "expected 2 or 3, little-endian, found 1");
    refused(b"GGUF\0\0\0\x03", "found 3 in big-endian order");
    refused(
        &[],
        "the magic number needs 4 bytes at byte 0, but only 0 are left",
    );
    let mut many_tensors = good().bytes();
    many_tensors[8..16].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    refused(
        &many_tensors,
        "tensor ``: expected 1 to 4 dimensions, found 0",
    );
    let mut many_values = good().bytes();
    many_values[16..24].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    refused(&many_values, "is cut short");
}

#[test]
fn crafted_tensors_are_refused_by_name() {
    let tensor = |dims: &[u64], kind| Writer::new().tensor("w", dims, kind, &[0; 64]).bytes();
    refused(
        &tensor(&[2, 0], 0),
        "tensor `w`: expected dimensions above zero, found [2, 0]",
    );
    refused(
        &tensor(&[1 << 40, 1 << 40], 0),
        "a size that can be counted",
    );
    refused(&tensor(&[1 << 62], 0), "a size that can be counted");
    refused(&tensor(&[u64::MAX, 1], 0), "a size that can be counted");
    refused(&tensor(&[1 << 40], 0), "tensor `w` ends at byte 4398046511");
    refused(&tensor(&[], 0), "expected 1 to 4 dimensions, found 0");
    refused(&tensor(&[1; 5], 0), "expected 1 to 4 dimensions, found 5");
    let expected = "rows of whole blocks of 32 values, found rows of 33 values as Q4_0";
    refused(&tensor(&[33], 2), expected);
    refused(
        &good().bytes_with(|_, _| 1 << 50),
        "tensor `w` ends at byte 112589990684",
    );
    refused(
        &good().bytes_with(|_, _| !31),
        "`w` ends at byte 18446744073709551615",
    );
    refused(
        &good().tensor("w", &[1], 0, &[0; 4]).bytes(),
        "each name once, found it twice",
    );
}

#[test]
fn crafted_metadata_is_refused_by_key() {
    let array = |kind: u32, len: u64| [&kind.to_le_bytes()[..], &len.to_le_bytes()].concat();
    let value = |kind, bytes: &[u8]| Writer::new().value("k", kind, bytes).bytes();
    refused(
        &Writer::new().u32("general.alignment", 0).bytes(),
        "found the integer 0",
    );
    refused(
        &Writer::new().u32("general.alignment", 24).bytes(),
        "found the integer 24",
    );
    let wide = Writer::new().value("general.alignment", 10, &32_u64.to_le_bytes());
    refused(&wide.bytes(), "expected a power of two stored as U32");
    refused(
        &Writer::new().string("general.alignment", "32").bytes(),
        "found the text \"32\"",
    );
    refused(
        &value(8, &(1_u64 << 60).to_le_bytes()),
        "`k` needs 1152921504",
    );
    refused(&value(9, &array(8, 1 << 60)), "element 0 of 1152921504");
    refused(&value(9, &array(10, u64::MAX)), "`k` needs 184467440737");
    refused(&value(9, &array(9, 1).repeat(20)), "nested at most 4 deep");
    refused(
        &value(13, &[]),
        "type of metadata key `k`: expected 0 to 12",
    );
    refused(
        &Writer::new().u32("k", 1).u32("k", 2).bytes(),
        "each key once, found it twice",
    );
}

#[test]
fn tensors_that_share_bytes_are_refused() {
    let file = Writer::new()
        .tensor("a", &[16], 0, &floats(&[0.; 16]))
        .tensor("b", &[16], 0, &floats(&[0.; 16]));
    let error = open(&file.bytes_with(|index, offset| offset - 32 * index as u64)).unwrap_err();
    assert!(
        error.to_string().contains("tensors `a` and `b` overlap"),
        "{error}"
    );
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let whole = Writer::new()
        .u32("llama.block_count", 1)
        .value(
            "list",
            9,
            &[&8_u32.to_le_bytes()[..], &1_u64.to_le_bytes(), &text("x")].concat(),
        )
        .tensor("a", &[3], 0, &floats(&[1., 2., 3.]))
        .tensor("b", &[32, 2], 8, &[1; 68])
        .bytes();
    let folder = Scratch::new("cut");
    for len in 0..whole.len() {
        let path = folder.write("cut.gguf", &whole[..len]);
        let error = GgufFile::open(&path).expect_err("a part of the file was accepted");
        let is_cut = matches!(
            error,
            LoadError::Truncated { .. } | LoadError::TensorPastEnd { .. }
        );
        assert!(is_cut, "{error}");
    }
    use_all(&folder.write("whole.gguf", &whole)).unwrap();
}

#[test]
fn a_cut_fixture_never_panics() {
    let whole = std::fs::read(fixture("tiny_gguf/llama-q4_0.gguf")).unwrap();
    let folder = Scratch::new("cut-fixture");
    for len in (0..whole.len()).step_by(whole.len() / 300) {
        assert!(use_all(&folder.write("cut.gguf", &whole[..len])).is_err());
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let small = Writer::new()
        .u32("llama.block_count", 1)
        .value(
            "list",
            9,
            &[&8_u32.to_le_bytes()[..], &1_u64.to_le_bytes(), &text("x")].concat(),
        )
        .tensor("a", &[3], 0, &floats(&[1., 2., 3.]))
        .tensor("b", &[32, 2], 8, &[1; 68])
        .bytes();
    let folder = Scratch::new("flip");
    for index in 0..small.len() {
        for value in [
            0,
            1,
            8,
            9,
            0x7f,
            0xff,
            small[index] ^ 1,
            small[index] ^ 0x80,
        ] {
            let mut bytes = small.clone();
            bytes[index] = value;
            let _ = use_all(&folder.write("flipped.gguf", &bytes));
        }
    }
    let fixture = std::fs::read(fixture("tiny_gguf/llama-q4_0.gguf")).unwrap();
    // A linear congruential generator: the same flips in every run.
    let mut state = 1_u64;
    for _ in 0..500 {
        let mut bytes = fixture.clone();
        for _ in 0..4 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let header_len = 12_000;
            bytes[(state >> 33) as usize % header_len] = (state >> 20) as u8;
        }
        let _ = use_all(&folder.write("flipped.gguf", &bytes));
    }
}
