//! Whole models against reference data: logits, hidden states, greedy tokens, text.

#![expect(
    clippy::print_stdout,
    reason = "how far results agree is worth reading"
)]

mod fixtures;
mod real;
mod session;
mod tiny;
