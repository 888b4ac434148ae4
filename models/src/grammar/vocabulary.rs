//! The bytes of all tokens as llguidance's trie, with the tokens that may ever be allowed.
//!
//! Neighbours: [`super::compiler`] (who builds it once per model), [`super::constraint`] (who cuts
//! masks to it).

use forerun_engine::{TokenId, Vocabulary};
use llguidance::toktrie::{TokRxInfo, TokTrie, TokenizerEnv};

use super::error::GrammarVocabularyError;

/// Most bytes of a token, which is what a node of the trie can count. Longer tokens are never
/// allowed; their text can be written with others.
const TOKEN_BYTES_MAX: usize = 1024;

/// Tokens whose ids fit in 24 bits, of which llguidance keeps the last as a mark.
const VOCAB_SIZE_MAX: usize = (1 << 24) - 1;

/// Nodes whose number fits in 22 bits.
const NUM_NODES_MAX: usize = (1 << 22) - 1;

/// No UTF-8 text has this byte. llguidance takes a token that begins with it for a special one.
const MARK: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Bits in a word of a mask.
const BITS: usize = u32::BITS as usize;

/// What grammars know of a model's tokens. Immutable.
pub(super) struct TokenVocabulary {
    trie: TokTrie,
    end_tokens: Vec<TokenId>,
    /// `[ceil(V / 32)]` words: tokens that are text, and end tokens.
    selectable: Vec<u32>,
    /// `[ceil(V / 32)]` words: end tokens.
    ends: Vec<u32>,
}

impl TokenVocabulary {
    /// `vocab_size` is the model's number of logits; ids that the vocabulary has no bytes for are
    /// never allowed. End tokens are never text, whatever their bytes.
    pub(super) fn new(
        vocabulary: &impl Vocabulary,
        vocab_size: usize,
        end_tokens: &[TokenId],
    ) -> Result<Self, GrammarVocabularyError> {
        let Some(&first_end) = end_tokens.first() else {
            return Err(GrammarVocabularyError::NoEndToken);
        };
        if let Some(&token) = end_tokens
            .iter()
            .find(|token| token.0 as usize >= vocab_size)
        {
            return Err(GrammarVocabularyError::EndTokenOutOfVocabulary { token, vocab_size });
        }
        let mut words = text_tokens(vocabulary, vocab_size, end_tokens);
        check_size(&words)?;
        let mut selectable = vec![0; vocab_size.div_ceil(BITS)];
        for index in (0..vocab_size).filter(|&index| !words[index].is_empty()) {
            selectable[index / BITS] |= 1 << (index % BITS);
        }
        let mut ends = vec![0; vocab_size.div_ceil(BITS)];
        for token in end_tokens {
            // llguidance looks for special tokens by name and needs one to begin with.
            words[token.0 as usize] = format!("<end-{token}>").into_bytes();
            words[token.0 as usize].insert(0, MARK);
            ends[token.0 as usize / BITS] |= 1 << (token.0 as usize % BITS);
        }
        for (selectable, ends) in selectable.iter_mut().zip(&ends) {
            *selectable |= ends;
        }
        let info = TokRxInfo::new(vocab_size as u32, first_end.0);
        let ids: Vec<u32> = end_tokens.iter().map(|token| token.0).collect();
        Ok(Self {
            trie: TokTrie::from(&info, &words).with_eos_tokens(&ids),
            end_tokens: end_tokens.to_vec(),
            selectable,
            ends,
        })
    }

    /// Words of a mask.
    pub(super) fn mask_len(&self) -> usize {
        self.selectable.len()
    }

    pub(super) fn is_end(&self, token: TokenId) -> bool {
        self.end_tokens.contains(&token)
    }

    /// The part of `allowed` (at least as many words) that may ever be allowed.
    pub(super) fn select(&self, allowed: &[u32], mask: &mut [u32]) {
        assert!(
            allowed.len() >= self.mask_len() && mask.len() == self.mask_len(),
            "masks of {} words, have {} and {}",
            self.mask_len(),
            allowed.len(),
            mask.len()
        );
        for ((mask, allowed), selectable) in mask.iter_mut().zip(allowed).zip(&self.selectable) {
            *mask |= allowed & selectable;
        }
    }

    /// Bytes as the longest tokens that begin them, at most `num_tokens_max`. The last one is left out:
    /// more bytes may make it longer.
    pub(super) fn longest_tokens(&self, bytes: &[u8], num_tokens_max: usize) -> Vec<TokenId> {
        let mut tokens = self.trie.greedy_tokenize(bytes);
        tokens.pop();
        tokens.truncate(num_tokens_max);
        tokens.into_iter().map(TokenId).collect()
    }

    /// The end tokens.
    pub(super) fn ends(&self) -> &[u32] {
        &self.ends
    }
}

impl TokenizerEnv for TokenVocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<u32> {
        self.trie.greedy_tokenize(text)
    }

    /// So that no tokenization is forced on the model, and ours is not asked for one.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// Bytes of each token that may stand in a text, none for the others.
fn text_tokens(
    vocabulary: &impl Vocabulary,
    vocab_size: usize,
    end_tokens: &[TokenId],
) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = (0..vocab_size as u32)
        .map(|id| {
            let bytes = vocabulary.token_bytes(TokenId(id));
            if bytes.len() > TOKEN_BYTES_MAX || bytes.contains(&MARK) {
                Vec::new()
            } else {
                bytes.to_vec()
            }
        })
        .collect();
    for token in end_tokens {
        words[token.0 as usize].clear();
    }
    words
}

/// The trie asserts what is checked here, and a vocabulary is outside input.
fn check_size(words: &[Vec<u8>]) -> Result<(), GrammarVocabularyError> {
    let mut sorted: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    sorted.sort_unstable();
    let mut num_nodes = 1;
    let mut previous: &[u8] = &[];
    for word in sorted {
        let shared = word
            .iter()
            .zip(previous)
            .take_while(|(a, b)| a == b)
            .count();
        // A second token of the same bytes gets a node beside the first.
        num_nodes += (word.len() - shared).max(usize::from(!word.is_empty()));
        previous = word;
    }
    if words.len() >= VOCAB_SIZE_MAX || num_nodes > NUM_NODES_MAX {
        return Err(GrammarVocabularyError::TooLarge {
            vocab_size: words.len(),
            vocab_size_max: VOCAB_SIZE_MAX - 1,
            num_nodes,
            num_nodes_max: NUM_NODES_MAX,
        });
    }
    Ok(())
}
