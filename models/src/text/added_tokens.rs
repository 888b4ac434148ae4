//! Tokens that are matched whole in the text, before the rest of it is merged: control tokens and
//! user-defined ones.
//!
//! The leftmost match wins, among those the longest: the rule of the `tokenizers` library for
//! added tokens and of SentencePiece for user-defined symbols.
//!
//! Neighbours: [`super::tokenizer`] (who splits text), [`super::chat_template::marks`] (who looks
//! for control tokens in what users write).

use std::ops::Range;

use forerun_engine::TokenId;

/// A token to be found in text.
#[derive(Clone, Debug)]
pub(super) struct AddedToken {
    pub(super) id: TokenId,
    /// The text to look for; never empty.
    pub(super) text: String,
    /// Whether it is a control token, not to be recognised in what users write.
    pub(super) is_control: bool,
    /// What else the match takes, or needs, around it.
    pub(super) edges: Edges,
}

/// Conditions of the `tokenizers` library on what is around an added token.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edges {
    /// The match takes the white space before it.
    pub(super) strip_left: bool,
    /// The match takes the white space after it.
    pub(super) strip_right: bool,
    /// No match next to a letter, a digit or an underscore.
    pub(super) single_word: bool,
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) range: Range<usize>,
    /// The token, if one was recognised here.
    pub(super) token: Option<TokenId>,
}

/// A set of added tokens, as a trie over their bytes.
#[derive(Debug)]
pub(super) struct AddedTokens {
    tokens: Vec<AddedToken>,
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// Next bytes and their nodes, sorted by byte.
    children: Vec<(u8, u32)>,
    /// Index of the token that ends here.
    token: Option<u32>,
}

impl AddedTokens {
    pub(super) fn new(tokens: Vec<AddedToken>) -> Self {
        let mut nodes = vec![Node::default()];
        for (index, token) in tokens.iter().enumerate() {
            let mut node = 0;
            for &byte in token.text.as_bytes() {
                let next = nodes.len() as u32;
                node = match nodes[node]
                    .children
                    .binary_search_by_key(&byte, |child| child.0)
                {
                    Ok(child) => nodes[node].children[child].1 as usize,
                    Err(place) => {
                        nodes[node].children.insert(place, (byte, next));
                        nodes.push(Node::default());
                        next as usize
                    }
                };
            }
            if node > 0 {
                // Of two tokens with one text the first counts, as with SentencePiece.
                nodes[node].token.get_or_insert(index as u32);
            }
        }
        Self { tokens, nodes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub(super) fn controls(&self) -> impl Iterator<Item = &AddedToken> {
        self.tokens.iter().filter(|token| token.is_control)
    }

    /// Follows the trie along `bytes`; tells `visit` of each token met, with its length. Returns
    /// whether the bytes ended before the trie did.
    pub(super) fn walk<'a>(
        &'a self,
        bytes: &[u8],
        mut visit: impl FnMut(&'a AddedToken, usize),
    ) -> bool {
        let mut node = 0;
        for (index, byte) in bytes.iter().enumerate() {
            let children = &self.nodes[node].children;
            let Ok(child) = children.binary_search_by_key(byte, |child| child.0) else {
                return false;
            };
            node = children[child].1 as usize;
            if let Some(token) = self.nodes[node].token {
                visit(&self.tokens[token as usize], index + 1);
            }
        }
        true
    }

    /// Cuts `text` into recognised tokens and what is between them; the spans cover the text.
    /// `is_allowed` is asked about each candidate.
    pub(super) fn split(
        &self,
        text: &str,
        is_allowed: impl Fn(&AddedToken, Range<usize>) -> bool,
    ) -> Vec<Span> {
        let mut spans = Vec::new();
        let (mut taken, mut at) = (0, 0);
        while at < text.len() && !self.is_empty() {
            let mut longest = None;
            self.walk(&text.as_bytes()[at..], |token, len| {
                if is_allowed(token, at..at + len) {
                    longest = Some((token, len));
                }
            });
            let Some((token, len)) = longest else {
                at += 1;
                continue;
            };
            let found = at..at + len;
            at = found.end;
            let Some(range) = token.edges.apply(text, found, taken) else {
                continue;
            };
            at = range.end;
            if taken < range.start {
                spans.push(Span {
                    range: taken..range.start,
                    token: None,
                });
            }
            taken = range.end;
            spans.push(Span {
                range,
                token: Some(token.id),
            });
        }
        if taken < text.len() {
            spans.push(Span {
                range: taken..text.len(),
                token: None,
            });
        }
        spans
    }
}

impl Edges {
    /// The range that a match takes, not reaching before `taken`; `None` if it does not count.
    fn apply(self, text: &str, found: Range<usize>, taken: usize) -> Option<Range<usize>> {
        let (before, after) = (&text[..found.start], &text[found.end..]);
        let is_word = |char: char| char.is_alphanumeric() || char == '_';
        if self.single_word && (before.ends_with(is_word) || after.starts_with(is_word)) {
            return None;
        }
        let start = if self.strip_left {
            before.trim_end().len().max(taken)
        } else {
            found.start
        };
        let end = text.len()
            - if self.strip_right {
                after.trim_start().len()
            } else {
                after.len()
            };
        Some(start..end)
    }
}
