//! Kernels against each other on every device of this machine, and compiled for devices that are
//! not here.

mod compile;
mod in_place;
mod parity;
mod sampler;
mod verify;
