//! Drafts as `--show-drafts` prints them: what was accepted, what was rejected, and what the target
//! said itself.
//!
//! Neighbours: `generate/` feeds it events and shows what it gives.

use forerun_engine::{DraftTree, TokenId, Vocabulary};

/// How tokens are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// Colours of a terminal: accepted green, rejected red and struck out, the target's own blue.
    Colours,
    /// `[+accepted]`, `[-rejected]`, `[*the target's own]`.
    Marks,
}

/// What a token is.
#[derive(Clone, Copy)]
enum Kind {
    Accepted,
    Rejected,
    Own,
}

/// Knows which of the tokens to come were guessed.
#[derive(Debug)]
pub(crate) struct DraftView {
    paint: Paint,
    /// Tokens to come that a draft has guessed.
    num_accepted: usize,
    /// Guesses that did not come true, shown before the token that came instead.
    rejected: Vec<TokenId>,
    has_draft: bool,
}

impl DraftView {
    pub(crate) fn new(is_terminal: bool) -> Self {
        Self {
            paint: if is_terminal {
                Paint::Colours
            } else {
                Paint::Marks
            },
            num_accepted: 0,
            rejected: Vec::new(),
            has_draft: false,
        }
    }

    /// A draft was verified.
    pub(crate) fn take_draft(&mut self, draft: &DraftTree, num_accepted: usize) {
        self.num_accepted = num_accepted;
        self.has_draft = true;
        self.rejected.clear();
        // The main path is what a reader expects to see; side branches are noise.
        let mut node = draft.children(None).next();
        let mut depth = 0;
        while let Some(at) = node {
            if depth >= num_accepted {
                self.rejected.push(draft.nodes()[at as usize].token);
            }
            depth += 1;
            node = draft.children(Some(at)).next();
        }
    }

    /// The next token of the text, marked.
    pub(crate) fn token(&mut self, text: &str, vocabulary: &impl Vocabulary) -> String {
        if self.num_accepted > 0 {
            self.num_accepted -= 1;
            return self.marked(text, Kind::Accepted);
        }
        let mut shown = String::new();
        for token in std::mem::take(&mut self.rejected) {
            let rejected = String::from_utf8_lossy(vocabulary.token_bytes(token)).into_owned();
            shown += &self.marked(&rejected, Kind::Rejected);
        }
        if std::mem::take(&mut self.has_draft) {
            shown + &self.marked(text, Kind::Own)
        } else {
            shown + text
        }
    }

    fn marked(&self, text: &str, kind: Kind) -> String {
        let (colour, mark) = match kind {
            Kind::Accepted => ("\x1b[32m", '+'),
            Kind::Rejected => ("\x1b[31;9m", '-'),
            Kind::Own => ("\x1b[34m", '*'),
        };
        match self.paint {
            Paint::Colours => format!("{colour}{text}\x1b[0m"),
            Paint::Marks => format!("[{mark}{text}]"),
        }
    }
}
