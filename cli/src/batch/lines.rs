//! The lines of the input, one at a time and within a length.
//!
//! Neighbours: `run_loop.rs` asks for the next line only when the engine has room; `entry.rs` reads
//! what a line says.

use std::io::{self, BufRead};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

/// Longest line that is read: longer ones cannot be requests of any model.
pub(super) const LINE_BYTES_MAX: usize = 64 << 20;

/// A line of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: u64,
    /// Without its end; `None` if it was longer than what is read.
    pub(super) bytes: Option<Vec<u8>>,
    /// Bytes of the input up to its end.
    pub(super) end: u64,
}

/// What is known of the next line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextLine {
    /// It is here.
    Line(Line),
    /// It may come later.
    NotYet,
    /// There is none.
    End,
}

/// Where lines come from.
pub(super) trait Lines {
    /// The next line. Waits for it, at least for a while, only if `may_wait`.
    fn next_line(&mut self, may_wait: bool) -> io::Result<NextLine>;
}

/// Reads lines, and no further than the reader's own buffer.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    reader: R,
    number: u64,
    end: u64,
    line_bytes_max: usize,
}

impl<R: BufRead> LineReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self::with_limit(reader, LINE_BYTES_MAX)
    }

    pub(super) fn with_limit(reader: R, line_bytes_max: usize) -> Self {
        Self {
            reader,
            number: 0,
            end: 0,
            line_bytes_max,
        }
    }

    fn read(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        let (mut is_too_long, mut has_any) = (false, false);
        loop {
            let buffer = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                filled => filled?,
            };
            if buffer.is_empty() {
                break;
            }
            has_any = true;
            let newline = buffer.iter().position(|&byte| byte == b'\n');
            let piece = &buffer[..newline.unwrap_or(buffer.len())];
            if bytes.len() + piece.len() > self.line_bytes_max {
                is_too_long = true;
                bytes = Vec::new();
            } else if !is_too_long {
                bytes.extend_from_slice(piece);
            }
            let num_taken = piece.len() + usize::from(newline.is_some());
            self.reader.consume(num_taken);
            self.end += num_taken as u64;
            if newline.is_some() {
                break;
            }
        }
        if !has_any {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some(Line {
            number: self.number,
            bytes: (!is_too_long).then_some(bytes),
            end: self.end,
        }))
    }
}

impl<R: BufRead> Lines for LineReader<R> {
    fn next_line(&mut self, _may_wait: bool) -> io::Result<NextLine> {
        Ok(self.read()?.map_or(NextLine::End, NextLine::Line))
    }
}

/// Reads lines on a thread of its own, so that input that comes slowly does not hold up requests
/// that run. It is one line ahead, and one more while it waits to hand that over.
#[derive(Debug)]
pub(super) struct LineThread {
    lines: Receiver<io::Result<Line>>,
}

/// How long a wait for a line may take before the caller looks at other things.
const WAIT: Duration = Duration::from_millis(200);

impl LineThread {
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(reader: impl BufRead + Send + 'static) -> io::Result<Self> {
        let (sender, lines) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("batch-input".to_owned())
            .spawn(move || {
                let mut reader = LineReader::new(reader);
                // Ends with the input, with an error, or when nobody takes lines any more.
                while let Some(line) = reader.read().transpose() {
                    let is_error = line.is_err();
                    if sender.send(line).is_err() || is_error {
                        return;
                    }
                }
            })?;
        Ok(Self { lines })
    }
}

impl Lines for LineThread {
    fn next_line(&mut self, may_wait: bool) -> io::Result<NextLine> {
        let next = if may_wait {
            self.lines.recv_timeout(WAIT)
        } else {
            self.lines.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            })
        };
        match next {
            Ok(line) => line.map(NextLine::Line),
            Err(RecvTimeoutError::Timeout) => Ok(NextLine::NotYet),
            Err(RecvTimeoutError::Disconnected) => Ok(NextLine::End),
        }
    }
}
