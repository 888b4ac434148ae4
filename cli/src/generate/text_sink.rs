//! Bytes of generated text, shown as they come.
//!
//! Neighbours: `mod.rs` feeds it.

use std::io::{self, Write};

use forerun_models::text::Utf8Stream;

/// Streams text to a writer, never half a character; without one it does nothing.
pub(super) struct TextSink<'a, W> {
    out: Option<&'a mut W>,
    stream: Utf8Stream,
}

impl<'a, W: Write> TextSink<'a, W> {
    /// `out` gets the text as it is made.
    pub(super) fn new(out: Option<&'a mut W>) -> Self {
        Self {
            out,
            stream: Utf8Stream::default(),
        }
    }

    /// Takes bytes that follow those before.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.out {
            Some(out) => show(*out, self.stream.push(bytes)),
            None => Ok(()),
        }
    }

    /// Ends the text.
    pub(super) fn finish(mut self) -> io::Result<()> {
        match self.out {
            Some(out) => {
                show(out, self.stream.finish())?;
                writeln!(out)
            }
            None => Ok(()),
        }
    }
}

fn show(out: &mut impl Write, chunk: &str) -> io::Result<()> {
    if chunk.is_empty() {
        return Ok(());
    }
    out.write_all(chunk.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_character_waits_for_its_other_half() {
        let mut shown = Vec::new();
        let mut sink = TextSink::new(Some(&mut shown));
        sink.push(&[0xf0, 0x9f]).unwrap();
        sink.push(&[0xa6, 0x80, b'!']).unwrap();
        sink.finish().unwrap();
        assert_eq!(String::from_utf8(shown).unwrap(), "🦀!\n");
    }
}
