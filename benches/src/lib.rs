//! Benches of forerun, each a binary of its own under `benches/`:
//!
//! - `packed_products`: activations times packed weights, per format and number of rows;
//! - `native_ops`: the other native ops;
//! - `block_manager`: blocks and the prefix cache, per block;
//! - `passes`: whole models: decode, prefill, the cost of a few more rows.
