//! Whole models against reference data: logits, hidden states, greedy tokens, text.

mod fixtures;
mod real;
mod session;
mod tiny;
