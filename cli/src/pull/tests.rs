//! Pulls of models against a server of the test's own: from the hub, from wheels, by hub id.

use std::io::{Cursor, Write};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::download::{Document, shown};
use super::source::{WheelPart, has_extension};
use super::test_support::{Folder, Page, TestServer, bytes, puller, sha256};
use super::*;

fn wheel(member: &str, body: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("package/__init__.py", SimpleFileOptions::default())
        .unwrap();
    zip.start_file(member, SimpleFileOptions::default())
        .unwrap();
    zip.write_all(body).unwrap();
    zip.finish().unwrap().into_inner()
}

/// A named model of 70,001 bytes in two wheels. Leaked, since named models are `'static`.
fn two_wheel_model(body: &[u8]) -> &'static NamedModel {
    const PARTS: [WheelPart; 2] = [
        WheelPart {
            package: "tiny-part1",
            version: "1.0",
            member: "tiny_part1/data/tiny.gguf.0",
        },
        WheelPart {
            package: "tiny-part2",
            version: "1.0",
            member: "tiny_part2/data/tiny.gguf.1",
        },
    ];
    Box::leak(Box::new(NamedModel {
        name: "tiny",
        file: "tiny.gguf",
        size_bytes: body.len() as u64,
        sha256: Box::leak(sha256(body).into_boxed_str()),
        hub_repo: "org/tiny",
        hub_revision: "v1",
        wheels: &PARTS,
    }))
}

/// Serves the wheels of [`two_wheel_model`]: the first over a JSON index, the second over HTML.
fn serve_wheels(server: &TestServer, body: &[u8]) {
    let (first, second) = body.split_at(41_234);
    let first = wheel("tiny_part1/data/tiny.gguf.0", first);
    let second = wheel("tiny_part2/data/tiny.gguf.1", second);
    let json = format!(
        r#"{{"files": [{{"filename": "tiny_part1-0.9-py3-none-any.whl", "url": "old.whl"}},
            {{"filename": "tiny_part1-1.0-py3-none-any.whl", "url": "../../files/first.whl",
              "hashes": {{"sha256": "{}"}}}}]}}"#,
        sha256(&first)
    );
    let html = format!(
        "<html><body><a href=\"/old.whl\">tiny_part2-0.9-py3-none-any.whl</a><br/>\n<a \
         data-requires-python=\"&gt;=3.9\" href='/files/second.whl#sha256={}'>\
         tiny_part2-1.0-py3-none-any.whl</a></body></html>",
        sha256(&second)
    );
    let page = |body: String, content_type| Page {
        body: body.into_bytes(),
        content_type,
        ..Page::default()
    };
    server.page(
        "/simple/tiny-part1/",
        page(json, "application/vnd.pypi.simple.v1+json"),
    );
    server.page("/simple/tiny-part2/", page(html, "text/html"));
    server.file("/files/first.whl", &first);
    server.file("/files/second.whl", &second);
}

#[test]
fn a_named_model_comes_from_the_hub_where_that_answers() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    server.file("/hub/org/tiny/resolve/v1/tiny.gguf", &body);
    let path = puller(&server, &folder)
        .pull(&ModelSource::Named(two_wheel_model(&body)))
        .unwrap();
    assert_eq!(fs::read(path).unwrap(), body);
    assert_eq!(server.seen().len(), 1);
    assert_eq!(
        server.seen()[0].authorization.as_deref(),
        Some("Bearer secret")
    );
}

#[test]
fn a_named_model_comes_from_its_wheels_where_the_hub_has_it_not() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    serve_wheels(&server, &body);
    let source = ModelSource::Named(two_wheel_model(&body));
    let path = puller(&server, &folder).pull(&source).unwrap();
    assert_eq!(fs::read(&path).unwrap(), body);
    assert_eq!(folder.names(), ["downloads", "tiny.gguf"]);
    assert_eq!(fs::read_dir(folder.0.join("downloads")).unwrap().count(), 0);
    let index_requests = server
        .seen()
        .into_iter()
        .filter(|seen| !seen.path.contains("/hub/"));
    assert!(
        index_requests
            .clone()
            .all(|seen| seen.authorization.is_none()),
        "the token leaked"
    );

    let requests = server.seen().len();
    assert_eq!(puller(&server, &folder).pull(&source).unwrap(), path);
    assert_eq!(
        server.seen().len(),
        requests,
        "a cached model needs no network"
    );
}

#[test]
fn wheels_that_are_here_already_are_not_fetched_again() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    serve_wheels(&server, &body);
    create_dir(&folder.0.join("downloads")).unwrap();
    let first = folder.0.join("downloads/tiny_part1-1.0-py3-none-any.whl");
    fs::write(first, wheel("tiny_part1/data/tiny.gguf.0", &body[..41_234])).unwrap();
    fs::write(folder.0.join("tiny.gguf.part"), b"a half extraction").unwrap();
    puller(&server, &folder)
        .pull(&ModelSource::Named(two_wheel_model(&body)))
        .unwrap();
    assert!(
        !server
            .seen()
            .iter()
            .any(|seen| seen.path == "/files/first.whl")
    );
}

#[test]
fn a_file_of_the_wrong_size_is_not_the_model() {
    let (folder, body) = (Folder::new(), bytes(70_001));
    let model = two_wheel_model(&body);
    assert_eq!(cached(&folder.0, &ModelSource::Named(model)), None);
    fs::write(folder.0.join("tiny.gguf"), &body[..70_000]).unwrap();
    assert_eq!(cached(&folder.0, &ModelSource::Named(model)), None);
    fs::write(folder.0.join("tiny.gguf"), &body).unwrap();
    assert_eq!(
        cached(&folder.0, &ModelSource::Named(model)),
        Some(folder.0.join("tiny.gguf"))
    );
}

#[test]
fn wheels_with_other_bytes_are_refused_and_removed() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    let mut other = body.clone();
    other[50_000] ^= 1;
    serve_wheels(&server, &other);
    let got = puller(&server, &folder).pull(&ModelSource::Named(two_wheel_model(&body)));
    let Err(PullError::NoSource { hub, pypi, .. }) = got else {
        panic!("{got:?}")
    };
    assert!(matches!(*hub, PullError::NotFound { .. }), "{hub}");
    assert!(matches!(*pypi, PullError::WrongHash { .. }), "{pypi}");
    assert_eq!(folder.names(), ["downloads"]);
    assert_eq!(fs::read_dir(folder.0.join("downloads")).unwrap().count(), 0);
}

#[test]
fn an_index_without_the_version_says_so() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    serve_wheels(&server, &body);
    let page = Page {
        content_type: "text/html",
        ..Page::default()
    };
    server.page("/simple/tiny-part2/", page);
    let got = puller(&server, &folder).pull(&ModelSource::Named(two_wheel_model(&body)));
    let Err(PullError::NoSource { pypi, .. }) = got else {
        panic!("{got:?}")
    };
    assert!(matches!(&*pypi, PullError::NoWheel { package, .. } if package == "tiny-part2"));
}

#[test]
fn two_pulls_at_once_download_once() {
    let (server, folder, body) = (TestServer::start(), Folder::new(), bytes(70_001));
    serve_wheels(&server, &body);
    let source = ModelSource::Named(two_wheel_model(&body));
    std::thread::scope(|scope| {
        let pulls = [(); 2].map(|()| scope.spawn(|| puller(&server, &folder).pull(&source)));
        for pull in pulls {
            assert_eq!(fs::read(pull.join().unwrap().unwrap()).unwrap(), body);
        }
    });
    let fetched = server
        .seen()
        .iter()
        .filter(|seen| seen.path == "/files/first.whl")
        .count();
    assert_eq!(fetched, 1);
}

const TREE: &str = "/hub/api/models/org/name/tree/main";

fn serve_repo(server: &TestServer, files: &[(&str, &[u8])]) {
    let entries: Vec<String> = files
        .iter()
        .map(|(name, body)| {
            server.file(&format!("/hub/org/name/resolve/main/{name}"), body);
            let lfs = if has_extension(name, "json") {
                String::new()
            } else {
                format!(r#", "lfs": {{"oid": "{}"}}"#, sha256(body))
            };
            format!(
                r#"{{"type": "file", "path": "{name}", "size": {}{lfs}}}"#,
                body.len()
            )
        })
        .collect();
    server.file(TREE, format!("[{}]", entries.join(",")).as_bytes());
}

fn pull_id(server: &TestServer, folder: &Folder, id: &str) -> Result<PathBuf, PullError> {
    puller(server, folder).pull(&ModelSource::parse(id).unwrap())
}

#[test]
fn a_sharded_repository_arrives_as_its_index_says() {
    let (server, folder) = (TestServer::start(), Folder::new());
    let index = br#"{"weight_map": {"a": "s-1.safetensors", "b": "s-2.safetensors", "c": "s-1.safetensors"}}"#;
    serve_repo(
        &server,
        &[
            ("config.json", b"{}"),
            ("README.md", b"not needed"),
            ("model.safetensors.index.json", index),
            ("s-1.safetensors", &bytes(3_001)),
            ("s-2.safetensors", &bytes(2_003)),
            ("s-3.safetensors", b"not in the index"),
        ],
    );
    let path = pull_id(&server, &folder, "org/name").unwrap();
    assert_eq!(path, folder.0.join("org--name"));
    assert_eq!(
        Folder(path).names(),
        [
            "config.json",
            "model.safetensors.index.json",
            "s-1.safetensors",
            "s-2.safetensors"
        ]
    );
}

#[test]
fn one_gguf_file_of_a_repository_arrives_alone() {
    let (server, folder) = (TestServer::start(), Folder::new());
    serve_repo(&server, &[("a.gguf", &bytes(501)), ("b.gguf", &bytes(502))]);
    let path = pull_id(&server, &folder, "org/name:b.gguf").unwrap();
    assert_eq!(fs::read(path).unwrap(), bytes(502));
    assert_eq!(Folder(folder.0.join("org--name")).names(), ["b.gguf"]);
}

#[test]
fn asking_for_what_a_repository_has_not_lists_what_it_has() {
    let (server, folder) = (TestServer::start(), Folder::new());
    serve_repo(
        &server,
        &[("config.json", b"{}"), ("a.gguf", b"a"), ("b.GGUF", b"b")],
    );
    let error = pull_id(&server, &folder, "org/name:c.gguf").unwrap_err();
    assert_eq!(
        error.to_string(),
        "org/name has no file `c.gguf`; its .gguf files: a.gguf, b.GGUF"
    );
    let error = pull_id(&server, &folder, "org/name").unwrap_err();
    assert!(matches!(error, PullError::NoWeights { .. }), "{error}");
    assert_eq!(
        cached(&folder.0, &ModelSource::parse("org/name").unwrap()),
        None
    );
}

#[test]
fn a_name_from_outside_never_leaves_the_folder() {
    let (server, folder) = (TestServer::start(), Folder::new());
    let index = br#"{"weight_map": {"a": "../../evil.safetensors"}}"#;
    serve_repo(
        &server,
        &[("model.safetensors.index.json", index), ("../x.gguf", b"x")],
    );
    let error = pull_id(&server, &folder, "org/name").unwrap_err();
    assert!(matches!(error, PullError::BadListing { .. }), "{error}");
}

#[test]
fn names_and_ids_are_read_and_written_alike() {
    for id in [
        "smollm2",
        "gemma3-270m",
        "a/b",
        "a/b@v1.0",
        "a/b:c.gguf",
        "a/b@main:c.Q4_1.GGUF",
    ] {
        assert_eq!(ModelSource::parse(id).unwrap().to_string(), id);
    }
    assert!(matches!(
        ModelSource::parse("smolm2"),
        Err(PullError::UnknownModel { .. })
    ));
    for id in [
        "a/",
        "/b",
        "a/b/c",
        "../b",
        "a/..",
        "a/b@",
        "a/b@x/y",
        "a/b:",
        "a/b:c.bin",
        "a b/c",
    ] {
        let got = ModelSource::parse(id);
        assert!(
            matches!(got, Err(PullError::BadHubId { .. })),
            "{id}: {got:?}"
        );
    }
}

#[test]
fn the_cache_folder_follows_its_variables_in_order() {
    let dir = |set: &[(&str, &str)], home: Option<&str>| {
        let find = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
        cache_dir_from(find, home.map(PathBuf::from)).ok()
    };
    let all = [("FORERUN_HOME", "/own"), ("XDG_CACHE_HOME", "/xdg")];
    assert_eq!(dir(&all, Some("/home")), Some("/own".into()));
    assert_eq!(dir(&all[1..], Some("/home")), Some("/xdg/forerun".into()));
    assert_eq!(
        dir(&[("XDG_CACHE_HOME", "rel")], Some("/h")),
        Some("/h/.cache/forerun".into())
    );
    assert_eq!(
        dir(&[("FORERUN_HOME", "")], Some("/h")),
        Some("/h/.cache/forerun".into())
    );
    assert_eq!(dir(&[], None), None);
}

#[test]
fn references_of_an_index_become_addresses() {
    let base = "https://host:8/a/simple/pkg/?x=1";
    for (reference, want) in [
        ("https://other/f.whl", "https://other/f.whl"),
        ("//other/f.whl", "https://other/f.whl"),
        ("/f.whl", "https://host:8/f.whl"),
        ("f.whl", "https://host:8/a/simple/pkg/f.whl"),
        ("../../packages/f.whl", "https://host:8/a/packages/f.whl"),
        ("../../../../f.whl", "https://host:8/f.whl"),
    ] {
        assert_eq!(pypi::join_url(base, reference), want, "{reference}");
    }
}

#[test]
fn a_page_without_anchors_has_no_links() {
    let page = |text: &str| Document {
        url: "http://h/".into(),
        is_json: false,
        text: text.into(),
    };
    for text in [
        "",
        "<a ",
        "<a href=>x</a>",
        "<a href=\"x>y</a>",
        "<a href='x'>y",
    ] {
        assert_eq!(pypi::links(&page(text)).unwrap(), [], "{text}");
    }
}

#[test]
fn messages_do_not_show_a_password() {
    assert_eq!(
        shown("https://me:word@host/simple/x@y"),
        "https://host/simple/x@y"
    );
    assert_eq!(shown("https://host/simple/x@y"), "https://host/simple/x@y");
}
