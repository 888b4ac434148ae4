//! A suffix automaton that grows with a text: all its substrings, and how often each came.
//!
//! Neighbours: the index of `suffix.rs`. Source: Blumer et al., "The smallest automaton recognizing the
//! subwords of a text", 1985.
//!
//! A state stands for substrings that end at the same places. Adding a token takes amortised constant
//! time and at most two states.

use std::collections::BTreeMap;

use crate::TokenId;

/// Suffixes whose count grows with a token, the longest first. Longer chains come of texts that repeat
/// themselves over and over; shorter contexts are counted too few times there, which no one needs.
const NUM_COUNTED_MAX: usize = 24;

/// Index of a state.
pub(super) type State = u32;

/// The state of the empty text.
pub(super) const ROOT: State = 0;

/// Substrings of one or several texts.
#[derive(Debug)]
pub(super) struct Automaton {
    states: Vec<Node>,
    /// Of the whole text that is being added.
    last: State,
    num_tokens: usize,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// Of the longest substring.
    len: u32,
    /// The longest suffix that ends in other places too; none for the empty text.
    link: Option<State>,
    next: BTreeMap<TokenId, State>,
    /// Places where it ends.
    count: u32,
}

impl Automaton {
    /// Of the empty text.
    pub(super) fn new() -> Self {
        Self {
            states: vec![Node::default()],
            last: ROOT,
            num_tokens: 0,
        }
    }

    /// Tokens added.
    pub(super) fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// A new text begins.
    pub(super) fn begin_text(&mut self) {
        self.last = ROOT;
    }

    /// One more token of the text.
    pub(super) fn push(&mut self, token: TokenId) {
        self.num_tokens += 1;
        self.last = self.extended(token);
        let mut state = Some(self.last);
        for _ in 0..NUM_COUNTED_MAX {
            let Some(counted) = state.filter(|&state| state != ROOT) else {
                return;
            };
            let node = &mut self.states[counted as usize];
            node.count += 1;
            state = node.link;
        }
    }

    /// The state behind `last` and `token`.
    fn extended(&mut self, token: TokenId) -> State {
        let last = self.last;
        if let Some(next) = self.next(last, token) {
            // Only where texts follow one another: this one began like another.
            return if self.len(next) == self.len(last) + 1 {
                next
            } else {
                self.split(last, token, next)
            };
        }
        let new = self.add(Node {
            len: self.states[last as usize].len + 1,
            ..Node::default()
        });
        let mut state = Some(last);
        while let Some(from) = state
            && self.next(from, token).is_none()
        {
            self.states[from as usize].next.insert(token, new);
            state = self.states[from as usize].link;
        }
        let link = match state {
            None => ROOT,
            Some(from) => {
                let next = self.next(from, token).expect("the loop ended here");
                if self.len(next) == self.len(from) + 1 {
                    next
                } else {
                    self.split(from, token, next)
                }
            }
        };
        self.states[new as usize].link = Some(link);
        new
    }

    /// Gives the shorter substrings of `next` a state of their own.
    fn split(&mut self, from: State, token: TokenId, next: State) -> State {
        let mut clone = self.states[next as usize].clone();
        clone.len = self.states[from as usize].len + 1;
        let clone = self.add(clone);
        self.states[next as usize].link = Some(clone);
        let mut state = Some(from);
        while let Some(before) = state
            && self.next(before, token) == Some(next)
        {
            self.states[before as usize].next.insert(token, clone);
            state = self.states[before as usize].link;
        }
        clone
    }

    fn add(&mut self, node: Node) -> State {
        self.states.push(node);
        self.states.len() as State - 1
    }

    /// The state behind a token, if such a substring came.
    pub(super) fn next(&self, state: State, token: TokenId) -> Option<State> {
        self.states[state as usize].next.get(&token).copied()
    }

    /// Tokens that came behind a state, and the states they lead to.
    pub(super) fn following(&self, state: State) -> impl Iterator<Item = (TokenId, State)> + '_ {
        let next = self.states[state as usize].next.iter();
        next.map(|(&token, &state)| (token, state))
    }

    /// Length of a state's longest substring.
    pub(super) fn len(&self, state: State) -> usize {
        self.states[state as usize].len as usize
    }

    /// Times that a state's substrings came.
    pub(super) fn count(&self, state: State) -> u32 {
        self.states[state as usize].count.max(1)
    }

    /// The longest suffix of the text that also came earlier.
    pub(super) fn repeated_suffix(&self) -> State {
        self.states[self.last as usize].link.unwrap_or(ROOT)
    }

    /// From the match of a text to that of the text with one more token: state and length.
    pub(super) fn advance(
        &self,
        (mut state, mut len): (State, usize),
        token: TokenId,
    ) -> (State, usize) {
        loop {
            if let Some(next) = self.next(state, token) {
                return (next, len + 1);
            }
            match self.states[state as usize].link {
                Some(link) => {
                    state = link;
                    len = self.len(link);
                }
                None => return (ROOT, 0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn substrings_are_those_of_the_text(
            text in prop::collection::vec(0u32..3, 1..40),
            probe in prop::collection::vec(0u32..3, 1..6),
        ) {
            let text: Vec<_> = text.into_iter().map(TokenId).collect();
            let probe: Vec<_> = probe.into_iter().map(TokenId).collect();
            let mut automaton = Automaton::new();
            for &token in &text {
                automaton.push(token);
            }
            let state = probe.iter().try_fold(ROOT, |state, &t| automaton.next(state, t));
            let num_times = text.windows(probe.len()).filter(|w| *w == probe).count();
            prop_assert_eq!(state.is_some(), num_times > 0);
            if let Some(state) = state && text.len() < NUM_COUNTED_MAX {
                prop_assert_eq!(automaton.count(state) as usize, num_times);
            }
            let suffix = automaton.len(automaton.repeated_suffix());
            let repeats = |len: usize| {
                let end = &text[text.len() - len..];
                text[..text.len() - 1].windows(len).any(|w| w == end)
            };
            prop_assert!(suffix == 0 || repeats(suffix));
            prop_assert!(suffix == text.len() || !repeats(suffix + 1));
        }
    }
}
