//! Configurations from GGUF metadata: what is read, and what is refused.

use super::super::rope::YarnScaling;
use super::super::*;
use crate::loaders::GgufFile;
use crate::loaders::gguf::tests::Writer;
use crate::loaders::test_files::{Scratch, fixture};

/// Metadata of a small Llama.
fn llama_gguf() -> Writer {
    [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", 12),
        ("feed_forward_length", 8),
    ]
    .into_iter()
    .chain([
        ("attention.head_count", 3),
        ("attention.head_count_kv", 1),
        ("vocab_size", 5),
    ])
    .fold(Writer::new(), |file, (key, size)| {
        file.u32(&format!("llama.{key}"), size)
    })
    .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
}

fn from_gguf(file: &Writer) -> Result<ModelConfig, ConfigError> {
    let folder = Scratch::new("gguf-config");
    gguf::load(&GgufFile::open(&folder.write("model.gguf", &file.bytes()))?)
}

#[test]
fn gguf_rope_scaling_is_read_or_refused() {
    let scaling = |file: Writer| from_gguf(&file).map(|config| config.ropes[0].scaling.clone());
    let kind = |kind: &str| llama_gguf().string("llama.rope.scaling.type", kind);
    let factor = "llama.rope.scaling.factor";
    let factors = || -> Vec<u8> { [1_f32, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect() };
    assert_eq!(scaling(llama_gguf()).unwrap(), RopeScaling::Default);
    assert_eq!(
        scaling(kind("none").f32(factor, 2.0)).unwrap(),
        RopeScaling::Default
    );
    assert_eq!(
        scaling(llama_gguf().f32(factor, 2.0)).unwrap(),
        RopeScaling::Linear { factor: 2.0 }
    );
    assert_eq!(
        scaling(kind("linear").f32("llama.rope.scale_linear", 2.0)).unwrap(),
        RopeScaling::Linear { factor: 2.0 }
    );
    let yarn = kind("yarn")
        .f32(factor, 4.0)
        .u32("llama.rope.scaling.original_context_length", 32);
    let RopeScaling::Yarn(YarnScaling {
        factor: 4.0,
        original_max_seq_len: 32,
        ..
    }) = scaling(yarn).unwrap()
    else {
        panic!("not yarn");
    };
    let file = llama_gguf().tensor("rope_freqs.weight", &[2], 0, &factors());
    let config = from_gguf(&file).unwrap();
    assert_eq!(
        config.ropes[0].scaling,
        RopeScaling::FrequencyFactors(vec![1.0, 4.0])
    );
    assert_eq!(config.ropes[0].table().inv_freq, [1.0, 0.01 / 4.0]);
    for (file, expected) in [
        (
            kind("longrope"),
            "rope type `longrope` is not supported yet; supported are none, linear, yarn",
        ),
        (kind("linear"), "`llama.rope.scaling.factor` is missing"),
        (
            kind("yarn").f32(factor, 4.0),
            "`llama.rope.scaling.original_context_length` is missing",
        ),
        (
            kind("linear")
                .f32(factor, 2.0)
                .tensor("rope_freqs.weight", &[2], 0, &factors()),
            "one of the two",
        ),
        (
            llama_gguf().tensor("rope_freqs.weight", &[1], 0, &[0, 0, 0x80, 0x3f]),
            "expected 2 values, found 1",
        ),
    ] {
        let error = from_gguf(&file).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n  lacks: {expected}");
    }
}

#[test]
fn gguf_variants_are_read_or_refused() {
    let config = from_gguf(
        &llama_gguf()
            .u32("tokenizer.ggml.eot_token_id", 4)
            .u32("tokenizer.ggml.eos_token_id", 2),
    )
    .unwrap();
    assert_eq!(
        (config.eos_ids, config.head_dim, config.tie_embeddings),
        (vec![2, 4], 4, true)
    );
    let bias = llama_gguf().tensor("blk.0.attn_q.bias", &[1], 0, &[0; 4]);
    assert_eq!(
        from_gguf(&bias).unwrap().biases,
        Biases {
            qkv: true,
            ..Biases::default()
        }
    );
    let array = |sizes: [i32; 3]| {
        let head = [5_u32.to_le_bytes().as_slice(), &3_u64.to_le_bytes()].concat();
        [
            head,
            sizes.iter().flat_map(|size| size.to_le_bytes()).collect(),
        ]
        .concat()
    };
    let without_width = || {
        [
            ("block_count", 3),
            ("context_length", 64),
            ("embedding_length", 12),
            ("vocab_size", 5),
        ]
        .into_iter()
        .fold(Writer::new(), |file, (key, size)| {
            file.u32(&format!("llama.{key}"), size)
        })
        .u32("llama.attention.head_count", 3)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    };
    let per_layer = |sizes| without_width().value("llama.feed_forward_length", 9, &array(sizes));
    assert_eq!(from_gguf(&per_layer([8, 8, 8])).unwrap().d_ff, 8);
    for (file, expected) in [
        (Writer::new(), "`llama.block_count` is missing"),
        (without_width(), "`llama.feed_forward_length` is missing"),
        (per_layer([8, 9, 8]), "expected one size for all layers"),
        (
            llama_gguf().u32("llama.expert_count", 8),
            "`llama.expert_count`: expected 0, found 8",
        ),
        (
            llama_gguf().u32("llama.attention.value_length", 6),
            "expected 4, the length of keys, found 6",
        ),
        (
            llama_gguf().u32("llama.rope.dimension_count", 6),
            "an even number from 2 to 4, found 6",
        ),
    ] {
        let error = from_gguf(&file).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n  lacks: {expected}");
    }
    let qwen = GgufFile::open(&fixture("tiny_gguf/qwen2-f16.gguf")).unwrap();
    let error = gguf::load(&qwen).unwrap_err().to_string();
    assert!(
        error.ends_with("architecture `qwen2` is not supported; supported are llama, gemma3"),
        "{error}"
    );
}

/// Metadata of a small Gemma 3 whose heads are wider than `d_model / num_heads`.
fn gemma_gguf(num_layers: u32) -> Writer {
    [
        ("block_count", num_layers),
        ("context_length", 64),
        ("embedding_length", 12),
        ("feed_forward_length", 8),
        ("attention.head_count", 3),
        ("attention.key_length", 16),
        ("attention.value_length", 16),
        ("attention.sliding_window", 7),
        ("vocab_size", 5),
    ]
    .into_iter()
    .fold(Writer::of("gemma3"), |file, (key, size)| {
        file.u32(&format!("gemma3.{key}"), size)
    })
    .f32("gemma3.attention.layer_norm_rms_epsilon", 1e-6)
}

#[test]
fn what_gguf_leaves_out_of_gemma_is_filled_in() {
    let config = from_gguf(&gemma_gguf(7)).unwrap();
    assert_eq!((config.query_scale, config.num_kv_heads), (0.25, 3));
    assert_eq!((config.ropes[0].base, config.ropes[1].base), (1e6, 1e4));
    let windows = config
        .layers
        .iter()
        .map(|layer| layer.window)
        .collect::<Vec<_>>();
    assert_eq!(
        windows,
        [Some(7), Some(7), Some(7), Some(7), Some(7), None, Some(7)]
    );
    // 27B alone divides by d_model / num_heads.
    let largest = from_gguf(&gemma_gguf(62)).unwrap();
    assert_eq!((largest.query_scale, largest.head_dim), (0.5, 16));
}

#[test]
fn what_newer_gguf_files_say_of_gemma_is_believed() {
    let file = gemma_gguf(3)
        .f32("gemma3.attention.scale", 0.125)
        .f32("gemma3.rope.freq_base", 5e5)
        .f32("gemma3.rope.freq_base_swa", 2e4)
        .f32("gemma3.rope.scaling.factor", 8.0)
        .f32("gemma3.attn_logit_softcapping", 50.0);
    let flags =
        |flags: [u8; 3]| [7_u32.to_le_bytes().as_slice(), &3_u64.to_le_bytes(), &flags].concat();
    let pattern = "gemma3.attention.sliding_window_pattern";
    let config = from_gguf(&file.value(pattern, 9, &flags([0, 1, 0]))).unwrap();
    assert_eq!(
        (config.query_scale, config.attention_soft_cap),
        (0.125, Some(50.0))
    );
    let windows = config
        .layers
        .iter()
        .map(|layer| layer.window)
        .collect::<Vec<_>>();
    assert_eq!(windows, [None, Some(7), None]);
    let scalings = config
        .ropes
        .iter()
        .map(|rope| (rope.base, rope.scaling.clone()));
    let expected = [
        (5e5, RopeScaling::Linear { factor: 8.0 }),
        (2e4, RopeScaling::Default),
    ];
    assert!(scalings.eq(expected));
    let period = from_gguf(&gemma_gguf(3).u32(pattern, 2)).unwrap();
    assert_eq!(period.layers[1].window, None);
    let error = from_gguf(&gemma_gguf(4).value(pattern, 9, &flags([0, 1, 0]))).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("4 flags, one for each layer, found 3"),
        "{error}"
    );
    let error = from_gguf(&gemma_gguf(3).f32("gemma3.final_logit_softcapping", 30.0)).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("softcapping`: expected no such key, found 30"),
        "{error}"
    );
}
