//! Every kernel that the models at hand launch compiles for CUDA and wgpu, with no GPU present.

use forerun_kernels::compile::{Bias, OpKernel, OpVariant, kernels};
use forerun_kernels::{
    Activation, ActivationMode, AttentionSpec, KvSpec, MatrixSpec, PartSpec, RmsNormSpec,
    RopePairing, RopeSpec, WeightFormat,
};
use forerun_tests::offline::{self, Family};

/// The sizes of a decoder.
struct Sizes {
    d_model: usize,
    d_ff: usize,
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
    window: Option<usize>,
    soft_cap: Option<f32>,
}

/// SmolLM2-135M, Gemma 3 270M, and a model of the shapes the first two lack.
const MODELS: [Sizes; 3] = [
    Sizes {
        d_model: 576,
        d_ff: 1536,
        num_heads: 9,
        num_kv_heads: 3,
        head_dim: 64,
        vocab_size: 49_152,
        window: None,
        soft_cap: None,
    },
    Sizes {
        d_model: 640,
        d_ff: 2048,
        num_heads: 4,
        num_kv_heads: 1,
        head_dim: 256,
        vocab_size: 262_144,
        window: Some(512),
        soft_cap: None,
    },
    Sizes {
        d_model: 4096,
        d_ff: 14_336,
        num_heads: 32,
        num_kv_heads: 8,
        head_dim: 128,
        vocab_size: 128_256,
        window: None,
        soft_cap: Some(50.0),
    },
];

fn matrix(format: WeightFormat, d_output: usize, d_input: usize) -> MatrixSpec {
    let part = PartSpec {
        format,
        row_start: 0,
        num_rows: d_output,
    };
    MatrixSpec {
        d_input,
        d_output,
        parts: vec![part],
        activations: ActivationMode::default(),
    }
}

fn variants(model: &Sizes) -> Vec<OpVariant> {
    let kv = KvSpec {
        group: 0,
        num_heads: model.num_heads,
        num_kv_heads: model.num_kv_heads,
        head_dim: model.head_dim,
        block_size: 16,
    };
    let num_groups = model.num_heads + 2 * model.num_kv_heads;
    let num_normed = model.num_heads + model.num_kv_heads;
    let scale = (model.head_dim as f32).powf(-0.5);
    let attention = AttentionSpec {
        kv,
        scale,
        window: model.window,
        soft_cap: model.soft_cap,
    };
    let mut variants = vec![
        OpVariant::RmsNorm(RmsNormSpec {
            num_groups: 1,
            num_normed: 1,
            group_len: model.d_model,
            epsilon: 1e-5,
        }),
        OpVariant::RmsNorm(RmsNormSpec {
            num_groups,
            num_normed,
            group_len: model.head_dim,
            epsilon: 1e-6,
        }),
        OpVariant::Kv(kv),
        OpVariant::PagedAttention(attention),
        OpVariant::PagedAttention(AttentionSpec {
            window: None,
            ..attention
        }),
        OpVariant::GatherRows {
            columns: model.d_model,
        },
        OpVariant::Sample {
            vocab_size: model.vocab_size,
        },
    ];
    for activation in [Activation::Silu, Activation::GeluTanh] {
        variants.push(OpVariant::Glu {
            d_ff: model.d_ff,
            activation,
        });
    }
    for pairing in [RopePairing::Halves, RopePairing::Interleaved] {
        variants.push(OpVariant::Rope(RopeSpec {
            num_heads: num_groups,
            num_rotated: num_normed,
            head_dim: model.head_dim,
            rotary_dim: model.head_dim,
            pairing,
            magnitude: 1.0,
        }));
    }
    variants
}

/// What depends on formats and not on the model, for `linear` reads its sizes at run time.
fn format_variants() -> Vec<OpVariant> {
    let mut variants = Vec::new();
    for format in WeightFormat::ALL {
        variants.push(OpVariant::Embed {
            matrix: matrix(format, 1000, 768),
            scale: 1.0,
        });
        for bias in [Bias::None, Bias::Added] {
            variants.push(OpVariant::Linear {
                matrix: matrix(format, 1000, 768),
                bias,
            });
        }
    }
    variants
}

fn all_kernels(family: Family) -> Vec<OpKernel> {
    let target = offline::target(family);
    let variants = MODELS.iter().flat_map(variants).chain(format_variants());
    variants
        .flat_map(|variant| kernels(&variant, &target))
        .collect()
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "registers and shared memory of each kernel"
)]
fn every_kernel_compiles_for_cuda_and_attention_and_linear_do_not_spill() {
    let ptxas = offline::find_ptxas();
    if ptxas.is_none() {
        println!("no ptxas: PTX is compiled but not assembled (set FORERUN_PTXAS)");
    }
    let mut failures = Vec::new();
    for (index, kernel) in all_kernels(Family::Cuda).iter().enumerate() {
        for sm in [80, 90] {
            let ptx = match offline::ptx(kernel, sm) {
                Ok(ptx) => ptx,
                Err(error) => {
                    failures.push(format!("{} {index} for sm_{sm}: {error}", kernel.op));
                    continue;
                }
            };
            let Some(ptxas) = &ptxas else { continue };
            match offline::assemble(ptxas, &ptx, sm) {
                Err(error) => failures.push(format!("{} for sm_{sm}: {error}", ptx.name)),
                Ok(usage) => {
                    let (name, shared_bytes) = (&ptx.name, ptx.shared_bytes);
                    println!(
                        "sm_{sm} {:<16} {name:<32} {shared_bytes:>6} {usage:?}",
                        kernel.op
                    );
                    let must_not_spill = ["linear", "paged_attention"].contains(&kernel.op);
                    if must_not_spill && usage.spill_bytes > 0 {
                        failures.push(format!("{} spills on sm_{sm}: {usage:?}", ptx.name));
                    }
                    if ptx.shared_bytes > 16 << 10 {
                        failures.push(format!(
                            "{name} needs {shared_bytes} bytes of shared memory"
                        ));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_shader_is_valid_and_translates_for_metal_and_direct3d() {
    let mut failures = Vec::new();
    let kernels = all_kernels(Family::Wgpu);
    for (index, kernel) in kernels.iter().enumerate() {
        let outcome = offline::wgsl(kernel).and_then(|text| {
            let usage = offline::check_wgsl(&text)?;
            if usage.storage_buffers > 8 || usage.shared_bytes > 16 << 10 {
                return Err(format!("asks for more than every device has: {usage:?}"));
            }
            Ok(())
        });
        if let Err(error) = outcome {
            failures.push(format!("{} {index}: {error}", kernel.op));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        kernels.len() > 50,
        "only {} kernels were compiled",
        kernels.len()
    );
}
