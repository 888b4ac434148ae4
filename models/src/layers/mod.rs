//! The layers of a decoder. Each has a `load` that names its tensors and a `forward` over
//! `[T, columns]` rows of f32.
//!
//! Reading order: [`embedding`], [`residual`], [`attention`], [`feed_forward`]; [`linear`] and
//! [`norm`] are what they are made of.

pub mod attention;
pub mod embedding;
pub mod feed_forward;
pub mod linear;
pub mod norm;
pub mod residual;
