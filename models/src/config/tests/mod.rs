//! Both styles of `config.json` and GGUF metadata give the same configuration; what is unknown or
//! impossible is refused by name.

use std::path::Path;

mod gguf_file;
mod refused;
mod rope_tables;

use super::*;
use crate::config::names::LayerTensor;
use crate::loaders::test_files::{Scratch, fixture};
use crate::loaders::{GgufFile, SafetensorsModel, check_all_read};

const PAIRS: [&str; 8] = [
    "llama",
    "llama_bias",
    "llama_deep",
    "llama_tied_rope3",
    "llama_yarn",
    "gemma3",
    "gemma3_linear",
    "gemma3_p6",
];

fn parse(json: &str) -> Result<ModelConfig, ConfigError> {
    hf::parse(Path::new("config.json"), json.as_bytes())
}

fn load(model: &str, name: &str) -> ModelConfig {
    let file = fixture(&format!("tiny/{model}/{name}"));
    hf::parse(&file, &std::fs::read(&file).unwrap()).unwrap()
}

/// A complete Llama configuration with fields added.
fn llama(fields: &str) -> String {
    format!(
        r#"{{"model_type": "llama", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 104,
        "num_hidden_layers": 3, "num_attention_heads": 4 {fields}}}"#
    )
}

#[test]
fn both_styles_of_config_give_the_same_model() {
    for model in PAIRS {
        assert_eq!(
            load(model, "config.json"),
            load(model, "config.v5.json"),
            "{model}"
        );
    }
}

#[test]
fn llama_configs_are_read_in_full() {
    let config = load("llama", "config.json");
    let sizes = (
        config.vocab_size,
        config.d_model,
        config.d_ff,
        config.num_layers,
    );
    assert_eq!(sizes, (320, 64, 104, 3));
    assert_eq!(
        (config.num_heads, config.num_kv_heads, config.head_dim),
        (4, 2, 24)
    );
    assert_eq!((config.max_seq_len, config.tie_embeddings), (256, false));
    assert_eq!(
        (config.rms_epsilon, config.activation),
        (1e-6, Activation::Silu)
    );
    assert_eq!(
        (config.embedding_scale, config.query_scale),
        (1.0, (1.0 / 24_f64.sqrt()) as f32)
    );
    assert_eq!((config.eos_ids, config.bos_id), (vec![2], Some(1)));
    assert_eq!(
        config.layers,
        [LayerAttention {
            window: None,
            rope: 0
        }; 3]
    );
    let rope = RopeConfig {
        base: 1e4,
        rotary_dim: 24,
        scaling: RopeScaling::Default,
    };
    assert_eq!(config.ropes, [rope]);
    assert!(!config.qk_norm && !config.sandwich_norms && config.norm_weight_offset == 0.0);
    let bias = load("llama_bias", "config.json");
    assert_eq!(
        bias.biases,
        Biases {
            qkv: true,
            attention_output: true,
            mlp: true
        }
    );
    // Not stated in this file.
    assert_eq!((bias.head_dim, config.biases), (16, Biases::default()));
    let yarn = load("llama_yarn", "config.json").ropes.remove(0);
    assert!((yarn.magnitude() - 1.138_629_436).abs() < 1e-9);
    let RopeScaling::Llama3 {
        factor,
        original_max_seq_len,
        ..
    } = load("llama_tied_rope3", "config.json")
        .ropes
        .remove(0)
        .scaling
    else {
        panic!("not llama3");
    };
    assert_eq!((factor, original_max_seq_len), (8.0, 32));
}

#[test]
fn gemma_configs_are_read_in_full() {
    let config = load("gemma3", "config.json");
    let windows = config
        .layers
        .iter()
        .map(|layer| layer.window)
        .collect::<Vec<_>>();
    assert_eq!(windows, [Some(8), Some(8), None, Some(8), Some(8)]);
    let bases = config
        .layers
        .iter()
        .map(|layer| config.ropes[layer.rope].base)
        .collect::<Vec<_>>();
    assert_eq!(bases, [1e4, 1e4, 1e6, 1e4, 1e4]);
    assert_eq!(
        (config.embedding_scale, config.query_scale),
        (8.0, (1.0 / 20_f64.sqrt()) as f32)
    );
    assert!(config.qk_norm && config.sandwich_norms && config.tie_embeddings);
    assert_eq!(
        (config.norm_weight_offset, config.activation),
        (1.0, Activation::GeluTanh)
    );
    assert_eq!(config.attention_soft_cap, None);
    let linear = load("gemma3_linear", "config.json");
    assert_eq!(linear.ropes[0].scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(
        (linear.ropes[1].base, &linear.ropes[1].scaling),
        (1e3, &RopeScaling::Default)
    );
}

#[test]
fn gguf_gives_the_model_of_its_config_json_but_for_conventions() {
    for (file, model) in [
        ("llama-f32", "llama"),
        ("llama-q4_0", "llama"),
        ("gemma3_p6-f16", "gemma3_p6"),
    ] {
        let file = GgufFile::open(&fixture(&format!("tiny_gguf/{file}.gguf"))).unwrap();
        let found = gguf::load(&file).unwrap();
        let mut expected = load(model, "config.json");
        assert_eq!(expected.rope_pairing, RopePairing::Halves);
        expected.name_style = NameStyle::Gguf;
        expected.norm_weight_offset = 0.0;
        expected.rope_pairing = found.rope_pairing;
        assert_eq!(found, expected);
        let is_llama = found.architecture == Architecture::Llama;
        assert_eq!(found.rope_pairing == RopePairing::Interleaved, is_llama);
    }
}

#[test]
fn every_tensor_of_the_fixtures_has_its_role_and_shape() {
    for model in PAIRS
        .into_iter()
        .chain(["llama_bf16", "llama_f16", "llama_sharded"])
    {
        let folder = fixture(&format!("tiny/{model}"));
        read_all(
            &hf::load(&folder).unwrap(),
            &SafetensorsModel::open(&folder).unwrap(),
        );
    }
    for name in [
        "llama-mixed",
        "llama-f32",
        "llama-f16",
        "llama-bf16",
        "llama-q8_0",
        "llama-q4_0",
        "gemma3_p6-f16",
    ] {
        let file = GgufFile::open(&fixture(&format!("tiny_gguf/{name}.gguf"))).unwrap();
        read_all(&gguf::load(&file).unwrap(), &file);
    }
}

/// Asks for every tensor as the decoder does, and sees that none is left.
fn read_all(config: &ModelConfig, checkpoint: &dyn Checkpoint) {
    use LayerTensor as L;
    let names = config.names();
    let expect = |name: String, shape: &[usize]| {
        checkpoint
            .tensor(&name)
            .and_then(|view| view.expect_shape(shape))
            .unwrap();
    };
    let (model, ff, dim) = (config.d_model, config.d_ff, config.head_dim);
    let (q, kv) = (config.num_heads * dim, config.num_kv_heads * dim);
    expect(
        names.model(ModelTensor::TokenEmbedding),
        &[config.vocab_size, model],
    );
    expect(names.model(ModelTensor::OutputNorm), &[model]);
    if config.output_head(checkpoint).unwrap() == OutputHead::Separate {
        expect(
            names.model(ModelTensor::Output),
            &[config.vocab_size, model],
        );
    }
    let Biases {
        qkv,
        attention_output,
        mlp,
    } = config.biases;
    let matrices = [
        (L::Query, q, model, qkv),
        (L::Key, kv, model, qkv),
        (L::Value, kv, model, qkv),
        (L::AttentionOutput, model, q, attention_output),
        (L::Gate, ff, model, mlp),
        (L::Up, ff, model, mlp),
        (L::Down, model, ff, mlp),
    ];
    let norms = [
        (L::AttentionNorm, model, true),
        (L::MlpNorm, model, true),
        (L::QueryNorm, dim, config.qk_norm),
        (L::KeyNorm, dim, config.qk_norm),
        (L::PostAttentionNorm, model, config.sandwich_norms),
        (L::PostMlpNorm, model, config.sandwich_norms),
    ];
    for layer in 0..config.num_layers {
        for (tensor, d_output, d_input, has_bias) in matrices {
            expect(names.weight(layer, tensor), &[d_output, d_input]);
            if has_bias {
                expect(names.bias(layer, tensor), &[d_output]);
            }
        }
        for (tensor, len, _) in norms.into_iter().filter(|(.., is_there)| *is_there) {
            expect(names.weight(layer, tensor), &[len]);
        }
    }
    check_all_read(checkpoint, |name| names.is_ignorable(name)).unwrap();
}

#[test]
fn tables_of_names_are_in_the_order_of_their_roles() {
    let hf = TensorNames {
        style: NameStyle::HuggingFace,
        architecture: Architecture::Gemma3,
    };
    let gguf = TensorNames {
        style: NameStyle::Gguf,
        ..hf
    };
    assert_eq!(hf.model(ModelTensor::Output), "lm_head.weight");
    assert_eq!(gguf.model(ModelTensor::TokenEmbedding), "token_embd.weight");
    assert_eq!(
        hf.weight(11, LayerTensor::PostMlpNorm),
        "model.layers.11.post_feedforward_layernorm.weight"
    );
    assert_eq!(
        gguf.bias(0, LayerTensor::AttentionOutput),
        "blk.0.attn_output.bias"
    );
    assert!(hf.is_ignorable("model.layers.0.self_attn.rotary_emb.inv_freq"));
    assert!(!hf.is_ignorable("model.layers.0.self_attn.q_proj.bias"));
    let llama = TensorNames {
        architecture: Architecture::Llama,
        ..hf
    };
    assert_eq!(
        llama.weight(0, LayerTensor::MlpNorm),
        "model.layers.0.post_attention_layernorm.weight"
    );
    assert_eq!(
        hf.weight(0, LayerTensor::MlpNorm),
        "model.layers.0.pre_feedforward_layernorm.weight"
    );
}

#[test]
fn fields_that_are_left_out_have_the_defaults_of_the_architecture() {
    let config = parse(&llama("")).unwrap();
    assert_eq!(
        (config.num_kv_heads, config.head_dim, config.max_seq_len),
        (4, 16, 2048)
    );
    assert!(!config.tie_embeddings && config.eos_ids.is_empty() && config.bos_id.is_none());
    let config = parse(&llama("").replace("llama", "gemma3_text")).unwrap();
    assert!(config.tie_embeddings);
    assert_eq!((config.head_dim, config.query_scale), (256, 1.0 / 16.0));
    assert_eq!((config.ropes[0].base, config.ropes[1].base), (1e6, 1e4));
    assert_eq!(config.layers[0].window, Some(4096));
    // transformers 5 writes the pattern under a private name.
    let json = llama(r#", "_sliding_window_pattern": 2"#).replace("llama", "gemma3_text");
    let layers = parse(&json).unwrap().layers;
    let is_global = layers
        .iter()
        .map(|layer| layer.window.is_none())
        .collect::<Vec<_>>();
    assert_eq!(is_global, [false, true, false]);
}

#[test]
fn tokens_that_end_a_text_are_the_union_of_all_sources() {
    let folder = Scratch::new("eos");
    folder.write("config.json", llama(r#", "eos_token_id": 9"#).as_bytes());
    assert_eq!(hf::load(folder.path()).unwrap().eos_ids, [9]);
    folder.write(
        "generation_config.json",
        br#"{"eos_token_id": [2, 9, 1], "top_p": 0.9}"#,
    );
    let mut config = hf::load(folder.path()).unwrap();
    config.add_eos_ids(&[3]);
    assert_eq!(config.eos_ids, [1, 2, 3, 9]);
    folder.write("generation_config.json", b"{}");
    assert_eq!(hf::load(folder.path()).unwrap().eos_ids, [9]);
    folder.write("generation_config.json", br#"{"eos_token_id": "x"}"#);
    let error = hf::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("generation_config.json"), "{error}");
}

#[test]
fn the_configuration_decides_on_tied_embeddings_if_the_weights_allow() {
    let tied = SafetensorsModel::open(&fixture("tiny/llama_tied_rope3")).unwrap();
    let separate = SafetensorsModel::open(&fixture("tiny/llama")).unwrap();
    let mut config = load("llama", "config.json");
    assert_eq!(config.output_head(&separate).unwrap(), OutputHead::Separate);
    let error = config.output_head(&tied).unwrap_err().to_string();
    assert!(
        error.contains("`tie_word_embeddings` is false, but the weights have no `lm_head.weight`"),
        "{error}"
    );
    config.tie_embeddings = true;
    assert_eq!(config.output_head(&tied).unwrap(), OutputHead::Tied);
    assert!(separate.unread().contains(&"lm_head.weight"));
    assert_eq!(
        config.output_head(&separate).unwrap(),
        OutputHead::TiedDespiteMatrix
    );
    assert!(!separate.unread().contains(&"lm_head.weight"));
}
