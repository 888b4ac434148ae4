//! The lines of the output: written whole, one `write` each, so that whoever ends the program
//! leaves at most one torn line, the last.
//!
//! Neighbours: `run_loop.rs` writes; `resume.rs` reads them back.

use std::io::{self, Write};

use serde::Serialize;

use crate::openai::{ApiError, ResponseBody};

/// The body of one response.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Body {
    Answer(Box<ResponseBody>),
    Error { error: ApiError },
}

#[derive(Serialize)]
struct ResultLine<'a> {
    id: &'a str,
    custom_id: Option<&'a str>,
    response: Response<'a>,
    /// OpenAI's place for requests that were never sent; here every request gets a response.
    error: Option<()>,
}

#[derive(Serialize)]
struct Response<'a> {
    status_code: u16,
    request_id: &'a str,
    body: Body,
}

/// The name of the result of line `number`: `resume.rs` reads the number back.
pub(super) fn result_id(number: u64) -> String {
    format!("{ID_PREFIX}{number}")
}

/// What result ids begin with.
pub(super) const ID_PREFIX: &str = "batch_req_";

/// The output.
#[derive(Debug)]
pub(super) struct Results<W> {
    out: W,
    line: Vec<u8>,
    /// Requests answered.
    pub(super) num_ok: u64,
    /// Lines that got an error.
    pub(super) num_errors: u64,
}

impl<W: Write> Results<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            line: Vec::new(),
            num_ok: 0,
            num_errors: 0,
        }
    }

    /// Writes the result of line `number`.
    pub(super) fn write(
        &mut self,
        number: u64,
        custom_id: Option<&str>,
        result: Result<ResponseBody, ApiError>,
    ) -> io::Result<()> {
        let (status_code, body) = match result {
            Ok(body) => {
                self.num_ok += 1;
                (200, Body::Answer(Box::new(body)))
            }
            Err(error) => {
                self.num_errors += 1;
                (error.status_code(), Body::Error { error })
            }
        };
        let id = result_id(number);
        let line = ResultLine {
            id: &id,
            custom_id,
            response: Response {
                status_code,
                request_id: &id,
                body,
            },
            error: None,
        };
        self.line.clear();
        serde_json::to_writer(&mut self.line, &line)?;
        self.line.push(b'\n');
        self.out.write_all(&self.line)?;
        self.out.flush()
    }
}
