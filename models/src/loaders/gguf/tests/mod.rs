//! Good files are read whole; crafted and cut ones are refused with a typed error.

use std::path::{Path, PathBuf};

mod damaged;
mod writer;

pub(crate) use self::writer::Writer;
use self::writer::text;
use super::*;
use crate::loaders::test_files::{Scratch, fixture};

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn open(bytes: &[u8]) -> Result<GgufFile, LoadError> {
    // The map outlives the deleted file.
    let folder = Scratch::new("gguf");
    GgufFile::open(&folder.write("model.gguf", bytes))
}

/// Opens a file and uses everything in it.
fn use_all(path: &Path) -> Result<usize, LoadError> {
    let file = GgufFile::open(path)?;
    let metadata = file.metadata();
    let mut used = 0;
    for key in metadata.keys() {
        used += usize::from(metadata.get(key).is_ok());
        used += metadata
            .strings(key)
            .map_or(0, |list| list.map_or(0, |list| list.len()));
        used += metadata
            .f32s(key)
            .map_or(0, |list| list.map_or(0, |list| list.len()));
        used += metadata
            .i32s(key)
            .map_or(0, |list| list.map_or(0, |list| list.len()));
    }
    for name in file.names() {
        if let Ok(view) = file.tensor(name) {
            used += view.bytes.len() + view.to_f32_vec().map_or(0, |values| values.len());
        }
    }
    Ok(used)
}

#[test]
fn metadata_is_typed_and_integers_of_any_width_are_numbers() {
    let array = |kind: u32, len: u64, bytes: &[u8]| {
        [&kind.to_le_bytes()[..], &len.to_le_bytes(), bytes].concat()
    };
    let file = Writer::new()
        .value("u8", 0, &[7])
        .value("i16", 3, &(-3_i16).to_le_bytes())
        .value("u64", 10, &(1_u64 << 40).to_le_bytes())
        .value("i64", 11, &5_i64.to_le_bytes())
        .value("f64", 12, &0.5_f64.to_le_bytes())
        .value("flag", 7, &[1])
        .value("bad flag", 7, &[2])
        .value("latin1", 8, &[&1_u64.to_le_bytes()[..], &[0xe9]].concat())
        .value(
            "names",
            9,
            &array(8, 2, &[text("a"), text("\u{2581}b")].concat()),
        )
        .value("scores", 9, &array(6, 2, &floats(&[-1.5, 2.0])))
        .value("types", 9, &array(5, 2, &[3, 0, 0, 0, 255, 255, 255, 255]))
        .bytes();
    let file = open(&file).unwrap();
    let metadata = file.metadata();
    assert_eq!(file.architecture().unwrap(), "llama");
    assert_eq!(metadata.u32("u8").unwrap(), Some(7));
    assert_eq!(metadata.get("i16").unwrap(), Some(MetaValue::Signed(-3)));
    assert_eq!(metadata.u64("u64").unwrap(), Some(1 << 40));
    assert_eq!(metadata.u32("i64").unwrap(), Some(5));
    assert_eq!(metadata.f32("f64").unwrap(), Some(0.5));
    assert_eq!(metadata.bool("flag").unwrap(), Some(true));
    assert_eq!(
        metadata.strings("names").unwrap(),
        Some(vec!["a", "\u{2581}b"])
    );
    assert_eq!(metadata.f32s("scores").unwrap(), Some(vec![-1.5, 2.0]));
    assert_eq!(metadata.i32s("types").unwrap(), Some(vec![3, -1]));
    assert_eq!(metadata.u32("absent").unwrap(), None);
    for (key, expected) in [
        ("i16", "expected an integer from 0, found -3"),
        ("u64", "expected an integer of 32 bits, found 1099511627776"),
        ("flag", "expected an integer from 0, found the flag true"),
        (
            "names",
            "expected an integer from 0, found an array of 2 String",
        ),
    ] {
        let error = metadata.u32(key).unwrap_err().to_string();
        assert!(error.contains(key) && error.ends_with(expected), "{error}");
    }
    assert!(metadata.bool("bad flag").is_err() && metadata.string("latin1").is_err());
    assert!(metadata.strings("scores").is_err() && metadata.f32s("names").is_err());
    assert!(metadata.string("u8").is_err());
}

#[test]
fn tensors_have_row_major_shapes_and_reads_are_counted() {
    let file = Writer::new()
        .tensor("matrix", &[3, 2], 0, &floats(&[1., 2., 3., 4., 5., 6.]))
        .tensor("brain", &[2], 30, &[0x80, 0x3f, 0x00, 0xc0])
        .tensor("half", &[2], 1, &[0x00, 0x3c, 0x00, 0xc0])
        .bytes();
    let file = open(&file).unwrap();
    assert_eq!(file.names(), ["brain", "half", "matrix"]);
    assert_eq!(file.shape_of("matrix"), Some(&[2, 3][..]));
    let matrix = file
        .tensor("matrix")
        .unwrap()
        .expect_shape(&[2, 3])
        .unwrap();
    assert_eq!(matrix.to_f32_vec().unwrap(), [1., 2., 3., 4., 5., 6.]);
    assert_eq!(matrix.rows(1..2).unwrap(), floats(&[4., 5., 6.]));
    assert_eq!(matrix.rows(1..3), None);
    assert_eq!(
        file.tensor("brain").unwrap().to_f32_vec().unwrap(),
        [1., -2.]
    );
    assert_eq!(file.unread(), ["half"]);
    let error = crate::loaders::check_all_read(&file, |_| false)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("1 tensors that no layer of this model uses: half"),
        "{error}"
    );
    crate::loaders::check_all_read(&file, |name| name == "half").unwrap();
    let error = file
        .tensor("matrix")
        .unwrap()
        .expect_shape(&[3, 2])
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("tensor `matrix` has shape [2, 3], expected [3, 2]"),
        "{error}"
    );
    let error = file.tensor("absent").unwrap_err().to_string();
    assert!(error.ends_with("has no tensor `absent`"), "{error}");
}

#[test]
fn types_that_cannot_be_used_are_errors_only_when_asked_for() {
    let file = Writer::new()
        .tensor("good", &[1], 0, &floats(&[1.]))
        .tensor("ternary", &[256], 34, &[0; 54])
        .tensor("future", &[256], 999, &[0; 64])
        .tensor("blocks", &[32], 2, &[0; 18])
        .bytes();
    let file = open(&file).unwrap();
    assert_eq!(file.tensor("good").unwrap().to_f32_vec().unwrap(), [1.]);
    let error = file.tensor("ternary").unwrap_err().to_string();
    assert!(
        error.contains("`ternary` is stored as TQ1_0, expected one of F32, F16"),
        "{error}"
    );
    let error = file.tensor("future").unwrap_err().to_string();
    assert!(
        error.contains("`future` is stored as GGUF type number 999"),
        "{error}"
    );
    assert_eq!(file.unread(), ["blocks", "future", "ternary"]);
    let error = file
        .tensor("blocks")
        .unwrap()
        .to_f32_vec()
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("is stored as Q4_0, expected one of F32, F16, BF16"),
        "{error}"
    );
}

#[test]
fn an_alignment_of_8_puts_tensors_at_any_multiple_of_8() {
    let file = Writer::new()
        .aligned(8)
        .tensor("first", &[2], 0, &floats(&[1., 2.]))
        .tensor("second", &[1], 0, &floats(&[3.]));
    let opened = open(&file.bytes()).unwrap();
    assert_eq!(opened.tensor("second").unwrap().to_f32_vec().unwrap(), [3.]);
    let error = open(&file.bytes_with(|index, offset| offset + 4 * index as u64)).unwrap_err();
    assert!(
        error.to_string().contains("a multiple of 8, found 12"),
        "{error}"
    );
}

/// Three parts of one tensor each; the header announces `num_tensors`.
fn write_parts(folder: &Scratch, stem: &str, num_tensors: i32) -> Vec<PathBuf> {
    let part = |no: u16| {
        Writer::new()
            .value("split.no", 2, &no.to_le_bytes())
            .value("split.count", 2, &3_u16.to_le_bytes())
            .value("split.tensors.count", 5, &num_tensors.to_le_bytes())
            .tensor(&format!("t{no}"), &[1], 0, &floats(&[f32::from(no)]))
            .bytes()
    };
    let name = |no| format!("{stem}-{:05}-of-00003.gguf", no + 1);
    (0..3)
        .map(|no| folder.write(&name(no), &part(no)))
        .collect()
}

#[test]
fn any_part_of_a_split_file_opens_all() {
    let folder = Scratch::new("split");
    let paths = write_parts(&folder, "model-v1", 3);
    for path in &paths {
        let file = GgufFile::open(path).unwrap();
        assert_eq!(file.names(), ["t0", "t1", "t2"]);
        assert_eq!(file.tensor("t2").unwrap().to_f32_vec().unwrap(), [2.]);
        assert_eq!(file.path(), paths[0]);
    }
    std::fs::remove_file(&paths[2]).unwrap();
    for path in &paths[..2] {
        let error = GgufFile::open(path).unwrap_err().to_string();
        assert!(error.contains("model-v1-00003-of-00003.gguf"), "{error}");
    }
}

#[test]
fn a_part_under_a_wrong_name_is_refused() {
    let folder = Scratch::new("split-name");
    let paths = write_parts(&folder, "model", 3);
    std::fs::copy(&paths[0], &paths[1]).unwrap();
    let error = GgufFile::open(&paths[0]).unwrap_err().to_string();
    assert!(
        error.contains("expected split.no 1, split.count 3"),
        "{error}"
    );
    let renamed = folder.path().join("renamed.gguf");
    std::fs::rename(&paths[0], &renamed).unwrap();
    let error = GgufFile::open(&renamed).unwrap_err().to_string();
    assert!(error.contains("file name of a split model"), "{error}");
    let paths = write_parts(&folder, "short", 4);
    let error = GgufFile::open(&paths[0]).unwrap_err().to_string();
    assert!(
        error.contains("tensors in all 3 parts: expected 4, found 3"),
        "{error}"
    );
}

#[test]
fn every_fixture_opens_and_its_tensors_fill_the_file() {
    for (name, num_tensors) in [
        ("llama-mixed", 30),
        ("gemma3_p6-f16", 93),
        ("qwen2-f16", 38),
    ] {
        let path = fixture(&format!("tiny_gguf/{name}.gguf"));
        let file = GgufFile::open(&path).unwrap();
        assert_eq!(file.names().len(), num_tensors);
        let vocab = file
            .metadata()
            .strings("tokenizer.ggml.tokens")
            .unwrap()
            .unwrap();
        assert_eq!(file.shape_of("token_embd.weight").unwrap()[0], vocab.len());
    }
}

#[test]
fn a_folder_and_an_absent_file_are_clear_errors() {
    let folder = Scratch::new("no-file");
    let error = GgufFile::open(folder.path()).unwrap_err();
    assert!(matches!(error, LoadError::NotAModel { .. }), "{error}");
    let error = GgufFile::open(&folder.path().join("absent.gguf")).unwrap_err();
    assert!(matches!(error, LoadError::Io { .. }), "{error}");
}
