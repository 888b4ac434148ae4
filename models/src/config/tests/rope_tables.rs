//! Inverse frequencies and magnitudes against the goldens.

use super::super::*;
use super::{llama, parse};
use crate::loaders::test_files::fixture;

#[derive(serde::Deserialize)]
struct RopeGolden {
    name: String,
    head_dim: usize,
    rope_theta: f64,
    max_position_embeddings: usize,
    rope_scaling: Option<serde_json::Value>,
    inv_freq: Vec<f64>,
    attention_factor: f64,
}

#[derive(serde::Deserialize)]
struct RopeGoldens {
    configs: Vec<RopeGolden>,
}

#[test]
fn rope_tables_equal_the_goldens() {
    let json = std::fs::read(fixture("algo/rope.json")).unwrap();
    let goldens: RopeGoldens = serde_json::from_slice(&json).unwrap();
    let mut num_checked = 0;
    for golden in goldens.configs {
        let scaling = serde_json::to_string(&golden.rope_scaling).unwrap();
        let fields = format!(
            r#", "head_dim": {}, "rope_theta": {}, "max_position_embeddings": {}, "rope_scaling": {scaling}"#,
            golden.head_dim, golden.rope_theta, golden.max_position_embeddings
        );
        let name = golden.name;
        if name.starts_with("longrope") || name.starts_with("dynamic") {
            assert!(matches!(
                parse(&llama(&fields)),
                Err(ConfigError::UnsupportedRope { .. })
            ));
            continue;
        }
        let table = parse(&llama(&fields)).unwrap().ropes[0].table();
        assert_eq!(table.inv_freq.len(), golden.inv_freq.len(), "{name}");
        for (pair, (found, expected)) in table.inv_freq.iter().zip(&golden.inv_freq).enumerate() {
            let error = (f64::from(*found) / expected - 1.0).abs();
            assert!(
                error < 1e-6,
                "{name}, pair {pair}: {found} for {expected}, {error:e}"
            );
        }
        let error = (f64::from(table.magnitude) - golden.attention_factor).abs();
        assert!(
            error < 1e-6,
            "{name}: {} for {}",
            table.magnitude,
            golden.attention_factor
        );
        num_checked += 1;
    }
    assert_eq!(num_checked, 12);
}

#[test]
fn yarn_takes_its_magnitude_from_what_the_file_states() {
    let magnitude = |fields: &str| {
        let scaling = format!(r#", "rope_scaling": {{"type": "yarn", "factor": 4.0 {fields}}}"#);
        parse(&llama(&scaling)).unwrap().ropes[0].magnitude()
    };
    let scale = |mscale: f64| 0.1 * mscale * 4_f64.ln() + 1.0;
    for (fields, expected) in [
        ("", scale(1.0)),
        (r#", "mscale": 0.707, "mscale_all_dim": 0.707"#, 1.0),
        (
            r#", "mscale": 1.3, "mscale_all_dim": 0.6"#,
            scale(1.3) / scale(0.6),
        ),
        (r#", "mscale": 1.3"#, scale(1.0)),
        (r#", "mscale": 1.3, "mscale_all_dim": 0"#, scale(1.0)),
        (r#", "attention_factor": 1.25, "mscale": 1.0"#, 1.25),
    ] {
        let error = (magnitude(fields) - expected).abs();
        assert!(error < 1e-12, "{fields}: {error:e}");
    }
}
