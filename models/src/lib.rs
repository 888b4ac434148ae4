//! Models as burn modules, and everything between files, text and the engine.
//!
//! Reading order of a token's path: [`runner`] (a step arrives from the engine), [`decoder`],
//! [`layers`]. Of a start: [`model`], [`loaders`], [`config`], [`decoder_weights`],
//! [`memory_plan`], [`kv_cache`]. Text: [`text`], [`grammar`]. Devices: [`devices`].

pub mod config;
pub mod decoder;
mod decoder_weights;
mod dense;
pub mod devices;
pub mod draft_model;
mod engine_setup;
pub mod forward_context;
mod free_memory;
pub mod grammar;
pub mod kv_cache;
pub mod layers;
pub mod loaders;
pub mod memory_plan;
pub mod model;
pub mod runner;
pub mod text;
