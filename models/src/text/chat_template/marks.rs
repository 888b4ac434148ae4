//! Who wrote what: user text that spells a control token is marked before the template runs, so
//! that it stays text afterwards, whatever the template does to it.
//!
//! A mark is a character of a private-use area that occurs neither in the conversation nor in the
//! template. One goes before each place where
//! - a control token begins in a role or a content, or
//! - a content begins with the rest of a control token, or ends with the beginning of one, so that
//!   neighbouring texts cannot make one together.
//!
//! After rendering, the marks are taken out and the offsets they stood at are *tainted*: no control
//! token is recognised over a tainted offset. A conversation without control-token text has no
//! marks, and its text and ids are exactly those of rendering and tokenizing it whole. Templates
//! that look for control-token text inside a message do not find it.
//!
//! Neighbours: [`super::super::tokenizer`] (`encode_chat`), [`super`] (rendering).

use super::super::added_tokens::AddedTokens;
use super::Message;

/// Candidates for the mark: the supplementary private-use area B, from its end.
const CANDIDATES: std::ops::RangeInclusive<char> = '\u{100000}'..='\u{10FFFD}';

/// Puts marks into messages and takes them out of the rendered text.
pub(in super::super) struct Marks<'a> {
    /// Sets of added tokens, of which the control tokens count.
    tokens: &'a [&'a AddedTokens],
    mark: char,
}

impl<'a> Marks<'a> {
    /// For the control tokens among `tokens`, and a conversation and template that marks must not
    /// occur in.
    pub(in super::super) fn new(
        tokens: &'a [&'a AddedTokens],
        messages: &[Message],
        template: &str,
    ) -> Self {
        let is_used = |mark: char| {
            template.contains(mark)
                || messages
                    .iter()
                    .any(|m| m.role.contains(mark) || m.content.contains(mark))
        };
        // A conversation that uses all 65,534 of them may be marked with any: the worst that comes
        // of it is that a control token of the template is not recognised.
        let mark = CANDIDATES
            .rev()
            .find(|&mark| !is_used(mark))
            .unwrap_or('\u{10FFFD}');
        Self { tokens, mark }
    }

    /// The messages with marks.
    pub(in super::super) fn mark_messages(&self, messages: &[Message]) -> Vec<Message> {
        let mark = |message: &Message| {
            // Templates make control tokens of roles (`'<|' + role + '|>'`): only whole ones count.
            let role = self.insert(&message.role, self.whole(&message.role));
            let mut offsets = self.whole(&message.content);
            offsets.extend(self.edges(&message.content));
            Message {
                role,
                content: self.insert(&message.content, offsets),
            }
        };
        messages.iter().map(mark).collect()
    }

    /// The text without marks, and the offsets in it that they stood at, ascending.
    pub(in super::super) fn take_out(&self, text: &str) -> (String, Vec<usize>) {
        let mut clean = String::with_capacity(text.len());
        let mut tainted = Vec::new();
        for (index, part) in text.split(self.mark).enumerate() {
            if index > 0 {
                tainted.push(clean.len());
            }
            clean.push_str(part);
        }
        (clean, tainted)
    }

    /// Offsets at which a control token begins.
    fn whole(&self, text: &str) -> Vec<usize> {
        let begins_control = |offset: &usize| {
            let mut found = false;
            for tokens in self.tokens {
                tokens.walk(&text.as_bytes()[*offset..], |token, _| {
                    found |= token.is_control;
                });
            }
            found
        };
        text.char_indices()
            .map(|(offset, _)| offset)
            .filter(begins_control)
            .collect()
    }

    /// Offsets of parts of control tokens at the two ends. Templates trim contents, so the ends are
    /// those without white space.
    fn edges(&self, content: &str) -> Vec<usize> {
        let start = content.len() - content.trim_start().len();
        let trimmed = content.trim();
        let mut offsets = Vec::new();
        for token in self.tokens.iter().flat_map(|tokens| tokens.controls()) {
            let mut cuts = token.text.char_indices().skip(1);
            if cuts.any(|(cut, _)| trimmed.starts_with(&token.text[cut..])) {
                offsets.push(start);
            }
        }
        for (offset, _) in trimmed.char_indices() {
            let rest = &trimmed.as_bytes()[offset..];
            if self
                .tokens
                .iter()
                .any(|tokens| tokens.walk(rest, |_, _| {}))
            {
                offsets.push(start + offset);
            }
        }
        offsets
    }

    fn insert(&self, text: &str, mut offsets: Vec<usize>) -> String {
        offsets.sort_unstable();
        offsets.dedup();
        let mut marked = String::with_capacity(text.len() + offsets.len() * 4);
        let mut done = 0;
        for offset in offsets {
            marked.push_str(&text[done..offset]);
            marked.push(self.mark);
            done = offset;
        }
        marked.push_str(&text[done..]);
        marked
    }
}
