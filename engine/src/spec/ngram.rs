//! Prompt lookup: what followed the last few tokens when they came before.
//!
//! Neighbours: a [`Drafter`] of `speculator.rs`. Source: Saxena, "Prompt Lookup Decoding", 2023.
//!
//! Rule: the longest n-gram, of `min` to `max` tokens, that ends the text and also comes earlier
//! (overlap allowed); the tokens behind its first occurrence, or its latest. The index grows with the
//! text, a few entries per token, and is never rebuilt.

use std::collections::BTreeMap;

use super::{DraftContext, DraftTree, Drafter};
use crate::{SeqId, TokenId};

/// Which of several occurrences is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// The first, as in the published rule.
    First,
    /// The latest: recent text predicts better.
    Latest,
}

/// Drafts from the request's own text.
#[derive(Debug)]
pub struct NgramDrafter {
    len_min: usize,
    len_max: usize,
    occurrence: Occurrence,
    indexes: Vec<Option<NgramIndex>>,
}

/// Where n-grams of one sequence begin.
#[derive(Debug, Default)]
struct NgramIndex {
    /// By length and hash: where the first and the latest begin.
    starts: BTreeMap<(usize, u64), (u32, u32)>,
    /// N-grams that end before this position are in.
    num_indexed: usize,
}

impl NgramDrafter {
    /// Looks up n-grams of `len_min` to `len_max` tokens, at least 1.
    pub fn new(len_min: usize, len_max: usize, occurrence: Occurrence) -> Self {
        Self {
            len_min: len_min.max(1),
            len_max: len_max.max(len_min).max(1),
            occurrence,
            indexes: Vec::new(),
        }
    }

    fn index_mut(&mut self, seq: SeqId) -> &mut NgramIndex {
        let index = seq.index();
        if self.indexes.len() <= index {
            self.indexes.resize_with(index + 1, || None);
        }
        self.indexes[index].get_or_insert_default()
    }
}

impl NgramIndex {
    /// Takes in all n-grams but those that end with the last token.
    fn extend(&mut self, tokens: &[TokenId], len_min: usize, len_max: usize) {
        while self.num_indexed + 1 < tokens.len() {
            let end = self.num_indexed + 1;
            for len in len_min..=len_max.min(end) {
                let start = end - len;
                let key = (len, hash(&tokens[start..end]));
                let entry = self.starts.entry(key);
                let starts = entry.or_insert((start as u32, start as u32));
                starts.1 = start as u32;
            }
            self.num_indexed = end;
        }
    }

    fn find(&self, gram: &[TokenId], occurrence: Occurrence) -> Option<usize> {
        let &(first, latest) = self.starts.get(&(gram.len(), hash(gram)))?;
        Some(match occurrence {
            Occurrence::First => first,
            Occurrence::Latest => latest,
        } as usize)
    }
}

/// Of the tokens of an n-gram (FNV-1a over words). Equal hashes are compared token by token.
fn hash(tokens: &[TokenId]) -> u64 {
    tokens.iter().fold(0xcbf2_9ce4_8422_2325, |hash, token| {
        (hash ^ u64::from(token.0)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Drafter for NgramDrafter {
    fn name(&self) -> &'static str {
        "ngram"
    }

    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut DraftTree) -> usize {
        let (len_min, len_max, occurrence) = (self.len_min, self.len_max, self.occurrence);
        let tokens = context.tokens;
        let index = self.index_mut(context.seq);
        index.extend(tokens, len_min, len_max);
        let num_assumed = context.assumed.len();
        let room = context.depth_max.saturating_sub(num_assumed);
        for len in (len_min..=len_max.min(tokens.len() + num_assumed)).rev() {
            let num_known = len.saturating_sub(num_assumed);
            let mut gram = tokens[tokens.len() - num_known..].to_vec();
            gram.extend_from_slice(&context.assumed[num_assumed - (len - num_known)..]);
            let Some(start) = index.find(&gram, occurrence) else {
                continue;
            };
            if tokens[start..start + len] != gram {
                continue;
            }
            let end = (start + len + room).min(tokens.len());
            let following = &tokens[start + len..end];
            draft.push_chain(context.after, following.iter().copied());
            return len;
        }
        0
    }

    fn forget(&mut self, seq: SeqId, _tenant: Option<&str>, _output: &[TokenId]) {
        if let Some(index) = self.indexes.get_mut(seq.index()) {
            *index = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::RequestId;

    fn drafted(drafter: &mut NgramDrafter, tokens: &[TokenId], depth_max: usize) -> Vec<TokenId> {
        let mut draft = DraftTree::new();
        let context = DraftContext {
            seq: SeqId(0),
            request: RequestId(0),
            tenant: None,
            tokens,
            num_prompt: tokens.len(),
            assumed: &[],
            after: None,
            num_nodes_max: depth_max,
            depth_max,
            width_max: 1,
        };
        drafter.draft(&context, &mut draft);
        draft.nodes().iter().map(|node| node.token).collect()
    }

    fn token(value: &serde_json::Value) -> usize {
        usize::try_from(value.as_u64().unwrap()).unwrap()
    }

    #[test]
    fn drafts_are_those_of_the_goldens() {
        let text = include_str!("../../../tests/fixtures/algo/ngram.json");
        let file: serde_json::Value = serde_json::from_str(text).unwrap();
        let cases = file["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 200);
        for case in cases {
            let tokens = |key: &str| -> Vec<TokenId> {
                let list = case[key].as_array().unwrap();
                list.iter().map(|t| TokenId(token(t) as u32)).collect()
            };
            let number = |key: &str| token(&case[key]);
            let text = tokens("tokens");
            let room = number("max_model_len").saturating_sub(text.len());
            let depth_max = number("k").min(room);
            let mut drafter =
                NgramDrafter::new(number("min_n"), number("max_n"), Occurrence::First);
            let found = if text.is_empty() {
                Vec::new()
            } else {
                drafted(&mut drafter, &text, depth_max)
            };
            assert_eq!(found, tokens("proposed"), "{case}");
        }
    }

    /// The rule, scanning the text.
    fn scan(tokens: &[TokenId], len_min: usize, len_max: usize, is_first: bool) -> Vec<TokenId> {
        for len in (len_min..=len_max.min(tokens.len())).rev() {
            let gram = &tokens[tokens.len() - len..];
            let mut starts = (0..tokens.len() - len).filter(|&s| tokens[s..s + len] == *gram);
            let start = if is_first {
                starts.next()
            } else {
                starts.next_back()
            };
            if let Some(start) = start {
                let end = (start + len + 5).min(tokens.len());
                return tokens[start + len..end].to_vec();
            }
        }
        Vec::new()
    }

    proptest! {
        #[test]
        fn a_growing_index_finds_what_a_scan_finds(
            text in prop::collection::vec(0u32..4, 1..60),
            len_min in 1usize..4,
            more in 0usize..3,
        ) {
            let text: Vec<_> = text.into_iter().map(TokenId).collect();
            for occurrence in [Occurrence::First, Occurrence::Latest] {
                let mut drafter = NgramDrafter::new(len_min, len_min + more, occurrence);
                for end in 1..=text.len() {
                    let found = drafted(&mut drafter, &text[..end], 5);
                    let is_first = occurrence == Occurrence::First;
                    prop_assert_eq!(found, scan(&text[..end], len_min, len_min + more, is_first));
                }
            }
        }
    }
}
