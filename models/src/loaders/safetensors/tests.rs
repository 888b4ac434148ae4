//! Whole models are read; cut, crafted and incomplete ones are refused with a typed error.

use std::collections::HashMap;

use ::safetensors::tensor::{Dtype, TensorView as Written, serialize};

use super::*;
use crate::loaders::test_files::{Scratch, fixture};

/// A file with an f32 matrix `a`, a bf16 vector `b` and an integer vector `c`, in this order.
fn good() -> Vec<u8> {
    let a = [1_f32, 2., 3., 4., 5., 6.]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect::<Vec<_>>();
    let tensors = [
        ("a", Written::new(Dtype::F32, vec![2, 3], &a).unwrap()),
        (
            "b",
            Written::new(Dtype::BF16, vec![2], &[0x80, 0x3f, 0x00, 0xc0]).unwrap(),
        ),
        ("c", Written::new(Dtype::I8, vec![3], &[1, 2, 3]).unwrap()),
    ];
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    serialize(tensors, Some(metadata)).unwrap()
}

/// A file from any header.
fn crafted(header: &str, data_bytes: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + data_bytes, 0);
    file
}

fn open(bytes: &[u8]) -> Result<SafetensorsModel, LoadError> {
    let folder = Scratch::new("safetensors");
    SafetensorsModel::open(&folder.write("model.safetensors", bytes))
}

fn use_all(path: &Path) -> Result<usize, LoadError> {
    let model = SafetensorsModel::open(path)?;
    let views = model
        .names()
        .into_iter()
        .filter_map(|name| model.tensor(name).ok());
    Ok(views
        .map(|view| view.bytes.len() + view.to_f32_vec().map_or(0, |v| v.len()))
        .sum())
}

#[test]
fn tensors_are_views_of_the_file_and_reads_are_counted() {
    let model = open(&good()).unwrap();
    assert_eq!(model.names(), ["a", "b", "c"]);
    let a = model.tensor("a").unwrap().expect_shape(&[2, 3]).unwrap();
    assert_eq!((a.format, a.num_values()), (WeightFormat::F32, 6));
    assert_eq!(a.to_f32_vec().unwrap(), [1., 2., 3., 4., 5., 6.]);
    assert_eq!(model.tensor("b").unwrap().to_f32_vec().unwrap(), [1., -2.]);
    let error = model.tensor("c").unwrap_err().to_string();
    assert!(
        error.ends_with("`c` is stored as I8, expected one of F32, F16, BF16"),
        "{error}"
    );
    assert_eq!(model.unread(), ["c"]);
    let error = model.tensor("d").unwrap_err().to_string();
    assert!(error.ends_with("has no tensor `d`"), "{error}");
}

#[test]
fn a_file_cut_at_any_byte_is_refused_with_the_bytes_that_are_missing() {
    let whole = good();
    let folder = Scratch::new("cut");
    for len in 0..whole.len() {
        let error = SafetensorsModel::open(&folder.write("cut.safetensors", &whole[..len]))
            .expect_err("a part of the file was accepted");
        let is_cut = matches!(
            error,
            LoadError::Truncated { .. } | LoadError::TensorPastEnd { .. }
        );
        assert!(is_cut, "{error}");
    }
    let error = open(&whole[..whole.len() - 2]).unwrap_err().to_string();
    assert!(
        error.contains("tensor `c`") && error.contains("2 bytes are missing"),
        "{error}"
    );
    use_all(&folder.write("whole.safetensors", &whole)).unwrap();
}

#[test]
fn data_at_any_address_is_read_right() {
    let header = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}}"#;
    for padding in 0..4 {
        let mut file = crafted(&format!("{header}{}", " ".repeat(padding)), 7);
        let end = file.len();
        file[end - 4..].copy_from_slice(&1.5_f32.to_le_bytes());
        assert_eq!(
            open(&file)
                .unwrap()
                .tensor("w")
                .unwrap()
                .to_f32_vec()
                .unwrap(),
            [1.5]
        );
    }
}

#[track_caller]
fn refused(bytes: &[u8], expected: &str) {
    let error = open(bytes).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}\n  lacks: {expected}");
    assert!(error.contains("model.safetensors"), "{error}");
}

/// A file with one tensor as stated.
fn one(dtype: &str, shape: &str, offsets: &str, data_bytes: usize) -> Vec<u8> {
    let entry = format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#);
    crafted(&format!(r#"{{"w":{entry}}}"#), data_bytes)
}

#[test]
fn crafted_tensors_are_refused_by_name() {
    let expected = "expected 8 bytes for F32 [2], found data_offsets 0 to 4";
    refused(&one("F32", "[2]", "[0,4]", 8), expected);
    refused(&one("F32", "[-1]", "[0,4]", 8), "safetensors header");
    refused(
        &one("F32", "[1]", "[4,0]", 8),
        "expected offsets in order, found 4 to 0",
    );
    refused(&one("F32", "[1]", "[8,12]", 8), "tensor `w` ends at byte");
    let square = "[1099511627776,1099511627776]";
    refused(
        &one("F32", square, "[0,4]", 8),
        "a size that can be counted",
    );
    let long = one("F32", "[4503599627370496]", "[0,18014398509481984]", 8);
    refused(&long, "tensor `w` ends at byte");
    let last = "[18446744073709551614,18446744073709551615]";
    refused(
        &one("U8", "[1]", last, 8),
        "`w` ends at byte 18446744073709551615",
    );
    refused(
        &one("NEW", "[1]", "[0,18446744073709551615]", 8),
        "tensor `w` ends at byte",
    );
    let unknown = open(&one("NEW", "[18446744073709551615]", "[0,4]", 4)).unwrap();
    assert!(matches!(
        unknown.tensor("w"),
        Err(LoadError::UnsupportedFormat { .. })
    ));
    assert!(open(&one("F32", "[0,18446744073709551615]", "[0,0]", 0)).is_ok());
}

#[test]
fn crafted_headers_are_refused() {
    let mut long_header = good();
    long_header[..8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    refused(
        &long_header,
        "the header needs 1152921504606846976 bytes at byte 8",
    );
    refused(&crafted("not json", 0), "safetensors header: expected JSON");
    refused(
        &crafted(&"[".repeat(10_000), 0),
        "safetensors header: expected JSON",
    );
    refused(&crafted(r#"{"w":{"dtype":"F32"}}"#, 0), "missing field");
    let two = |second: &str| {
        let entry = |offsets| format!(r#"{{"dtype":"U8","shape":[4],"data_offsets":{offsets}}}"#);
        crafted(
            &format!(
                r#"{{"w":{},"{second}":{}}}"#,
                entry("[0,4]"),
                entry("[3,7]")
            ),
            7,
        )
    };
    refused(&two("v"), "tensors `w` and `v` overlap at byte");
    refused(
        &two("w"),
        "tensor `w`: expected each name once, found it twice",
    );
}

#[test]
fn flipped_bytes_never_panic() {
    let whole = good();
    let folder = Scratch::new("flip");
    for index in 0..whole.len() {
        for value in [0, b'"', b'9', b'{', 0x7f, 0xff, whole[index] ^ 1] {
            let mut bytes = whole.clone();
            bytes[index] = value;
            let _ = use_all(&folder.write("flipped.safetensors", &bytes));
        }
    }
}

fn copy_shards(folder: &Scratch) -> Vec<PathBuf> {
    let source = fixture("tiny/llama_sharded");
    [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        INDEX_NAME,
    ]
    .iter()
    .map(|name| folder.write(name, &std::fs::read(source.join(name)).unwrap()))
    .collect()
}

#[test]
fn shards_hold_the_same_tensors_as_the_single_file() {
    let shards = SafetensorsModel::open(&fixture("tiny/llama_sharded")).unwrap();
    let single = SafetensorsModel::open(&fixture("tiny/llama")).unwrap();
    assert_eq!(shards.names(), single.names());
    for name in single.names() {
        let (a, b) = (single.tensor(name).unwrap(), shards.tensor(name).unwrap());
        assert_eq!(
            (a.format, a.shape, a.bytes),
            (b.format, b.shape, b.bytes),
            "{name}"
        );
    }
}

#[test]
fn missing_shards_are_listed_before_anything_is_read() {
    let folder = Scratch::new("shards");
    let files = copy_shards(&folder);
    std::fs::remove_file(&files[1]).unwrap();
    let error = SafetensorsModel::open(folder.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("files that are missing"), "{error}");
    assert!(
        error.contains("model-00002-of-00002") && !error.contains("model-00001"),
        "{error}"
    );
}

#[test]
fn an_index_that_does_not_fit_its_shards_is_refused() {
    let folder = Scratch::new("stale");
    let files = copy_shards(&folder);
    let index = std::fs::read_to_string(&files[2]).unwrap();
    let cases = [
        (
            index.replace("lm_head.weight", "output.weight"),
            "has no tensor `output.weight`",
        ),
        (
            index.replace("model-00002-of", "../model-00002-of"),
            "expected a plain file name",
        ),
        ("{}".to_owned(), "missing field `weight_map`"),
        (
            r#"{"weight_map": {}}"#.to_owned(),
            "expected at least one tensor, found none",
        ),
    ];
    for (index, expected) in cases {
        folder.write(INDEX_NAME, index.as_bytes());
        let error = SafetensorsModel::open(folder.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}\n  lacks: {expected}");
    }
    // A tensor that the index does not know is there, and is reported if nobody reads it.
    let mut map: serde_json::Value = serde_json::from_str(&index).unwrap();
    map["weight_map"]
        .as_object_mut()
        .unwrap()
        .remove("lm_head.weight")
        .unwrap();
    folder.write(INDEX_NAME, map.to_string().as_bytes());
    let model = SafetensorsModel::open(folder.path()).unwrap();
    assert!(model.unread().contains(&"lm_head.weight"));
}

#[test]
fn a_folder_without_a_model_says_what_was_expected() {
    let folder = Scratch::new("empty");
    let error = SafetensorsModel::open(folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("model.safetensors.index.json, found neither"),
        "{error}"
    );
}
