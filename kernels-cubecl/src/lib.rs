//! Every custom op of forerun: its contract, its CubeCL kernel for GPUs, and its native twin, which
//! is what runs on CPUs.
//!
//! An op is a folder: `mod.rs` has the contract and the function that takes burn tensors, `cube.rs`
//! the kernel and its launch, `flex.rs` the twin on slices. [`backend::KernelBackend`] connects the
//! three. Around them: [`spec`] (what an op must be told), [`step_inputs`] (the integers of a step), [`readback`] (verdicts on
//! their way to the host),
//! [`packed`] and [`matrix`] (weights), [`threads`] and `simd` (the CPU), [`launch`],
//! `elementary` and [`compile`] (GPUs).

#![warn(missing_docs)]
#![expect(
    unsafe_code,
    reason = "SIMD, the worker pool and unchecked launches; each use says why it is sound"
)]

pub mod advance;
pub mod backend;
mod check;
pub mod compile;
pub mod copies;
mod elementary;
pub mod embed;
pub mod gather_rows;
pub mod glu;
pub mod kv_compact;
pub mod kv_copy;
pub mod kv_write;
pub mod launch;
pub mod limits;
pub mod linear;
pub mod logits_process;
pub mod logprobs;
pub mod matrix;
pub mod packed;
pub mod paged_attention;
pub mod readback;
pub mod rms_norm;
pub mod rope;
pub mod sample;
mod simd;
pub mod spec;
pub mod step_inputs;
pub mod threads;
pub mod verify;

pub use limits::{DeviceLimits, RuntimeKind};
pub use matrix::{PackError, PackedMatrix, RawRows};
pub use packed::format::WeightFormat;
pub use spec::{
    Activation, ActivationMode, AttentionSpec, KvSpec, MatrixSpec, PartSpec, RmsNormSpec,
    RopePairing, RopeSpec,
};
