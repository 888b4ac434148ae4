//! A grammar whose rules are a hash of what it took: sometimes it forces a token, sometimes it is at
//! its end, sometimes it fails.
//!
//! Neighbours: `workload.rs` gives requests one; `oracle.rs` follows it.

use forerun_engine::{Grammar, GrammarError, TokenId};

use crate::fake_model::mix;

#[derive(Clone, Debug)]
pub(crate) struct FakeGrammar {
    state: u64,
    num_accepted: u32,
    vocab_size: u32,
    eos: Vec<TokenId>,
    /// Some states give no mask.
    can_fail: bool,
}

impl FakeGrammar {
    pub(crate) fn new(seed: u64, vocab_size: usize, eos: &[TokenId], can_fail: bool) -> Self {
        Self {
            state: mix(seed, 77),
            num_accepted: 0,
            vocab_size: vocab_size as u32,
            eos: eos.to_vec(),
            can_fail,
        }
    }

    fn allows(&self, token: TokenId) -> bool {
        if self.eos.contains(&token) {
            return self.state % 4 == 1;
        }
        let forced = self.state / 8 % u64::from(self.vocab_size);
        let is_forced = u64::from(token.0) == forced;
        is_forced
            || (!self.state.is_multiple_of(5)
                && !mix(self.state, u64::from(token.0)).is_multiple_of(3))
    }
}

fn error(message: &str) -> GrammarError {
    GrammarError {
        message: message.into(),
    }
}

impl Grammar for FakeGrammar {
    fn fill_mask(&mut self, mask: &mut [u32]) -> Result<(), GrammarError> {
        assert!(mask.iter().all(|&word| word == 0), "masks come empty");
        assert_eq!(mask.len(), (self.vocab_size as usize).div_ceil(32));
        if self.can_fail && self.state % 19 == 7 {
            return Err(error("the grammar is lost"));
        }
        for token in (0..self.vocab_size).filter(|&token| self.allows(TokenId(token))) {
            mask[token as usize / 32] |= 1 << (token % 32);
        }
        Ok(())
    }

    fn accept(&mut self, token: TokenId) -> Result<(), GrammarError> {
        if !self.allows(token) {
            return Err(error("the token was not allowed"));
        }
        self.state = mix(self.state, u64::from(token.0) + 1);
        self.num_accepted += 1;
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.num_accepted > 0 && self.state % 13 == 3
    }

    fn fork(&self) -> Box<dyn Grammar> {
        Box::new(self.clone())
    }
}
