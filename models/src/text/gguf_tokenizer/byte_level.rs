//! Byte-level BPE: text is cut into words, the bytes of a word join in the order of a list of
//! merges.
//!
//! Vocabularies of this kind write bytes as printable characters (GPT-2's alphabet). That is undone
//! when the file is read, so that text needs no translation.
//!
//! Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
//! Neighbours: [`super::merge`], [`super::pre_tokenizer`], [`super`] (who reads the file).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use forerun_engine::TokenId;

use super::super::error::TextError;
use super::super::pieces::{Pieces, TokenKind};
use super::merge::{MergeRule, Merger, Symbol};
use super::piece_index::{PieceIndex, QuickHasher};
use super::pre_tokenizer::{PreTokenizer, WholeWords};

/// GPT-2's alphabet backwards: the byte that a character stands for.
pub(in super::super) struct ByteAlphabet([Option<u8>; Self::NUM_CODES]);

impl ByteAlphabet {
    /// 256 bytes, of which 68 are moved to the codes from 256.
    const NUM_CODES: usize = 256 + 68;

    pub(in super::super) fn new() -> Self {
        let mut bytes = [None; Self::NUM_CODES];
        let mut moved = 256;
        for byte in 0..=u8::MAX {
            let is_printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
            let code = if is_printable {
                usize::from(byte)
            } else {
                moved
            };
            moved += usize::from(!is_printable);
            bytes[code] = Some(byte);
        }
        Self(bytes)
    }

    /// Appends the bytes that `text` stands for; text outside of the alphabet stands for itself.
    pub(in super::super) fn decode(&self, text: &str, out: &mut Vec<u8>) {
        let start = out.len();
        for char in text.chars() {
            let Some(byte) = self.0.get(char as usize).copied().flatten() else {
                out.truncate(start);
                out.extend_from_slice(text.as_bytes());
                return;
            };
            out.push(byte);
        }
    }
}

/// Place in the list of merges and result, by the pair of tokens ([`pair_key`]).
type Merges = HashMap<u64, (u32, TokenId), BuildHasherDefault<QuickHasher>>;

/// A byte-level BPE model.
pub(in super::super) struct ByteLevel {
    pieces: Arc<Pieces>,
    words: PreTokenizer,
    index: PieceIndex,
    /// Tokens of the single bytes. A vocabulary may lack some; such bytes are dropped, as by the
    /// `tokenizers` library.
    byte_tokens: Box<[Option<TokenId>; 256]>,
    merges: Merges,
}

impl ByteLevel {
    pub(super) fn new(
        pieces: Arc<Pieces>,
        words: PreTokenizer,
        merges: &[&str],
    ) -> Result<Self, TextError> {
        let index = PieceIndex::new(&pieces, |kind| kind == TokenKind::Normal);
        let mut byte_tokens = Box::new([None; 256]);
        for byte in 0..=u8::MAX {
            byte_tokens[usize::from(byte)] = index.find(&pieces, &[byte]);
        }
        let merges = read_merges(&pieces, &index, merges)?;
        Ok(Self {
            pieces,
            words,
            index,
            byte_tokens,
            merges,
        })
    }

    /// How text is cut before merging.
    pub(in super::super) fn words(&self) -> &PreTokenizer {
        &self.words
    }

    /// Appends the tokens of `text`, in which added tokens have been recognised already.
    pub(in super::super) fn encode(
        &self,
        text: &str,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), TextError> {
        let mut merger = Merger::new();
        self.words.words(text, &mut |word| {
            let bytes = word.as_bytes();
            if self.words.whole_words() == WholeWords::Take
                && let Some(id) = self.index.find(&self.pieces, bytes)
            {
                ids.push(id);
                return;
            }
            let known = bytes
                .iter()
                .filter_map(|byte| self.byte_tokens[usize::from(*byte)]);
            merger.merge(self, bytes, known.map(|id| (1, Some(id))));
            ids.extend(merger.symbols().filter_map(|symbol| symbol.piece));
        })
    }
}

impl MergeRule for ByteLevel {
    type Priority = Reverse<u32>;

    fn merge(
        &self,
        _text: &[u8],
        left: &Symbol,
        right: &Symbol,
    ) -> Option<(Reverse<u32>, TokenId)> {
        let &(place, piece) = self.merges.get(&pair_key(left.piece?, right.piece?))?;
        Some((Reverse(place), piece))
    }
}

fn pair_key(left: TokenId, right: TokenId) -> u64 {
    u64::from(left.0) << 32 | u64::from(right.0)
}

/// Each merge is two pieces with a space between them; all three pieces must be in the vocabulary.
fn read_merges(pieces: &Pieces, index: &PieceIndex, merges: &[&str]) -> Result<Merges, TextError> {
    let alphabet = ByteAlphabet::new();
    let mut map = HashMap::with_capacity_and_hasher(merges.len(), BuildHasherDefault::default());
    let mut bytes = Vec::new();
    for (place, merge) in merges.iter().enumerate() {
        let wrong = |expected: &str| {
            TextError::vocabulary(format!("merge {place}"), expected, format!("`{merge}`"))
        };
        let (left, right) = merge.split_once(' ').ok_or_else(|| wrong("two pieces"))?;
        bytes.clear();
        alphabet.decode(left, &mut bytes);
        let middle = bytes.len();
        alphabet.decode(right, &mut bytes);
        let find = |bytes| {
            let piece = index.find(pieces, bytes);
            piece.ok_or_else(|| wrong("pieces of the vocabulary that join to another one"))
        };
        let key = pair_key(find(&bytes[..middle])?, find(&bytes[middle..])?);
        map.entry(key).or_insert((place as u32, find(&bytes)?));
    }
    Ok(map)
}
