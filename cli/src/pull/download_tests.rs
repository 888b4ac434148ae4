//! One address to one file, against a server of the test's own: whole, broken off, wrong, missing.

use std::fs;

use super::download::Wanted;
use super::test_support::{Folder, Page, TestServer, bytes, puller, sha256};
use super::{Progress, PullError};

/// Downloads `/file` with a pinned hash into `<folder>/model.bin`.
fn download(server: &TestServer, folder: &Folder, hash: &str) -> Result<Vec<u8>, PullError> {
    let url = format!("{}/file", server.address);
    let wanted = Wanted {
        url: &url,
        token: None,
        size_bytes: None,
        sha256: Some(hash),
    };
    let target = folder.0.join("model.bin");
    puller(server, folder)
        .downloader
        .file(&wanted, &target, Progress::Quiet)?;
    Ok(fs::read(target).unwrap())
}

fn ranges(server: &TestServer) -> Vec<Option<u64>> {
    server.seen().into_iter().map(|seen| seen.from).collect()
}

#[test]
fn a_whole_file_arrives_under_its_final_name_only() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    server.file("/file", &body);
    assert_eq!(download(&server, &folder, &sha256(&body)).unwrap(), body);
    assert_eq!(folder.names(), ["model.bin"]);
}

#[test]
fn a_connection_that_breaks_off_is_continued_where_it_broke() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    let page = Page {
        body: body.clone(),
        broken_once_at: Some(33_333),
        ..Page::default()
    };
    server.page("/file", page);
    assert_eq!(download(&server, &folder, &sha256(&body)).unwrap(), body);
    assert_eq!(ranges(&server), [None, Some(33_333)]);
}

#[test]
fn a_part_of_an_earlier_run_is_continued() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    server.file("/file", &body);
    fs::write(folder.0.join("model.bin.part"), &body[..12_345]).unwrap();
    assert_eq!(download(&server, &folder, &sha256(&body)).unwrap(), body);
    assert_eq!(ranges(&server), [Some(12_345)]);
    assert_eq!(folder.names(), ["model.bin"]);
}

#[test]
fn a_server_without_ranges_starts_the_file_again() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    let page = Page {
        body: body.clone(),
        ignores_ranges: true,
        ..Page::default()
    };
    server.page("/file", page);
    fs::write(folder.0.join("model.bin.part"), &body[..12_345]).unwrap();
    assert_eq!(download(&server, &folder, &sha256(&body)).unwrap(), body);
}

#[test]
fn an_old_part_of_another_version_is_thrown_away_once() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    server.file("/file", &body);
    fs::write(folder.0.join("model.bin.part"), b"something else").unwrap();
    assert_eq!(download(&server, &folder, &sha256(&body)).unwrap(), body);
    assert_eq!(ranges(&server), [Some(14), None]);
}

#[test]
fn an_old_part_that_is_too_long_is_thrown_away() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(1_001));
    server.file("/file", &body);
    fs::write(folder.0.join("model.bin.part"), bytes(5_000)).unwrap();
    assert_eq!(download(&server, &folder, &sha256(&body)).unwrap(), body);
}

#[test]
fn a_wrong_hash_is_an_error_and_leaves_nothing() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    server.file("/file", &body);
    let expected_hash = sha256(b"another file");
    let error = download(&server, &folder, &expected_hash).unwrap_err();
    let PullError::WrongHash {
        expected, found, ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((expected, found), (expected_hash, sha256(&body)));
    assert!(folder.names().is_empty());
    assert_eq!(
        ranges(&server),
        [None],
        "a fresh file with a wrong hash is not fetched again"
    );
}

#[test]
fn a_wrong_size_is_an_error_before_anything_is_written() {
    let (server, folder) = (TestServer::start(), Folder::new());
    server.file("/file", &bytes(999));
    let url = format!("{}/file", server.address);
    let wanted = Wanted {
        url: &url,
        token: None,
        size_bytes: Some(1_000),
        sha256: None,
    };
    let target = folder.0.join("model.bin");
    let got = puller(&server, &folder)
        .downloader
        .file(&wanted, &target, Progress::Quiet);
    assert!(matches!(
        got,
        Err(PullError::WrongSize {
            expected: 1_000,
            found: 999,
            ..
        })
    ));
    assert!(folder.names().is_empty());
}

#[test]
fn a_missing_file_is_an_error_that_names_the_address() {
    let (server, folder) = (TestServer::start(), Folder::new());
    let error = download(&server, &folder, &sha256(b"")).unwrap_err();
    assert!(
        matches!(&error, PullError::NotFound { url } if url.ends_with("/file")),
        "{error}"
    );
    assert!(folder.names().is_empty());
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_once() {
    let (server, folder) = (TestServer::start(), Folder::new());
    let wanted = Wanted {
        url: "http://127.0.0.1:1/file",
        token: None,
        size_bytes: None,
        sha256: None,
    };
    let target = folder.0.join("model.bin");
    let got = puller(&server, &folder)
        .downloader
        .file(&wanted, &target, Progress::Quiet);
    assert!(matches!(got, Err(PullError::Unreachable { .. })));
}
