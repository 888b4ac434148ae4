//! Finds stop strings in a stream of bytes, and holds back bytes that may turn out to begin one.
//!
//! Neighbours: `stop.rs` feeds it each committed token's bytes; what it lets through is the text
//! that `event.rs` carries.
//!
//! One Knuth-Morris-Pratt automaton per string (Knuth, Morris, Pratt 1977, "Fast pattern matching
//! in strings"): its state is the length of the longest prefix of the string that ends the text so
//! far, which is exactly what must be held back for it. The result depends on the bytes alone, not
//! on how tokens cut them.

/// The matcher of one sequence.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    patterns: Vec<Pattern>,
    /// The end of the text so far that may begin a stop string, not yet let through.
    held: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Pattern {
    bytes: Vec<u8>,
    /// `fallback[i]`: length of the longest proper prefix that also ends `bytes[..=i]`.
    fallback: Vec<usize>,
    num_matched: usize,
}

impl StopStrings {
    /// A matcher of `strings`.
    ///
    /// # Panics
    /// If one is empty: admission refuses those.
    pub fn new(strings: &[Vec<u8>]) -> Self {
        let patterns = strings
            .iter()
            .map(|bytes| Pattern::new(bytes.clone()))
            .collect();
        let longest = strings.iter().map(Vec::len).max().unwrap_or(0);
        Self {
            patterns,
            held: Vec::with_capacity(longest + 1),
        }
    }

    /// Adds `bytes` to the text and appends to `text` what can no longer belong to a stop string.
    ///
    /// Returns the index of the string that is completed first; the text then ends before it, and
    /// bytes after it are not looked at. Of several that end at the same byte the longest wins.
    pub fn push(&mut self, bytes: &[u8], text: &mut Vec<u8>) -> Option<usize> {
        if self.patterns.is_empty() {
            text.extend_from_slice(bytes);
            return None;
        }
        for &byte in bytes {
            self.held.push(byte);
            for pattern in &mut self.patterns {
                pattern.advance(byte);
            }
            if let Some(which) = self.longest_complete() {
                let text_len = self.held.len() - self.patterns[which].bytes.len();
                text.extend_from_slice(&self.held[..text_len]);
                self.held.clear();
                return Some(which);
            }
            let num_held = self
                .patterns
                .iter()
                .map(|p| p.num_matched)
                .max()
                .unwrap_or(0);
            text.extend(self.held.drain(..self.held.len() - num_held));
        }
        None
    }

    /// Appends what was held back to `text`: no more bytes will come.
    pub fn finish(&mut self, text: &mut Vec<u8>) {
        text.append(&mut self.held);
    }

    fn longest_complete(&self) -> Option<usize> {
        let complete = self
            .patterns
            .iter()
            .enumerate()
            .filter(|(_, p)| p.is_complete());
        // `max_by_key` keeps the last of equals; the same string given twice is its first index.
        complete
            .rev()
            .max_by_key(|(_, p)| p.bytes.len())
            .map(|(index, _)| index)
    }
}

impl Pattern {
    fn new(bytes: Vec<u8>) -> Self {
        assert!(!bytes.is_empty(), "an empty stop string matches everywhere");
        let mut fallback = vec![0; bytes.len()];
        let mut len = 0;
        for i in 1..bytes.len() {
            while len > 0 && bytes[i] != bytes[len] {
                len = fallback[len - 1];
            }
            if bytes[i] == bytes[len] {
                len += 1;
            }
            fallback[i] = len;
        }
        Self {
            bytes,
            fallback,
            num_matched: 0,
        }
    }

    fn is_complete(&self) -> bool {
        self.num_matched == self.bytes.len()
    }

    fn advance(&mut self, byte: u8) {
        if self.is_complete() {
            self.num_matched = self.fallback[self.num_matched - 1];
        }
        while self.num_matched > 0 && self.bytes[self.num_matched] != byte {
            self.num_matched = self.fallback[self.num_matched - 1];
        }
        if self.bytes[self.num_matched] == byte {
            self.num_matched += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `chunks`; the text let through after each, and which string ended it.
    fn run(strings: &[&str], chunks: &[&str]) -> (Vec<String>, Option<usize>) {
        let strings: Vec<_> = strings.iter().map(|s| s.as_bytes().to_vec()).collect();
        let mut matcher = StopStrings::new(&strings);
        let mut texts = Vec::new();
        for chunk in chunks {
            let mut text = Vec::new();
            let which = matcher.push(chunk.as_bytes(), &mut text);
            texts.push(String::from_utf8(text).unwrap());
            if which.is_some() {
                return (texts, which);
            }
        }
        let mut text = Vec::new();
        matcher.finish(&mut text);
        texts.push(String::from_utf8(text).unwrap());
        (texts, None)
    }

    #[test]
    fn a_string_over_several_tokens_is_found_and_never_shown_in_part() {
        let (texts, which) = run(&["STOP"], &["one S", "TO", "Px"]);
        assert_eq!(
            (texts, which),
            (vec!["one ".into(), String::new(), String::new()], Some(0))
        );
    }

    #[test]
    fn bytes_held_back_in_vain_come_out_when_that_is_known() {
        let (texts, which) = run(&["STOP"], &["a ST", "AR ST"]);
        assert_eq!(
            (texts, which),
            (vec!["a ".into(), "STAR ".into(), "ST".into()], None)
        );
    }

    #[test]
    fn a_false_start_inside_a_repetition_does_not_hide_the_match() {
        assert_eq!(run(&["aab"], &["aaa", "ab", "x"]).1, Some(0));
        assert_eq!(run(&["aab"], &["aaa", "ab"]).0, ["a", "a"]);
        assert_eq!(
            run(&[" go go go"], &["x go go", " no go", " go go"]).1,
            Some(0)
        );
    }

    #[test]
    fn the_string_completed_first_wins_and_of_equals_the_longest() {
        assert_eq!(
            run(&["abcd", "bc"], &["xabcd"]),
            (vec!["xa".into()], Some(1))
        );
        assert_eq!(
            run(&["cd", "abcd"], &["xabcd"]),
            (vec!["x".into()], Some(1))
        );
        assert_eq!(run(&["ab", "ab"], &["ab"]).1, Some(0));
    }

    proptest! {
        #[test]
        fn text_and_match_equal_a_search_of_the_whole_text_however_it_is_cut(
            strings in prop::collection::vec("[ab]{1,4}", 0..4),
            chunks in prop::collection::vec("[abc]{0,5}", 0..8),
        ) {
            let whole = chunks.concat();
            let found = (1..=whole.len()).find_map(|end| {
                let ends = |s: &&String| whole[..end].ends_with(s.as_str());
                strings.iter().filter(ends).map(|s| end - s.len()).min()
            });
            let strings: Vec<_> = strings.iter().map(String::as_str).collect();
            let chunks: Vec<_> = chunks.iter().map(String::as_str).collect();
            let (texts, which) = run(&strings, &chunks);
            prop_assert_eq!(which.is_some(), found.is_some());
            prop_assert_eq!(texts.concat(), &whole[..found.unwrap_or(whole.len())]);
        }
    }
}
