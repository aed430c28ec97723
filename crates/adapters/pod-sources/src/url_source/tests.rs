//! Scripted servers: good ones, slow ones, malformed ones.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

type Script = Arc<dyn Fn(&str, usize) -> Vec<u8> + Send + Sync>;

/// A server whose response is made from the request's head and its number.
struct ManifestTestServer {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for ManifestTestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ManifestTestServer {
    async fn start(script: impl Fn(&str, usize) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let script: Script = Arc::new(script);
        let seen = heads.clone();
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).await.unwrap_or(0) == 0 {
                        break;
                    }
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(head.clone());
                    seen.len() - 1
                };
                let answer = script(&head, number);
                let _sent = stream.write_all(&answer).await;
            }
        });
        Self { port, heads, task }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn redirect(place: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

fn source(url: &str, headers: &[(&str, &str)]) -> UrlSource {
    let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    UrlSource::new(url, headers, Duration::from_millis(20))
}

async fn next(source: &mut UrlSource) -> Result<Vec<(String, String)>, String> {
    let message =
        tokio::time::timeout(Duration::from_secs(20), source.next()).await.expect("hangs");
    match message {
        SourceSnapshot::Unreachable(reason) => Err(reason),
        SourceSnapshot::All(files) => Ok(files
            .into_iter()
            .map(|file| match file.content {
                ManifestContent::Bytes(bytes) => {
                    (file.name, String::from_utf8_lossy(&bytes).into_owned())
                }
                ManifestContent::Unreadable(reason) => panic!("{reason}"),
            })
            .collect()),
    }
}

#[tokio::test]
async fn only_changes_are_reported_and_errors_keep_the_last_snapshot() {
    let server = ManifestTestServer::start(|_, number| match number {
        0 | 1 => ok("one"),
        2 => ok("two"),
        3 => b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n".to_vec(),
        4 | 5 => ok("two"),
        _ => ok(""),
    })
    .await;
    let url = server.url("/pods?token=secret");
    let shown = server.url("/pods");
    let mut source = source(&url, &[("X-Node", "n1"), ("Host", "ignored")]);
    let message = |body: &str| Ok(vec![(shown.clone(), body.to_owned())]);
    assert_eq!(next(&mut source).await, message("one"));
    assert_eq!(next(&mut source).await, message("two"));
    assert_eq!(next(&mut source).await, Err(format!("{shown}: status 500")));
    assert_eq!(next(&mut source).await, message("two"));
    assert_eq!(next(&mut source).await, Ok(Vec::new()));
    let head = &server.heads()[0];
    assert!(head.starts_with("GET /pods?token=secret HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("X-Node: n1\r\n"), "{head}");
    assert!(head.contains(&format!("Host: 127.0.0.1:{}\r\n", server.port)), "{head}");
}

#[tokio::test]
async fn redirects_are_followed_ten_times() {
    let server = ManifestTestServer::start(|head, number| {
        if head.starts_with("GET /loop") {
            redirect("/loop")
        } else if number == 0 {
            redirect("other?x=1")
        } else {
            ok("there")
        }
    })
    .await;
    let mut once = source(&server.url("/a/b"), &[]);
    assert_eq!(next(&mut once).await.unwrap()[0].1, "there");
    assert!(server.heads()[1].starts_with("GET /a/other?x=1 "));
    let before = server.heads().len();
    let mut redirect_loop = source(&server.url("/loop"), &[]);
    let reason = next(&mut redirect_loop).await.unwrap_err();
    assert!(reason.ends_with("stopped after 10 redirects"), "{reason}");
    assert_eq!(server.heads().len() - before, 11);
}

#[tokio::test]
async fn secrets_do_not_follow_a_redirect_to_another_host() {
    let server = ManifestTestServer::start(|_, _| ok("x")).await;
    let port = server.port;
    let first =
        ManifestTestServer::start(move |_, _| redirect(&format!("http://localhost:{port}/"))).await;
    let url = first.url("/").replace("://", "://user:p%40ss@");
    let mut source = source(&url, &[("Cookie", "c"), ("X-Other", "kept")]);
    next(&mut source).await.unwrap();
    let (here, there) = (first.heads().remove(0), server.heads().remove(0));
    assert!(here.contains("Authorization: Basic dXNlcjpwQHNz\r\n"), "{here}");
    assert!(here.contains("Cookie: c\r\n"), "{here}");
    assert!(!there.contains("Authorization") && !there.contains("Cookie"), "{there}");
    assert!(there.contains("X-Other: kept\r\n"), "{there}");
    // The same host: all headers are sent.
    let again = ManifestTestServer::start(|head, _| {
        if head.starts_with("GET / ") { redirect("/next") } else { ok("x") }
    })
    .await;
    let mut source = self::source(&again.url("/"), &[("Cookie", "c")]);
    next(&mut source).await.unwrap();
    assert!(again.heads()[1].contains("Cookie: c\r\n"));
}

#[tokio::test]
async fn wrong_lengths_and_oversized_bodies_make_the_source_unreachable() {
    let rows: [(&str, Vec<u8>, &str); 5] = [
        (
            "short of its length",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx".to_vec(),
            "unexpected EOF",
        ),
        ("no answer", Vec::new(), "EOF"),
        (
            "too long",
            {
                let mut answer = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
                answer.resize(answer.len() + LONGEST, b'x');
                answer
            },
            "longer than 10 MiB",
        ),
        ("redirect to a file", redirect("file:///etc/passwd"), "scheme"),
        ("not HTTP", b"220 ready\r\n\r\n".to_vec(), "malformed"),
    ];
    for (what, answer, words) in rows {
        let server = ManifestTestServer::start(move |_, _| answer.clone()).await;
        let mut source = source(&server.url("/"), &[]);
        let reason = next(&mut source).await.expect_err(what);
        assert!(reason.contains(words), "{what}: {reason}");
    }
}

const LONGEST: usize = crate::MAX_MANIFEST_BYTES;

#[tokio::test(start_paused = true)]
async fn a_hanging_manifest_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let _held = tokio::spawn(async move {
        let _stream = listener.accept().await.unwrap();
        std::future::pending::<()>().await;
    });
    let mut source = source(&format!("http://127.0.0.1:{port}/"), &[]);
    let started = std::time::Instant::now();
    let reason = next(&mut source).await.unwrap_err();
    assert!(reason.ends_with("no whole answer within 10s"), "{reason}");
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn https_is_checked_with_the_bundle() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut buffer = [0; 2048];
            let _read = stream.read(&mut buffer).await;
            let _sent = stream.write_all(&ok("secure")).await;
            let _done = stream.shutdown().await;
        }
    });
    let temp_dir = tempfile::tempdir().unwrap();
    let good = temp_dir.path().join("good.pem");
    std::fs::write(&good, made.cert.pem()).unwrap();
    let url = format!("https://localhost:{port}/");
    let mut checked = source(&url, &[]).with_bundle(&good);
    assert_eq!(next(&mut checked).await.unwrap()[0].1, "secure");
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let bad = temp_dir.path().join("bad.pem");
    std::fs::write(&bad, other.cert.pem()).unwrap();
    let mut wrong = source(&url, &[]).with_bundle(&bad);
    let reason = next(&mut wrong).await.unwrap_err();
    assert!(reason.contains("tls: "), "{reason}");
    let mut without = source(&url, &[]).with_bundle(&temp_dir.path().join("none"));
    assert!(next(&mut without).await.unwrap_err().contains("no bundle"));
    served.abort();
}

/// A source that has reported nothing keeps the pods from the time when its URL was valid.
#[tokio::test]
async fn an_invalid_url_is_reported_once_and_never_counts_as_read() {
    for bad in ["", "manifest.yaml", "ftp://a/b", "http://"] {
        let mut source = source(bad, &[]);
        let message = next(&mut source).await.unwrap_err();
        assert!(message.starts_with("staticPodURL: "), "{bad}: {message}");
        let more = tokio::time::timeout(Duration::from_millis(100), source.next()).await;
        assert!(more.is_err(), "{bad}: {more:?}");
    }
}
