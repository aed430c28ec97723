//! A registry on loopback with scripted behaviour, good and bad.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use image_store::{ContentSource as _, Descriptor, Digest, ImageReference};

use super::*;

mod hostile;

/// A received request.
#[derive(Debug, Clone, Default)]
struct ReceivedRequest {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl ReceivedRequest {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

type ResponseScript = dyn Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync;

struct FakeRegistry {
    port: u16,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl FakeRegistry {
    fn start(script: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let received: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let (requests, script) = (Arc::clone(&received), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (requests, script): (_, Arc<ResponseScript>) =
                    (Arc::clone(&requests), script.clone());
                std::thread::spawn(move || serve_connection(stream, &requests, &*script));
            }
        });
        Self { port, received }
    }

    fn name(&self, rest: &str) -> ImageReference {
        ImageReference::parse(&format!("127.0.0.1:{}/{rest}", self.port)).unwrap()
    }

    fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }
}

fn serve_connection(
    mut stream: TcpStream,
    requests: &Mutex<Vec<ReceivedRequest>>,
    script: &ResponseScript,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut received = ReceivedRequest::default();
    reader.read_line(&mut received.line).unwrap();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            received.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let length = received.header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    received.body = String::from_utf8(body).unwrap();
    requests.lock().unwrap().push(received.clone());
    // A client that has enough may have disconnected.
    let _ = stream.write_all(&script(&received));
}

fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len())
        .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

const MANIFEST: &[u8] = br#"{"schemaVersion":2}"#;

fn client(hosts: &[(&str, HostSettings)]) -> RegistryClient {
    let hosts =
        hosts.iter().map(|(name, settings)| ((*name).to_owned(), settings.clone())).collect();
    RegistryClient::new(hosts, Limits::default()).unwrap()
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

fn password() -> RegistryCredentials {
    RegistryCredentials::Password { user: "me".into(), password: "secret".into() }
}

#[tokio::test]
async fn a_tag_resolves_to_the_digest_of_the_received_document() {
    let registry = FakeRegistry::start(|_| {
        response(
            "200 OK",
            "content-type: application/x; q\r\ndocker-content-digest: lie\r\n",
            MANIFEST,
        )
    });
    let resolved =
        client(&[]).resolve(&registry.name("a/b:1"), &RegistryCredentials::None).await.unwrap();
    assert_eq!(resolved.descriptor.digest, Digest::of(MANIFEST));
    assert_eq!(resolved.descriptor.media_type, "application/x");
    assert!(
        registry.received()[0].line.starts_with("GET /v2/a/b/manifests/1 "),
        "{:?}",
        registry.received()
    );
}

#[tokio::test]
async fn a_document_with_another_digest_is_refused() {
    let registry = FakeRegistry::start(|_| response("200 OK", "", MANIFEST));
    let other = Digest::of(b"other");
    let error = client(&[])
        .resolve(&registry.name(&format!("a@{other}")), &RegistryCredentials::None)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Answer { .. }), "{error}");
}

#[tokio::test]
async fn a_token_is_fetched_once_and_the_password_goes_only_to_the_token_service() {
    let registry = FakeRegistry::start(|received| {
        if received.line.contains("/token?") {
            let good = received.header("authorization").starts_with("Basic ");
            return match good {
                true => response("200 OK", "", br#"{"token":"abc","expires_in":300}"#),
                false => response("401 No", "", b""),
            };
        }
        if received.header("authorization") == "Bearer abc" {
            return response("200 OK", "", MANIFEST);
        }
        let realm = format!("http://{}/token?x=1", received.header("host"));
        let challenge = format!("www-authenticate: Bearer realm=\"{realm}\",service=\"s v\"\r\n");
        response("401 Unauthorized", &challenge, b"")
    });
    let client = client(&[]);
    for _ in 0..2 {
        client.resolve(&registry.name("a/b:1"), &password()).await.unwrap();
    }
    let lines: Vec<String> =
        registry.received().iter().map(|received| received.line.clone()).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[1].contains("/token?x=1&scope=repository%3Aa%2Fb%3Apull&service=s%20v"));
    let with_password: Vec<_> = registry
        .received()
        .into_iter()
        .filter(|received| received.header("authorization").starts_with("Basic"))
        .collect();
    assert!(with_password.iter().all(|received| received.line.contains("/token")));
}

#[tokio::test]
async fn an_identity_token_is_exchanged_by_a_form() {
    let registry =
        FakeRegistry::start(|received| match received.line.starts_with("POST /token ") {
            true => response("200 OK", "", br#"{"access_token":"xyz"}"#),
            false if received.header("authorization") == "Bearer xyz" => {
                response("200 OK", "", MANIFEST)
            }
            false => {
                let challenge = format!(
                    "www-authenticate: Bearer realm=\"http://{}/token\"\r\n",
                    received.header("host")
                );
                response("401 Unauthorized", &challenge, b"")
            }
        });
    let credentials = RegistryCredentials::Identity { token: "id&1".into() };
    client(&[]).resolve(&registry.name("a:1"), &credentials).await.unwrap();
    assert!(
        registry.received()[1].body.contains("refresh_token=id%261"),
        "{:?}",
        registry.received()[1]
    );
}

#[tokio::test]
async fn a_redirect_to_another_host_carries_no_credentials() {
    let elsewhere = FakeRegistry::start(|_| response("200 OK", "", MANIFEST));
    let port = elsewhere.port;
    let registry = FakeRegistry::start(move |received| match received.header("authorization") {
        "" => response("401 Unauthorized", "www-authenticate: Basic realm=x\r\n", b""),
        _ => {
            let location = format!("location: http://127.0.0.1:{port}/there?signature=1\r\n");
            response("307 Moved", &location, b"")
        }
    });
    client(&[]).resolve(&registry.name("a:1"), &password()).await.unwrap();
    assert!(registry.received()[1].header("authorization").starts_with("Basic"));
    let there = &elsewhere.received()[0];
    assert!(there.line.starts_with("GET /there?signature=1"), "{there:?}");
    assert_eq!(there.header("authorization"), "");
}

#[tokio::test]
async fn endless_redirects_are_an_error() {
    let registry = FakeRegistry::start(|_| response("302 Found", "location: /again\r\n", b""));
    let error =
        client(&[]).resolve(&registry.name("a:1"), &RegistryCredentials::None).await.unwrap_err();
    assert!(error.to_string().contains("redirects more than"), "{error}");
    assert!(registry.received().len() <= 7);
}

#[tokio::test]
async fn mirrors_are_asked_first_with_the_registrys_name() {
    let mirror = FakeRegistry::start(|_| response("404 Not Found", "", b""));
    let second = FakeRegistry::start(|_| response("200 OK", "", MANIFEST));
    let settings = HostSettings {
        mirrors: vec![
            format!("http://127.0.0.1:{}", mirror.port),
            format!("http://127.0.0.1:{}/cache/v2", second.port),
        ],
        mirrors_only: true,
        ..HostSettings::default()
    };
    let client = client(&[("registry.example", settings)]);
    let name = ImageReference::parse("registry.example/a/b:1").unwrap();
    client.resolve(&name, &RegistryCredentials::None).await.unwrap();
    assert!(mirror.received()[0].line.contains("/v2/a/b/manifests/1?ns=registry.example"));
    assert!(second.received()[0].line.contains("/cache/v2/a/b/manifests/1?ns="));
}

/// The credentials that a host received.
fn received_credentials(registry: &FakeRegistry) -> Vec<String> {
    let received =
        registry.received().into_iter().map(|received| received.header("authorization").to_owned());
    received.filter(|text| !text.is_empty()).collect()
}

#[tokio::test]
async fn credentials_for_one_host_are_not_sent_to_another() {
    let resolving = |_: &ReceivedRequest| {
        response("401 Unauthorized", "www-authenticate: Basic realm=\"r\"\r\n", b"who are you")
    };
    // By the server in a login: does the mirror receive the credentials?
    for (server, records) in
        [(None, true), (Some("mirror"), true), (Some("registry.example"), false)]
    {
        let mirror = FakeRegistry::start(resolving);
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
        let name = ImageReference::parse("registry.example/a/b:1").unwrap();
        let token = RegistryCredentials::Token { token: "secret".into() };
        for credentials in [password(), token] {
            let login = Login { credentials, server: server.clone() };
            let error = client.resolve(&name, &login).await.unwrap_err();
            assert!(matches!(error, Error::Denied { status: 401, .. }), "{error}");
        }
        assert_eq!(!received_credentials(&mirror).is_empty(), records, "for {server:?}");
    }
}

#[tokio::test]
async fn denied_not_found_and_other_statuses_are_distinct_errors() {
    for (status, check) in [
        ("404 Not Found", (|error| matches!(error, Error::NotFound { .. })) as fn(&Error) -> bool),
        ("401 Unauthorized", |error| matches!(error, Error::Denied { status: 401, .. })),
        ("403 Forbidden", |error| matches!(error, Error::Denied { status: 403, .. })),
        ("500 Broken", |error| error.is_transient()),
        ("429 Slow Down", |error| error.is_transient()),
        ("418 Teapot", |error| !error.is_transient()),
    ] {
        let registry = FakeRegistry::start(move |_| response(status, "", b"because"));
        let error = client(&[])
            .resolve(&registry.name("a:1"), &RegistryCredentials::None)
            .await
            .unwrap_err();
        assert!(check(&error), "{status}: {error}");
    }
}

#[tokio::test]
async fn an_endless_manifest_is_refused() {
    let registry = FakeRegistry::start(|_| response("200 OK", "", &vec![b' '; 9 << 20]));
    let error =
        client(&[]).resolve(&registry.name("a:1"), &RegistryCredentials::None).await.unwrap_err();
    assert!(error.to_string().contains("exceeds"), "{error}");
}

/// Serves a blob and breaks off; `ranges` says whether it supports range requests.
fn breaking(content: Vec<u8>, ranges: bool) -> FakeRegistry {
    FakeRegistry::start(move |received| {
        if received.line.contains("/manifests/") {
            return response("200 OK", "", MANIFEST);
        }
        let from = received.header("range").trim_start_matches("bytes=").trim_end_matches('-');
        let from: usize = if ranges { from.parse().unwrap_or(0) } else { 0 };
        let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
        let mut bytes = response(status, "", &content[from..]);
        // The first response is cut in the middle if it can be resumed.
        if received.header("range").is_empty() {
            bytes.truncate(bytes.len() - content.len() / 2);
        }
        bytes
    })
}

#[tokio::test]
async fn a_broken_body_is_resumed_at_its_offset() {
    for ranges in [true, false] {
        let content: Vec<u8> = (0..200_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let registry = breaking(content.clone(), ranges);
        let client = client(&[]);
        let resolved =
            client.resolve(&registry.name("a:1"), &RegistryCredentials::None).await.unwrap();
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
async fn a_missing_blob_is_reported_without_retries() {
    let registry = FakeRegistry::start(|received| match received.line.contains("/manifests/") {
        true => response("200 OK", "", MANIFEST),
        false => response("404 Not Found", "", b""),
    });
    let client = client(&[]);
    let resolved = client.resolve(&registry.name("a:1"), &RegistryCredentials::None).await.unwrap();
    let source = RegistrySource::new(client, resolved, tokio::runtime::Handle::current());
    let missing = tokio::task::spawn_blocking(move || source.fetch(&blob(b"x"), 0).map(drop));
    assert!(missing.await.unwrap().unwrap_err().to_string().contains("not found"));
}

#[test]
fn credentials_are_not_shown_by_debug() {
    let shown = format!("{:?}", password());
    assert!(!shown.contains("secret") && !shown.contains("me"), "{shown}");
}
