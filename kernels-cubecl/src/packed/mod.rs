//! Packed weights: what the bytes mean, and how each kind of device wants them laid out.
//!
//! - [`mod@format`]: the formats and the sizes of their blocks in a file;
//! - [`dequantize`]: what a row means, the definition that everything else is tested against;
//! - [`native`]: tiles of 16 rows for the CPU kernels, laid out as [`tile_layout`] says;
//! - [`device`]: words and planes of scales for the CubeCL kernels.

pub mod dequantize;
pub mod device;
pub mod format;
pub mod native;
#[cfg(test)]
pub(crate) mod testing;
pub mod tile_layout;
