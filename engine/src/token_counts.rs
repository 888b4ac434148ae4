//! How often each token was seen: what penalties need.
//!
//! Neighbours: `sequence/mod.rs` counts; `step_batch/` writes the counts for the kernels.

use std::collections::BTreeMap;

use crate::TokenId;

/// One distinct token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenCount {
    /// The token.
    pub token: TokenId,
    /// Times in the output.
    pub num_output: u32,
    /// Whether it is in the prompt, which counts for the repetition penalty alone.
    pub is_in_prompt: bool,
}

/// The distinct tokens of a sequence with penalties.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenCounts {
    /// Times in the output, and whether in the prompt.
    tokens: BTreeMap<TokenId, (u32, bool)>,
}

impl TokenCounts {
    /// Of a sequence whose first `num_prompt` tokens are the prompt.
    pub(crate) fn new(tokens: &[TokenId], num_prompt: usize) -> Self {
        let mut counts = Self::default();
        for &token in &tokens[..num_prompt] {
            counts.tokens.entry(token).or_default().1 = true;
        }
        for &token in &tokens[num_prompt..] {
            counts.push(token);
        }
        counts
    }

    /// One more generated token.
    pub(crate) fn push(&mut self, token: TokenId) {
        self.tokens.entry(token).or_default().0 += 1;
    }

    /// In order of id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = TokenCount> + '_ {
        self.tokens
            .iter()
            .map(|(&token, &(num_output, is_in_prompt))| TokenCount {
                token,
                num_output,
                is_in_prompt,
            })
    }
}
