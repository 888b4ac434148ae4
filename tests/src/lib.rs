//! What the integration tests share.
//!
//! - [`parity`]: kernels with the same inputs on every device;
//! - [`offline`]: kernels compiled for devices that are not here.

pub mod offline;
pub mod parity;
pub mod real_models;
