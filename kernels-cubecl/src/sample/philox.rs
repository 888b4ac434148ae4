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

/// The first word of each of the counters `[token, position, 0, 0]`.
#[inline(always)]
pub(super) fn first_words<S: Simd>(
    s: S,
    tokens: &[u32; LANES],
    position: u32,
    mut key: [u32; 2],
) -> [u32; LANES] {
    let zero = s.words(&[0; LANES]);
    let (mut a, mut b, mut c, mut d) = (s.words(tokens), s.words(&[position; LANES]), zero, zero);
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

    struct FirstWords([u32; LANES]);

    impl Kernel for FirstWords {
        type Output = [u32; LANES];
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [u32; LANES] {
            first_words(s, &self.0, 77, [5, u32::MAX])
        }
    }

    #[test]
    fn sixteen_counters_at_once_give_what_each_gives_alone() {
        let tokens = std::array::from_fn(|lane| 1000 + 7 * lane as u32);
        for isa in Isa::all() {
            for (token, word) in tokens.into_iter().zip(isa.run(FirstWords(tokens))) {
                assert_eq!(
                    word,
                    philox4x32_10([token, 77, 0, 0], [5, u32::MAX])[0],
                    "{isa:?}"
                );
            }
        }
    }
}
