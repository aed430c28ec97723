//! A registry on loopback with scripted behaviour, good and bad.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use image_store::{Descriptor, Digest, Reference, Source as _};

use super::*;

mod hostile;

/// A received request.
#[derive(Debug, Clone, Default)]
struct Heard {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Heard {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

type Script = dyn Fn(&Heard) -> Vec<u8> + Send + Sync;

struct Peer {
    port: u16,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Peer {
    fn start(script: impl Fn(&Heard) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let (kept, script) = (Arc::clone(&heard), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, script): (_, Arc<Script>) = (Arc::clone(&kept), script.clone());
                std::thread::spawn(move || answer(stream, &kept, &*script));
            }
        });
        Self { port, heard }
    }

    fn name(&self, rest: &str) -> Reference {
        Reference::parse(&format!("127.0.0.1:{}/{rest}", self.port)).unwrap()
    }

    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, kept: &Mutex<Vec<Heard>>, script: &Script) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut heard = Heard::default();
    reader.read_line(&mut heard.line).unwrap();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            heard.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let length = heard.header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    heard.body = String::from_utf8(body).unwrap();
    kept.lock().unwrap().push(heard.clone());
    // A client that has enough may have disconnected.
    let _ = stream.write_all(&script(&heard));
}

fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len())
        .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

const MANIFEST: &[u8] = br#"{"schemaVersion":2}"#;

fn client(hosts: &[(&str, HostSettings)]) -> Client {
    let hosts =
        hosts.iter().map(|(name, settings)| ((*name).to_owned(), settings.clone())).collect();
    Client::new(hosts, Limits::default()).unwrap()
}

fn blob(bytes: &[u8]) -> Descriptor {
    Descriptor {
        media_type: "application/vnd.oci.image.layer.v1.tar".into(),
        digest: Digest::of(bytes),
        size: bytes.len() as u64,
        platform: None,
        annotations: BTreeMap::new(),
    }
}

fn password() -> Credentials {
    Credentials::Password { user: "me".into(), password: "secret".into() }
}

#[tokio::test]
async fn a_tag_resolves_to_what_was_sent_not_to_what_was_said() {
    let peer = Peer::start(|_| {
        response(
            "200 OK",
            "content-type: application/x; q\r\ndocker-content-digest: lie\r\n",
            MANIFEST,
        )
    });
    let resolved = client(&[]).resolve(&peer.name("a/b:1"), &Credentials::None).await.unwrap();
    assert_eq!(resolved.descriptor.digest, Digest::of(MANIFEST));
    assert_eq!(resolved.descriptor.media_type, "application/x");
    assert!(peer.heard()[0].line.starts_with("GET /v2/a/b/manifests/1 "), "{:?}", peer.heard());
}

#[tokio::test]
async fn another_document_than_the_digest_says_is_refused() {
    let peer = Peer::start(|_| response("200 OK", "", MANIFEST));
    let other = Digest::of(b"other");
    let error = client(&[])
        .resolve(&peer.name(&format!("a@{other}")), &Credentials::None)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Answer { .. }), "{error}");
}

#[tokio::test]
async fn a_token_is_fetched_once_and_the_password_goes_only_to_the_token_service() {
    let peer = Peer::start(|heard| {
        if heard.line.contains("/token?") {
            let good = heard.header("authorization").starts_with("Basic ");
            return match good {
                true => response("200 OK", "", br#"{"token":"abc","expires_in":300}"#),
                false => response("401 No", "", b""),
            };
        }
        if heard.header("authorization") == "Bearer abc" {
            return response("200 OK", "", MANIFEST);
        }
        let realm = format!("http://{}/token?x=1", heard.header("host"));
        let challenge = format!("www-authenticate: Bearer realm=\"{realm}\",service=\"s v\"\r\n");
        response("401 Unauthorized", &challenge, b"")
    });
    let client = client(&[]);
    for _ in 0..2 {
        client.resolve(&peer.name("a/b:1"), &password()).await.unwrap();
    }
    let lines: Vec<String> = peer.heard().iter().map(|heard| heard.line.clone()).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[1].contains("/token?x=1&scope=repository%3Aa%2Fb%3Apull&service=s%20v"));
    let with_password: Vec<_> = peer
        .heard()
        .into_iter()
        .filter(|heard| heard.header("authorization").starts_with("Basic"))
        .collect();
    assert!(with_password.iter().all(|heard| heard.line.contains("/token")));
}

#[tokio::test]
async fn an_identity_token_is_exchanged_by_a_form() {
    let peer = Peer::start(|heard| match heard.line.starts_with("POST /token ") {
        true => response("200 OK", "", br#"{"access_token":"xyz"}"#),
        false if heard.header("authorization") == "Bearer xyz" => response("200 OK", "", MANIFEST),
        false => {
            let challenge = format!(
                "www-authenticate: Bearer realm=\"http://{}/token\"\r\n",
                heard.header("host")
            );
            response("401 Unauthorized", &challenge, b"")
        }
    });
    let credentials = Credentials::Identity { token: "id&1".into() };
    client(&[]).resolve(&peer.name("a:1"), &credentials).await.unwrap();
    assert!(peer.heard()[1].body.contains("refresh_token=id%261"), "{:?}", peer.heard()[1]);
}

#[tokio::test]
async fn a_redirect_to_another_host_carries_no_credentials() {
    let elsewhere = Peer::start(|_| response("200 OK", "", MANIFEST));
    let port = elsewhere.port;
    let peer = Peer::start(move |heard| match heard.header("authorization") {
        "" => response("401 Unauthorized", "www-authenticate: Basic realm=x\r\n", b""),
        _ => {
            let location = format!("location: http://127.0.0.1:{port}/there?signature=1\r\n");
            response("307 Moved", &location, b"")
        }
    });
    client(&[]).resolve(&peer.name("a:1"), &password()).await.unwrap();
    assert!(peer.heard()[1].header("authorization").starts_with("Basic"));
    let there = &elsewhere.heard()[0];
    assert!(there.line.starts_with("GET /there?signature=1"), "{there:?}");
    assert_eq!(there.header("authorization"), "");
}

#[tokio::test]
async fn redirects_that_never_end_are_ended() {
    let peer = Peer::start(|_| response("302 Found", "location: /again\r\n", b""));
    let error = client(&[]).resolve(&peer.name("a:1"), &Credentials::None).await.unwrap_err();
    assert!(error.to_string().contains("redirects more than"), "{error}");
    assert!(peer.heard().len() <= 7);
}

#[tokio::test]
async fn mirrors_are_asked_first_and_told_whom_they_stand_for() {
    let mirror = Peer::start(|_| response("404 Not Found", "", b""));
    let second = Peer::start(|_| response("200 OK", "", MANIFEST));
    let settings = HostSettings {
        mirrors: vec![
            format!("http://127.0.0.1:{}", mirror.port),
            format!("http://127.0.0.1:{}/cache/v2", second.port),
        ],
        mirrors_only: true,
        ..HostSettings::default()
    };
    let client = client(&[("registry.example", settings)]);
    let name = Reference::parse("registry.example/a/b:1").unwrap();
    client.resolve(&name, &Credentials::None).await.unwrap();
    assert!(mirror.heard()[0].line.contains("/v2/a/b/manifests/1?ns=registry.example"));
    assert!(second.heard()[0].line.contains("/cache/v2/a/b/manifests/1?ns="));
}

/// The credentials that a host received.
fn heard_credentials(peer: &Peer) -> Vec<String> {
    let heard = peer.heard().into_iter().map(|heard| heard.header("authorization").to_owned());
    heard.filter(|text| !text.is_empty()).collect()
}

#[tokio::test]
async fn credentials_for_one_host_are_not_told_to_another() {
    let asking = |_: &Heard| {
        response("401 Unauthorized", "www-authenticate: Basic realm=\"r\"\r\n", b"who are you")
    };
    // By the server in a login: does the mirror receive the credentials?
    for (server, hears) in [(None, true), (Some("mirror"), true), (Some("registry.example"), false)]
    {
        let mirror = Peer::start(asking);
        let settings = HostSettings {
            mirrors: vec![format!("http://127.0.0.1:{}", mirror.port)],
            mirrors_only: true,
            ..HostSettings::default()
        };
        let client = client(&[("registry.example", settings)]);
        let server = server.map(|server| match server {
            "mirror" => format!("http://127.0.0.1:{}", mirror.port),
            other => format!("https://{other}/v1/"),
        });
        let name = Reference::parse("registry.example/a/b:1").unwrap();
        let token = Credentials::Token { token: "secret".into() };
        for credentials in [password(), token] {
            let login = Login { credentials, server: server.clone() };
            let error = client.resolve(&name, &login).await.unwrap_err();
            assert!(matches!(error, Error::Denied { status: 401, .. }), "{error}");
        }
        assert_eq!(!heard_credentials(&mirror).is_empty(), hears, "for {server:?}");
    }
}

#[tokio::test]
async fn refusals_are_told_apart() {
    for (status, check) in [
        ("404 Not Found", (|error| matches!(error, Error::NotFound { .. })) as fn(&Error) -> bool),
        ("401 Unauthorized", |error| matches!(error, Error::Denied { status: 401, .. })),
        ("403 Forbidden", |error| matches!(error, Error::Denied { status: 403, .. })),
        ("500 Broken", |error| error.is_passing()),
        ("429 Slow Down", |error| error.is_passing()),
        ("418 Teapot", |error| !error.is_passing()),
    ] {
        let peer = Peer::start(move |_| response(status, "", b"because"));
        let error = client(&[]).resolve(&peer.name("a:1"), &Credentials::None).await.unwrap_err();
        assert!(check(&error), "{status}: {error}");
    }
}

#[tokio::test]
async fn an_endless_manifest_is_cut() {
    let peer = Peer::start(|_| response("200 OK", "", &vec![b' '; 9 << 20]));
    let error = client(&[]).resolve(&peer.name("a:1"), &Credentials::None).await.unwrap_err();
    assert!(error.to_string().contains("exceeds"), "{error}");
}

/// Serves a blob and breaks off; `ranges` says whether it supports range requests.
fn breaking(content: Vec<u8>, ranges: bool) -> Peer {
    Peer::start(move |heard| {
        if heard.line.contains("/manifests/") {
            return response("200 OK", "", MANIFEST);
        }
        let from = heard.header("range").trim_start_matches("bytes=").trim_end_matches('-');
        let from: usize = if ranges { from.parse().unwrap_or(0) } else { 0 };
        let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
        let mut bytes = response(status, "", &content[from..]);
        // The first response is cut in the middle if it can be resumed.
        if heard.header("range").is_empty() {
            bytes.truncate(bytes.len() - content.len() / 2);
        }
        bytes
    })
}

#[tokio::test]
async fn a_broken_body_is_taken_up_where_it_ended() {
    for ranges in [true, false] {
        let content: Vec<u8> = (0..200_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let peer = breaking(content.clone(), ranges);
        let client = client(&[]);
        let resolved = client.resolve(&peer.name("a:1"), &Credentials::None).await.unwrap();
        let handle = tokio::runtime::Handle::current();
        let source = RegistrySource::new(client, resolved, handle);
        let descriptor = blob(&content);
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            source.fetch(&descriptor, 0).unwrap().read_to_end(&mut bytes).map(|_| bytes)
        });
        assert_eq!(read.await.unwrap().unwrap(), content, "ranges: {ranges}");
    }
}

#[tokio::test]
async fn a_blob_that_is_not_there_is_told_at_once() {
    let peer = Peer::start(|heard| match heard.line.contains("/manifests/") {
        true => response("200 OK", "", MANIFEST),
        false => response("404 Not Found", "", b""),
    });
    let client = client(&[]);
    let resolved = client.resolve(&peer.name("a:1"), &Credentials::None).await.unwrap();
    let source = RegistrySource::new(client, resolved, tokio::runtime::Handle::current());
    let missing = tokio::task::spawn_blocking(move || source.fetch(&blob(b"x"), 0).map(drop));
    assert!(missing.await.unwrap().unwrap_err().to_string().contains("not found"));
}

#[test]
fn credentials_are_never_shown() {
    let shown = format!("{:?}", password());
    assert!(!shown.contains("secret") && !shown.contains("me"), "{shown}");
}
