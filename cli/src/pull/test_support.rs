//! What the tests beside it share: a cache folder, and a web server on 127.0.0.1 that serves files
//! from memory, and breaks off, lies or refuses where a test says so.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::download::Downloader;
use super::part_file::hex;
use super::{Endpoints, Progress, Puller};

/// What a request asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) path: String,
    /// First byte of a `Range: bytes=N-`.
    pub(super) from: Option<u64>,
    pub(super) authorization: Option<String>,
}

#[derive(Clone, Default)]
pub(super) struct Page {
    pub(super) body: Vec<u8>,
    pub(super) content_type: &'static str,
    /// Number of body bytes after which the first connection breaks off.
    pub(super) broken_once_at: Option<usize>,
    pub(super) ignores_ranges: bool,
}

#[derive(Clone)]
pub(super) struct TestServer {
    pub(super) address: String,
    pages: Arc<Mutex<BTreeMap<String, Page>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl TestServer {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = Self {
            address,
            pages: Arc::default(),
            seen: Arc::default(),
        };
        let serving = server.clone();
        // Ends with the test process: a test has no more than one of these.
        thread::spawn(move || {
            for stream in listener.incoming() {
                serving.answer(&stream.unwrap());
            }
        });
        server
    }

    pub(super) fn page(&self, path: &str, page: Page) {
        self.pages.lock().unwrap().insert(path.to_owned(), page);
    }

    pub(super) fn file(&self, path: &str, body: &[u8]) {
        self.page(
            path,
            Page {
                body: body.to_vec(),
                ..Page::default()
            },
        );
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Answers one request and closes the connection. A client that hangs up early is its affair.
    fn answer(&self, stream: &TcpStream) {
        let seen = read_request(stream);
        self.seen.lock().unwrap().push(seen.clone());
        let mut pages = self.pages.lock().unwrap();
        let Some(page) = pages.get_mut(&seen.path) else {
            let _ = send(stream, "404 Not Found", "", b"");
            return;
        };
        let len = page.body.len();
        let from = seen
            .from
            .filter(|_| !page.ignores_ranges)
            .map_or(0, |from| from as usize);
        if from >= len && from > 0 {
            let _ = send(stream, "416 Range Not Satisfiable", "", b"");
            return;
        }
        let mut headers = format!("Content-Length: {}\r\n", len - from);
        if !page.content_type.is_empty() {
            headers.extend(["Content-Type: ", page.content_type, "\r\n"]);
        }
        let status = if from > 0 {
            headers.push_str(
                &format_args!("Content-Range: bytes {from}-{}/{len}\r\n", len - 1).to_string(),
            );
            "206 Partial Content"
        } else {
            "200 OK"
        };
        let end = page.broken_once_at.take().unwrap_or(len);
        let _ = send(stream, status, &headers, &page.body[from..end.max(from)]);
    }
}

fn read_request(stream: &TcpStream) -> Seen {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut seen = Seen {
        path,
        from: None,
        authorization: None,
    };
    loop {
        line.clear();
        reader.by_ref().read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            return seen;
        };
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                seen.from = Some(value["bytes=".len()..value.len() - 1].parse().unwrap());
            }
            "authorization" => seen.authorization = Some(value.to_owned()),
            _ => {}
        }
    }
}

fn send(mut stream: &TcpStream, status: &str, headers: &str, body: &[u8]) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

/// A cache folder of its own, removed at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("forerun-pull-{}-{}", id.0, id.1));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn puller(server: &TestServer, folder: &Folder) -> Puller {
    Puller {
        models_dir: folder.0.clone(),
        endpoints: Endpoints {
            hub: format!("{}/hub", server.address),
            index: format!("{}/simple", server.address),
            token: Some("secret".to_owned()),
        },
        downloader: Downloader::with_retry_pause(Duration::from_millis(1)),
        progress: Progress::Quiet,
    }
}

pub(super) fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

pub(super) fn sha256(body: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex(Sha256::new().chain_update(body))
}
