//! Byte-pair merging: neighbours in a text join, the best pair first, until no pair may.
//!
//! The two tokenizers of GGUF files differ only in what makes a pair better: its place in the list
//! of merges (byte-level BPE) or the score of the result (SentencePiece). Of equal pairs the
//! leftmost joins first. A heap of candidates makes it O(n log n) in the length of the text.
//!
//! Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units".
//! Neighbours: [`super::byte_level`], [`super::sentence_piece`] (the two rules).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use forerun_engine::TokenId;

/// A run of bytes of the text on its way to a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// First byte and one past the last. Empty once the symbol has joined its left neighbour.
    start: u32,
    end: u32,
    /// The token with these bytes, if the vocabulary has one.
    pub(super) piece: Option<TokenId>,
    prev: Option<u32>,
    next: Option<u32>,
}

impl Symbol {
    pub(super) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Which neighbours may join.
pub(super) trait MergeRule {
    /// Greater joins first.
    type Priority: Ord;

    /// The token that the two make, and how early.
    fn merge(
        &self,
        text: &[u8],
        left: &Symbol,
        right: &Symbol,
    ) -> Option<(Self::Priority, TokenId)>;
}

/// Two neighbours that may join. The order of the fields is the order of merging.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate<P> {
    priority: P,
    left: Reverse<u32>,
    right: u32,
    /// End of the left symbol and of the right one when the candidate was found.
    middle: u32,
    end: u32,
    piece: TokenId,
}

/// Merges texts one after the other, in memory that is reused.
pub(super) struct Merger<P> {
    symbols: Vec<Symbol>,
    candidates: BinaryHeap<Candidate<P>>,
}

impl<P: Ord> Merger<P> {
    pub(super) fn new() -> Self {
        Self {
            symbols: Vec::new(),
            candidates: BinaryHeap::new(),
        }
    }

    /// Merges `text`, which begins as `parts`: bytes and token of each, together the text.
    pub(super) fn merge<R: MergeRule<Priority = P>>(
        &mut self,
        rule: &R,
        text: &[u8],
        parts: impl Iterator<Item = (usize, Option<TokenId>)>,
    ) {
        self.begin(parts);
        for right in 1..self.symbols.len() as u32 {
            self.consider(rule, text, Some(right - 1), Some(right));
        }
        while let Some(best) = self.candidates.pop() {
            let (left, right) = (best.left.0 as usize, best.right as usize);
            let is_current = self.symbols[left].end == best.middle
                && self.symbols[right].start == best.middle
                && self.symbols[right].end == best.end;
            if !is_current {
                continue;
            }
            let next = self.symbols[right].next;
            self.symbols[right].end = best.middle;
            let symbol = &mut self.symbols[left];
            (symbol.end, symbol.piece, symbol.next) = (best.end, Some(best.piece), next);
            let prev = symbol.prev;
            if let Some(next) = next {
                self.symbols[next as usize].prev = Some(best.left.0);
            }
            self.consider(rule, text, prev, Some(best.left.0));
            self.consider(rule, text, Some(best.left.0), next);
        }
    }

    /// What the last text was merged to, in order.
    pub(super) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols
            .iter()
            .filter(|symbol| symbol.start < symbol.end)
    }

    fn begin(&mut self, parts: impl Iterator<Item = (usize, Option<TokenId>)>) {
        self.symbols.clear();
        self.candidates.clear();
        let mut start = 0;
        for (len, piece) in parts {
            let end = start + len as u32;
            let index = self.symbols.len() as u32;
            let prev = index.checked_sub(1);
            self.symbols.push(Symbol {
                start,
                end,
                piece,
                prev,
                next: Some(index + 1),
            });
            start = end;
        }
        if let Some(last) = self.symbols.last_mut() {
            last.next = None;
        }
    }

    fn consider<R: MergeRule<Priority = P>>(
        &mut self,
        rule: &R,
        text: &[u8],
        left: Option<u32>,
        right: Option<u32>,
    ) {
        let (Some(left), Some(right)) = (left, right) else {
            return;
        };
        let (a, b) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some((priority, piece)) = rule.merge(text, a, b) {
            let (middle, end) = (a.end, b.end);
            let left = Reverse(left);
            self.candidates.push(Candidate {
                priority,
                left,
                right,
                middle,
                end,
                piece,
            });
        }
    }
}
