//! Hostile registries: each is refused with a reason, within its limits, and a password is sent to
//! no other host.

use std::io::Read as _;
use std::time::Duration;

use image_store::{ImageNaming, ImageStore, NoProgress, Platform};

use super::*;

/// A manifest of one layer, and responses for its content.
struct ServedImage {
    manifest: Vec<u8>,
    config: Vec<u8>,
    layer: Vec<u8>,
}

fn image(layer: Vec<u8>) -> ServedImage {
    let platform = Platform::host().to_string();
    let mut parts = platform.split('/');
    let (os, machine) = (parts.next().unwrap(), parts.next().unwrap());
    let config = format!(
        r#"{{"architecture":"{machine}","os":"{os}","rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
        Digest::of(&layer)
    )
    .into_bytes();
    let descriptor = |kind: &str, bytes: &[u8]| {
        format!(
            r#"{{"mediaType":"application/vnd.oci.image.{kind}","digest":"{}","size":{}}}"#,
            Digest::of(bytes),
            bytes.len()
        )
    };
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{MANIFEST_TYPE}","config":{},"layers":[{}]}}"#,
        descriptor("config.v1+json", &config),
        descriptor("layer.v1.tar", &layer),
    )
    .into_bytes();
    ServedImage { manifest, config, layer }
}

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// An empty tar: only the end marker.
fn empty_tar() -> Vec<u8> {
    vec![0; 1024]
}

/// Serves an image; the script turns the request and the bytes into the layer's response.
fn serving(
    image: ServedImage,
    layer: impl Fn(&ReceivedRequest, &[u8]) -> Vec<u8> + Send + Sync + 'static,
) -> FakeRegistry {
    let of_config = Digest::of(&image.config).to_string();
    FakeRegistry::start(move |received| {
        if received.line.contains("/manifests/") {
            let kind = format!("content-type: {MANIFEST_TYPE}\r\n");
            response("200 OK", &kind, &image.manifest)
        } else if received.line.contains(&of_config) {
            response("200 OK", "", &image.config)
        } else {
            layer(received, &image.layer)
        }
    })
}

/// Pulls into a new store; returns the error, and checks that the store is sound and without an
/// image.
async fn pull(registry: &FakeRegistry, credentials: RegistryCredentials) -> Result<(), String> {
    let client = client(&[]);
    let name = registry.name("a/b:1");
    let resolved = client.resolve(&name, &credentials).await.map_err(|error| error.to_string())?;
    let top = resolved.descriptor.clone();
    let source = RegistrySource::new(client, resolved, tokio::runtime::Handle::current());
    tokio::task::spawn_blocking(move || {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path(), image_store::Limits::default(), Platform::host());
        let store = store.unwrap();
        let naming = ImageNaming { names: vec![name.clone()], ..ImageNaming::default() };
        let outcome = store.assemble(&source, &top, &naming, &NoProgress);
        assert_eq!(store.verify(image_store::Thoroughness::Full).unwrap(), []);
        assert_eq!(store.image(&name.to_string()).is_ok(), outcome.is_ok());
        outcome.map(drop).map_err(|error| error.to_string())
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_registry_is_pulled_from() {
    let registry = serving(image(empty_tar()), |_, layer| response("200 OK", "", layer));
    pull(&registry, RegistryCredentials::None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_with_a_wrong_length_or_digest_are_refused() {
    type LyingResponse = fn(&ReceivedRequest, &[u8]) -> Vec<u8>;
    let more: LyingResponse = |_, layer| response("200 OK", "", &[layer, &[7; 100_000]].concat());
    let endless: LyingResponse = |_, _| {
        // Without a length the body ends with the connection, which here stays open for long.
        let mut bytes = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        bytes.extend(vec![0; 32 << 20]);
        bytes
    };
    let other: LyingResponse = |_, layer| response("200 OK", "", &vec![1; layer.len()]);
    for (lie, words) in [
        (more, "longer than the 1024 bytes announced"),
        (endless, "longer than the 1024 bytes announced"),
        (other, "digest"),
    ] {
        let registry = serving(image(empty_tar()), lie);
        let reason = pull(&registry, RegistryCredentials::None).await.unwrap_err();
        assert!(reason.contains(words), "{reason:?} has no {words:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_always_breaks_fails_the_pull() {
    // No try delivers a byte; the length is wrong.
    let registry = serving(image(empty_tar()), |_, _| {
        b"HTTP/1.1 200 OK\r\ncontent-length: 1024\r\n\r\n".to_vec()
    });
    let begun = std::time::Instant::now();
    let reason = pull(&registry, RegistryCredentials::None).await.unwrap_err();
    assert!(!reason.is_empty());
    assert!(begun.elapsed() < Duration::from_secs(60), "it was tried for ever");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_sends_one_byte_per_retry_fails_the_pull() {
    // Without ranges the same byte comes again and again; with them the layer would take a minute
    // and a half, and a larger one years.
    let without = serving(image(empty_tar()), |_, layer| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 1024\r\n\r\n".to_vec();
        bytes.extend(&layer[..1]);
        bytes
    });
    let with = serving(image(empty_tar()), |received, layer| {
        let from = received.header("range").trim_start_matches("bytes=").trim_end_matches('-');
        let from: usize = from.parse().unwrap_or(0);
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {from}-1023/1024\r\n\
             content-length: {}\r\n\r\n",
            layer.len() - from
        );
        let mut bytes = head.into_bytes();
        bytes.push(layer[from]);
        bytes
    });
    let limit = Duration::from_secs(60);
    let pulls = async {
        tokio::join!(
            pull(&without, RegistryCredentials::None),
            pull(&with, RegistryCredentials::None)
        )
    };
    let (without, with) = tokio::time::timeout(limit, pulls).await.expect("tried for ever");
    for reason in [without.unwrap_err(), with.unwrap_err()] {
        assert!(!reason.is_empty());
    }
}

/// Answers every request with this head, followed by a byte now and then.
fn start_dripping_server(head: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut requested = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while requested.read_line(&mut line).unwrap_or(0) > 2 {
                    line.clear();
                }
                let _ = stream.write_all(head.as_bytes());
                // Until the client disconnects.
                while stream.write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn documents_and_error_texts_have_a_deadline() {
    let limits = Limits { document_time: Duration::from_millis(300), ..Limits::default() };
    for (head, words) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", "not whole after"),
        ("HTTP/1.1 403 Forbidden\r\ncontent-length: 100000\r\n\r\n", "403"),
    ] {
        let client = RegistryClient::new(BTreeMap::new(), limits).unwrap();
        let name = ImageReference::parse(&format!("127.0.0.1:{}/a:1", start_dripping_server(head)))
            .unwrap();
        let limited = Duration::from_secs(30);
        let resolving = client.resolve(&name, &RegistryCredentials::None);
        let outcome = tokio::time::timeout(limited, resolving).await.expect("waited for ever");
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_from_the_wrong_place_is_skipped_or_refused() {
    let content: Vec<u8> = (0..100_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    // The response to a range request starts before the requested offset, and says so.
    for (back, good) in [(0_usize, true), (1000, true), (usize::MAX, false)] {
        let is_intact = content.clone();
        let registry = FakeRegistry::start(move |received| {
            if received.line.contains("/manifests/") {
                return response("200 OK", "", MANIFEST);
            }
            let from = received.header("range").trim_start_matches("bytes=").trim_end_matches('-');
            match from.parse::<usize>() {
                Err(_) => {
                    let mut bytes = response("200 OK", "", &is_intact);
                    bytes.truncate(bytes.len() - is_intact.len() / 2);
                    bytes
                }
                Ok(from) => {
                    // In the bad case, after the requested offset.
                    let start = if back == usize::MAX { from + 10 } else { from - back };
                    let range = format!("content-range: bytes {start}-99999/100000\r\n");
                    response("206 Partial Content", &range, &is_intact[start..])
                }
            }
        });
        let client = client(&[]);
        let resolved =
            client.resolve(&registry.name("a:1"), &RegistryCredentials::None).await.unwrap();
        let source = RegistrySource::new(client, resolved, tokio::runtime::Handle::current());
        let descriptor = blob(&content);
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            source.fetch(&descriptor, 0).unwrap().read_to_end(&mut bytes).map(|_| bytes)
        });
        match read.await.unwrap() {
            Ok(bytes) => assert!(good && bytes == content, "back by {back}"),
            Err(error) => {
                assert!(!good && error.to_string().contains("was asked for"), "{back}: {error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_elsewhere_are_fetched_without_credentials() {
    let layer = empty_tar();
    let served = layer.clone();
    let elsewhere = FakeRegistry::start(move |_| response("200 OK", "", &served));
    let port = elsewhere.port;
    let plain = serving(image(layer), move |_, _| {
        let location = format!("location: http://127.0.0.1:{port}/signed\r\n");
        response("307 Moved", &location, b"")
    });
    let credentials = RegistryCredentials::Token { token: "secret".to_owned() };
    pull(&plain, credentials).await.unwrap();
    assert!(
        plain.received().iter().all(|received| received.header("authorization") == "Bearer secret")
    );
    let there = elsewhere.received();
    assert!(
        !there.is_empty()
            && there.iter().all(|received| received.header("authorization").is_empty())
    );
}

/// CVE-2020-15157: a redirect's target is not the registry and may not request its password.
#[tokio::test]
async fn a_challenge_from_where_a_redirect_leads_is_not_answered() {
    let identity = RegistryCredentials::Identity { token: "secret".to_owned() };
    for credentials in [password(), identity] {
        let elsewhere = FakeRegistry::start(|received| match received.line.contains("/token") {
            true => response("200 OK", "", br#"{"token":"t"}"#),
            false => {
                let realm = format!("http://{}/token", received.header("host"));
                let challenge = format!("www-authenticate: Bearer realm=\"{realm}\"\r\n");
                response("401 Unauthorized", &challenge, b"")
            }
        });
        let port = elsewhere.port;
        let registry = FakeRegistry::start(move |_| {
            let location = format!("location: http://127.0.0.1:{port}/layer\r\n");
            response("307 Moved", &location, b"")
        });
        let error = client(&[]).resolve(&registry.name("a:1"), &credentials).await.unwrap_err();
        assert!(matches!(error, Error::Denied { status: 401, .. }), "{error}");
        let there = elsewhere.received();
        assert!(there[0].line.starts_with("GET /layer"), "{there:?}");
        assert_eq!(there.len(), 1, "more than the layer was asked for: {there:?}");
        assert_eq!(there[0].header("authorization"), "");
    }
}

/// An identity token is in the body, which a redirect would pass on.
#[tokio::test]
async fn an_identity_token_is_not_sent_along_a_redirect() {
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Moved", "308 Moved"] {
        let elsewhere = FakeRegistry::start(|_| response("200 OK", "", br#"{"token":"t"}"#));
        let port = elsewhere.port;
        let registry =
            FakeRegistry::start(move |received| match received.line.contains("/token") {
                true => {
                    let location = format!("location: http://127.0.0.1:{port}/token\r\n");
                    response(status, &location, b"")
                }
                false => {
                    let realm = format!("http://{}/token", received.header("host"));
                    let challenge = format!("www-authenticate: Bearer realm=\"{realm}\"\r\n");
                    response("401 Unauthorized", &challenge, b"")
                }
            });
        let identity = RegistryCredentials::Identity { token: "secret".to_owned() };
        let error = client(&[]).resolve(&registry.name("a:1"), &identity).await.unwrap_err();
        assert!(error.to_string().contains("identity token"), "{status}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(elsewhere.received().is_empty(), "{status}: it was told");
    }
}

#[tokio::test]
async fn an_endless_token_and_one_of_nothing_are_refused() {
    for (token, words) in [(vec![b' '; 2 << 20], "exceeds"), (b"{}".to_vec(), "no token")] {
        let registry =
            FakeRegistry::start(move |received| match received.line.contains("/token") {
                true => response("200 OK", "", &token),
                false => {
                    let realm = format!("http://{}/token", received.header("host"));
                    let challenge = format!("www-authenticate: Bearer realm=\"{realm}\"\r\n");
                    response("401 Unauthorized", &challenge, b"")
                }
            });
        let error = client(&[]).resolve(&registry.name("a:1"), &password()).await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

/// Credentials that a registry echoes would end up in the node's log and in a pod's events.
#[tokio::test]
async fn credentials_echoed_by_a_registry_are_redacted() {
    let registry = FakeRegistry::start(|received| match received.header("authorization") {
        "" => response("401 Who", "www-authenticate: Basic realm=\"r\"\r\n", b""),
        authorization => response(
            "403 Forbidden",
            "",
            format!("{authorization} (me:secret) is no good").as_bytes(),
        ),
    });
    let token = RegistryCredentials::Token { token: "secret".to_owned() };
    for credentials in [password(), token] {
        let error = client(&[]).resolve(&registry.name("a:1"), &credentials).await.unwrap_err();
        let words = error.to_string();
        assert!(words.contains("is no good"), "{words}");
        assert!(!words.contains("secret") && !words.contains("bWU6c2VjcmV0"), "{words}");
    }
}

#[tokio::test]
async fn endless_headers_are_refused() {
    let registry = FakeRegistry::start(|_| {
        let many: String = (0..200_000).map(|number| format!("x-{number}: y\r\n")).collect();
        response("200 OK", &many, MANIFEST)
    });
    let error =
        client(&[]).resolve(&registry.name("a:1"), &RegistryCredentials::None).await.unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error}");
}

#[tokio::test]
async fn plain_http_is_not_used_for_other_hosts_by_default() {
    let name = ImageReference::parse("registry.invalid:5000/a:1").unwrap();
    let error = client(&[]).resolve(&name, &password()).await.unwrap_err();
    assert!(error.to_string().contains("https://registry.invalid:5000"), "{error}");
}
