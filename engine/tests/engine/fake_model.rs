//! The model that the fake executor and the oracle share: pure functions of what a token can see.
//!
//! It has two layers, as real ones do: what a token leaves in the pool depends on the tokens it saw
//! when it was computed, and the next token depends on what all of them left.

use forerun_engine::{SamplingRow, TokenId, Vocabulary};

pub(crate) const VOCAB_SIZE: u32 = 40;
/// End tokens of the fake model.
pub(crate) const EOS: [TokenId; 2] = [TokenId(38), TokenId(39)];
/// A prompt that ends with this token gives logits that are not finite.
pub(crate) const NAN_TOKEN: u32 = 37;

/// Folds `value` into `hash` (the mixing step of SplitMix64).
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let mut z = (hash ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Positions that the query at `position` sees.
pub(crate) fn visible(position: u32, window: Option<usize>) -> std::ops::RangeInclusive<u32> {
    let first = window.map_or(0, |window| (position + 1).saturating_sub(window as u32));
    first..=position
}

/// The next token, from a hash of everything the last one sees. Temperature adds the noise that
/// seed and position select.
pub(crate) fn next_token(hash: u64, sampling: &SamplingRow) -> TokenId {
    let noise = if sampling.temperature > 0.0 {
        mix(sampling.seed, u64::from(sampling.position))
    } else {
        0
    };
    // The token of `NAN_TOKEN` is never generated, only prompted.
    let id = mix(hash, noise) % u64::from(VOCAB_SIZE - 1);
    TokenId(if id as u32 == NAN_TOKEN {
        VOCAB_SIZE - 1
    } else {
        id as u32
    })
}

/// Few letters, so that stop strings come up often; some tokens are two letters, some none.
pub(crate) struct FakeVocabulary;

impl Vocabulary for FakeVocabulary {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        let texts: [&[u8]; 7] = [b"a", b"b", b"c", b"ab", b"ba", b"", b"\xf0\x9f"];
        if EOS.contains(&id) {
            b""
        } else {
            texts[id.0 as usize % texts.len()]
        }
    }
}
