//! Logprobs by their definition.
