//! Whatever is unknown or impossible in `config.json` is refused, by the name of the field.

use super::{llama, parse};

/// Fields added to a complete Llama configuration, and what the error must contain.
const LLAMA: [(&str, &str); 21] = [
    (r#", "vocab_size": 1"#, "duplicate field `vocab_size`"),
    (
        r#", "head_dim": "x""#,
        "invalid type: string \"x\", expected usize",
    ),
    (
        r#", "head_dim": 0"#,
        "`head dimension`: expected 1 to 2147483648, found 0",
    ),
    (
        r#", "head_dim": 5"#,
        "`rotary values of a head`: expected an even number from 2 to 5, found 5",
    ),
    (
        r#", "num_key_value_heads": 3"#,
        "expected a divisor of the 4 query heads, found 3",
    ),
    (
        r#", "num_key_value_heads": 0"#,
        "`number of key-value heads`: expected 1 to",
    ),
    (
        r#", "rms_norm_eps": 0"#,
        "`RMS norm epsilon`: expected a number above 0, found 0",
    ),
    (
        r#", "hidden_act": "relu""#,
        "expected silu or gelu_pytorch_tanh, found relu",
    ),
    (
        r#", "quantization_config": {"quant_method": "gptq"}"#,
        "found \"gptq\"",
    ),
    (
        r#", "rope_theta": 1.0"#,
        "`rope base`: expected a number above 1, found 1",
    ),
    (
        r#", "rope_scaling": {"rope_type": "longrope"}"#,
        "rope type `longrope` is not supported yet; supported are default, linear, llama3, yarn",
    ),
    (
        r#", "rope_scaling": {"type": "dynamic", "factor": 2.0}"#,
        "rope type `dynamic` is not supported yet",
    ),
    (
        r#", "rope_scaling": {"type": "linear"}"#,
        "`factor of the rope parameters` is missing",
    ),
    (
        r#", "rope_scaling": {"type": "linear", "factor": 0.0}"#,
        "`rope factor`: expected a number above 0",
    ),
    (
        r#", "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0}"#,
        "`rope original context`",
    ),
    (
        r#", "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 32}"#,
        "`rope high_freq_factor`: expected a number above 4",
    ),
    (
        r#", "rope_parameters": {"full_attention": {}, "chunked_attention": {}}"#,
        "found chunked_attention",
    ),
    (
        r#", "rope_parameters": {"sliding_attention": {}}"#,
        "`rope_parameters.full_attention` is missing",
    ),
    (
        r#", "layer_types": ["full_attention"]"#,
        "expected 3 entries, one for each layer, found 1",
    ),
    (
        r#", "layer_types": ["full_attention", "linear_attention", "full_attention"]"#,
        "expected full_attention or sliding_attention, found linear_attention",
    ),
    (
        r#", "layer_types": ["full_attention", "sliding_attention", "full_attention"]"#,
        "full_attention in every layer of a llama model",
    ),
];

/// The same for Gemma 3.
const GEMMA: [(&str, &str); 5] = [
    (
        r#", "final_logit_softcapping": 30.0"#,
        "`final_logit_softcapping`: expected null, found 30",
    ),
    (r#", "sliding_window": 0"#, "`sliding window`: expected 1"),
    (
        r#", "sliding_window_pattern": 0"#,
        "`sliding_window_pattern`: expected 1",
    ),
    (
        r#", "use_bidirectional_attention": true"#,
        "expected false, found true",
    ),
    (r#", "query_pre_attn_scalar": 0"#, "`query scale`"),
];

/// Whole files.
const FILES: [(&str, &str); 4] = [
    ("{", "EOF while parsing"),
    ("{}", "config.json: `model_type` is missing"),
    (
        r#"{"model_type": "gpt2"}"#,
        "`gpt2` is not supported; supported are llama, gemma3_text",
    ),
    (r#"{"model_type": "llama"}"#, "`hidden_size` is missing"),
];

fn refused(json: &str, expected: &str) {
    let error = parse(json).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}\n  lacks: {expected}");
    assert!(error.starts_with("config.json: "), "{error}");
}

#[test]
fn what_is_unknown_or_impossible_is_refused_by_name() {
    for (fields, expected) in LLAMA {
        refused(&llama(fields), expected);
    }
    for (fields, expected) in GEMMA {
        refused(&llama(fields).replace("llama", "gemma3_text"), expected);
    }
    for (json, expected) in FILES {
        refused(json, expected);
    }
}

#[test]
fn sizes_that_would_divide_by_zero_or_fill_the_memory_are_refused() {
    let heads = llama("").replace("\"num_attention_heads\": 4", "\"num_attention_heads\": 0");
    refused(
        &heads,
        "`num_attention_heads`: expected 1 to 2147483648, found 0",
    );
    let layers = llama("").replace("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 9999999");
    refused(
        &layers,
        "`num_hidden_layers`: expected 1 to 4096, found 9999999",
    );
}
