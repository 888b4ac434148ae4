//! Tests of grammars, on a vocabulary of all bytes and some longer tokens: small enough to try
//! everything, and every text has many tokenizations.

mod prefixes;
mod queue;
mod refusals;
mod tokenizers;
mod walks;

use forerun_engine::{Grammar, TokenId, Vocabulary};

use super::{GrammarCompileError, GrammarCompiler, GrammarSource};

/// Longer tokens after the 256 single bytes, with one that has the bytes of another.
const LONG_TOKENS: [&str; 24] = [
    "{\"", "\":", "\": ", "true", "null", "ab", "abc", " \"", "\",", "é", "日本", "12", "}}", "]}",
    "\n  ", "a", "name", "[\"", "1.5", "e+", "-0", "\\u00", "<|end|>", "yes",
];

/// Ids of tokens that are not text, then of end tokens: all without bytes.
pub(super) const CONTROLS: std::ops::Range<u32> = 280..284;
pub(super) const ENDS: [u32; 2] = [284, 286];

/// Not a multiple of 32, and larger than the number of tokens.
pub(super) const VOCAB_SIZE: usize = 297;

pub(super) struct SmallVocabulary(Vec<Vec<u8>>);

impl SmallVocabulary {
    pub(super) fn new() -> Self {
        let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
        let long = LONG_TOKENS.iter().map(|token| token.as_bytes().to_vec());
        Self(bytes.chain(long).collect())
    }
}

impl Vocabulary for SmallVocabulary {
    fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.0.get(id.0 as usize).map_or(&[], Vec::as_slice)
    }
}

pub(super) fn compiler() -> GrammarCompiler {
    GrammarCompiler::new(&SmallVocabulary::new(), VOCAB_SIZE, &ENDS.map(TokenId)).unwrap()
}

pub(super) fn compile(source: &GrammarSource) -> Box<dyn Grammar> {
    compiler().compile(source).unwrap()
}

pub(super) fn refusal(source: &GrammarSource) -> GrammarCompileError {
    compiler().compile(source).map(|_| ()).unwrap_err()
}

/// The tokens that may come next, of a vocabulary of `vocab_size`.
pub(super) fn allowed(grammar: &mut dyn Grammar, vocab_size: usize) -> Vec<TokenId> {
    let mut mask = vec![0_u32; vocab_size.div_ceil(32)];
    grammar.fill_mask(&mut mask).unwrap();
    let ids: Vec<TokenId> = (0..mask.len() as u32 * 32)
        .filter(|&id| mask[id as usize / 32] & (1 << (id % 32)) != 0)
        .map(TokenId)
        .collect();
    assert!(
        ids.iter().all(|id| (id.0 as usize) < vocab_size),
        "a bit past the vocabulary"
    );
    ids
}

/// Small and good enough to choose tokens (SplitMix64; Steele, Lea, Flood 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// What ends or shortens a text, in the order in which a walk that became long takes it.
const CLOSERS: [u8; 8] = [b'"', b'}', b']', b':', b',', b'0', b'e', b'n'];

/// One text along the masks: at random at first, then as short as it goes. `is_complete` tells of
/// every text on the way whether it may end there, and the mask must agree.
pub(super) fn walk(
    grammar: &mut dyn Grammar,
    random: &mut Random,
    is_complete: &dyn Fn(&[u8]) -> bool,
) -> Vec<u8> {
    let vocabulary = SmallVocabulary::new();
    let mut text = Vec::new();
    for num_steps in 0.. {
        assert!(
            num_steps < 2000,
            "{:?} does not end",
            String::from_utf8_lossy(&text)
        );
        let ids = allowed(grammar, VOCAB_SIZE);
        assert!(ids.iter().all(|id| !CONTROLS.contains(&id.0)));
        let num_ends = ids.iter().filter(|id| ENDS.contains(&id.0)).count();
        let ends_expected = if is_complete(&text) { ENDS.len() } else { 0 };
        assert_eq!(
            num_ends,
            ends_expected,
            "at {:?}",
            String::from_utf8_lossy(&text)
        );
        let closes = num_steps > 40 || random.below(3) == 0;
        let closer = CLOSERS
            .iter()
            .map(|&byte| TokenId(u32::from(byte)))
            .find(|id| ids.contains(id));
        let token = match (closes, num_ends > 0, closer) {
            (true, true, _) => TokenId(ENDS[random.below(ENDS.len())]),
            (true, false, Some(closer)) => closer,
            _ => ids[random.below(ids.len())],
        };
        grammar.accept(token).unwrap();
        text.extend_from_slice(vocabulary.token_bytes(token));
        if grammar.is_finished() {
            break;
        }
        assert!(!ENDS.contains(&token.0), "goes on after an end token");
    }
    assert!(
        grammar.accept(TokenId(97)).is_err(),
        "takes a token after the end"
    );
    assert_eq!(
        allowed(grammar, VOCAB_SIZE),
        ENDS.map(TokenId),
        "after the end"
    );
    text
}
