//! Philox 4x32-10: random words as a function of a counter and a key, with no state to keep.
//!
//! Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section
//! 4.3. [`super`] says which counters and keys noise has.

use crate::simd::{LANES, Simd};

/// Multipliers of the two halves of the state.
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// What the key grows by from round to round: the golden ratio, and sqrt(3) - 1.
const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
/// Rounds.
const ROUNDS: u32 = 10;

/// Noise for sampling, and for drafts that are verified by it.
pub const PURPOSE_SAMPLE: u32 = 0;
/// Whether a draft is accepted.
pub const PURPOSE_ACCEPT: u32 = 1;
/// The token in place of drafts that were not accepted, or behind those that were.
pub const PURPOSE_RESIDUAL: u32 = 2;
/// Drawing drafts that are verified by rejection or as a block.
pub const PURPOSE_DRAFT: u32 = 3;

/// Words 1 to 3 of a counter: noise for one position and purpose. Word 0 numbers what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Position of the token that is decided.
    pub position: u32,
    /// One of the purposes.
    pub purpose: u32,
    /// Position of the anchor, so that one step's noise is not another's; 0 for sampling, which
    /// drafts must not change.
    pub anchor: u32,
}

impl Stream {
    /// Noise for sampling the token at `position`.
    pub const fn sampling(position: u32) -> Self {
        Self {
            position,
            purpose: PURPOSE_SAMPLE,
            anchor: 0,
        }
    }

    /// First word of the noise with number `index`, under the key of `seed`.
    pub fn word(self, index: u32, seed: u64) -> u32 {
        let counter = [index, self.position, self.purpose, self.anchor];
        philox4x32_10(counter, [seed as u32, (seed >> 32) as u32])[0]
    }
}

/// The four words that belong to a counter and a key.
pub fn philox4x32_10(counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = counter;
    for _ in 0..ROUNDS {
        let left = u64::from(a) * u64::from(MULTIPLIERS[0]);
        let right = u64::from(c) * u64::from(MULTIPLIERS[1]);
        a = (right >> 32) as u32 ^ b ^ key[0];
        b = right as u32;
        c = (left >> 32) as u32 ^ d ^ key[1];
        d = left as u32;
        key = next_key(key);
    }
    [a, b, c, d]
}

/// The first word of each of the counters `[token, position, purpose, anchor]`.
#[inline(always)]
pub(crate) fn first_words<S: Simd>(
    s: S,
    tokens: &[u32; LANES],
    stream: Stream,
    mut key: [u32; 2],
) -> [u32; LANES] {
    let all = |word: u32| s.words(&[word; LANES]);
    let (mut a, mut b) = (s.words(tokens), all(stream.position));
    let (mut c, mut d) = (all(stream.purpose), all(stream.anchor));
    for _ in 0..ROUNDS {
        let left = s.multiply_words(a, MULTIPLIERS[0]);
        let right = s.multiply_words(c, MULTIPLIERS[1]);
        a = s.xor_words(
            s.xor_words(s.high_words(right), b),
            s.words(&[key[0]; LANES]),
        );
        b = right;
        c = s.xor_words(
            s.xor_words(s.high_words(left), d),
            s.words(&[key[1]; LANES]),
        );
        d = left;
        key = next_key(key);
    }
    s.low_words(a)
}

fn next_key(key: [u32; 2]) -> [u32; 2] {
    [
        key[0].wrapping_add(KEY_STEPS[0]),
        key[1].wrapping_add(KEY_STEPS[1]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, Kernel};

    /// Known answers from the authors' library Random123 (tests/kat_vectors).
    #[test]
    fn words_are_those_of_the_published_vectors() {
        assert_eq!(
            philox4x32_10([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32_10([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32_10(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    const STREAM: Stream = Stream {
        position: 77,
        purpose: PURPOSE_DRAFT,
        anchor: 70,
    };

    struct FirstWords([u32; LANES]);

    impl Kernel for FirstWords {
        type Output = [u32; LANES];
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [u32; LANES] {
            first_words(s, &self.0, STREAM, [5, u32::MAX])
        }
    }

    #[test]
    fn sixteen_counters_at_once_give_what_each_gives_alone() {
        let tokens = std::array::from_fn(|lane| 1000 + 7 * lane as u32);
        for isa in Isa::all() {
            for (token, word) in tokens.into_iter().zip(isa.run(FirstWords(tokens))) {
                assert_eq!(
                    word,
                    philox4x32_10([token, 77, 3, 70], [5, u32::MAX])[0],
                    "{isa:?}"
                );
            }
        }
    }
}
