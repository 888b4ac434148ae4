//! Bytes of generated text, kept whole and shown as they come.

use std::io::{self, Write};

use forerun_models::text::Utf8Stream;

/// Collects text; with a writer it also streams it, never half a character.
pub(crate) struct TextSink<'a, W> {
    out: Option<&'a mut W>,
    stream: Utf8Stream,
    text: String,
}

impl<'a, W: Write> TextSink<'a, W> {
    /// `out` gets the text as it is made; `None` only collects.
    pub(crate) fn new(out: Option<&'a mut W>) -> Self {
        Self {
            out,
            stream: Utf8Stream::default(),
            text: String::new(),
        }
    }

    /// Takes bytes that follow those before.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let chunk = self.stream.push(bytes);
        self.text.push_str(chunk);
        show(self.out.as_deref_mut(), chunk)
    }

    /// Ends the text and returns all of it.
    pub(crate) fn finish(mut self) -> io::Result<String> {
        let chunk = self.stream.finish();
        self.text.push_str(chunk);
        show(self.out.as_deref_mut(), chunk)?;
        if let Some(out) = self.out {
            writeln!(out)?;
        }
        Ok(self.text)
    }
}

fn show<W: Write>(out: Option<&mut W>, chunk: &str) -> io::Result<()> {
    match out {
        Some(out) if !chunk.is_empty() => {
            out.write_all(chunk.as_bytes())?;
            out.flush()
        }
        _ => Ok(()),
    }
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
        assert_eq!(sink.finish().unwrap(), "🦀!");
        assert_eq!(String::from_utf8(shown).unwrap(), "🦀!\n");
    }
}
