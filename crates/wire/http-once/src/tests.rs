//! Scripted servers, well-behaved and not.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Answers each connection with these bytes after a request's head, and returns what it read last.
async fn server(answer: &'static [u8]) -> (u16, tokio::task::JoinHandle<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_head(&mut stream).await;
        stream.write_all(answer).await.unwrap();
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest).await;
        (head, format!("{end:?}"))
    });
    (port, served)
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await.unwrap_or(0) == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

async fn get(port: u16, limit: usize) -> Result<GetResponse, HttpError> {
    let target = RequestTarget::parse(&format!("http://127.0.0.1:{port}/x?y")).unwrap();
    let line = dial(&target.host, target.port()).await?;
    let headers = [("Accept".to_owned(), "*/*".to_owned())];
    let get_request =
        GetRequest { target: &target, headers: &headers, body_limit: limit, tls: None };
    tokio::time::timeout(Duration::from_secs(10), exchange(line, &get_request))
        .await
        .expect("hangs")
}

#[tokio::test]
async fn a_request_is_sent_and_the_server_sees_an_orderly_close() {
    let (port, served) = server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let answer = get(port, 100).await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"ok"[..]));
    let (head, end) = served.await.unwrap();
    let expected = format!(
        "GET /x?y HTTP/1.1\r\nAccept: */*\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(head, expected);
    assert_eq!(end, "Ok(0)");
}

#[tokio::test]
async fn bodies_are_truncated_and_wrong_content_lengths_are_errors() {
    let (port, _served) = server(b"HTTP/1.0 200 OK\r\n\r\n0123456789abc").await;
    let mut answers = Vec::new();
    answers.push(get(port, 10).await.unwrap());
    assert_eq!(answers[0].body, b"0123456789");
    assert!(answers[0].truncated);
    let (port, served) = server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort").await;
    let answer = tokio::time::timeout(Duration::from_millis(300), get(port, 10)).await;
    assert!(answer.is_err(), "{answer:?}");
    served.abort();
}

#[tokio::test]
async fn errors_are_worded_as_gos() {
    let rows: [(&'static [u8], &str); 3] = [
        (b"", "EOF"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "malformed HTTP response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "unexpected EOF"),
    ];
    for (sent, words) in rows {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_head(&mut stream).await;
            stream.write_all(sent).await.unwrap();
        });
        let http_error = get(port, 100).await.unwrap_err().to_string();
        assert!(http_error.contains(words), "{http_error} lacks {words}");
        served.await.unwrap();
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let http_error = get(port, 100).await.unwrap_err().to_string();
    assert_eq!(http_error, format!("dial tcp 127.0.0.1:{port}: connect: connection refused"));
    let http_error = dial("no-such-host.invalid", 1).await.unwrap_err().to_string();
    assert_eq!(http_error, "dial tcp: lookup no-such-host.invalid: no such host");
}

#[tokio::test]
async fn no_socket_stays_in_time_wait() {
    let before = waiting_sockets();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        for _ in 0..20 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut byte = [0];
            // A FIN, not an error: the server logs nothing.
            assert_eq!(stream.read(&mut byte).await.unwrap(), 0);
        }
    });
    for _ in 0..20 {
        drop(dial("127.0.0.1", port).await.unwrap());
    }
    served.await.unwrap();
    let port = format!(":{port:04X}");
    let is_own =
        |(local, remote): &&(String, String)| local.ends_with(&port) || remote.ends_with(&port);
    assert_eq!(waiting_sockets().difference(&before).filter(is_own).count(), 0);
}

/// Both ends of each socket of the machine in TIME_WAIT. A port that is new to the test may be one
/// that another process has left.
fn waiting_sockets() -> HashSet<(String, String)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote) = (fields.next()?, fields.next()?);
        (fields.next()? == "06").then(|| (local.to_owned(), remote.to_owned()))
    };
    table.lines().filter_map(ends).collect()
}

fn server_tls() -> (Arc<rustls::ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(made.cert.der().to_vec())], key)
        .unwrap();
    (Arc::new(config), made.cert.pem())
}

async fn get_secure(port: u16, tls: Arc<rustls::ClientConfig>) -> Result<GetResponse, HttpError> {
    let target = RequestTarget::parse(&format!("https://localhost:{port}/")).unwrap();
    let line = dial("127.0.0.1", target.port()).await?;
    let get_request = GetRequest { target: &target, headers: &[], body_limit: 10, tls: Some(tls) };
    exchange(line, &get_request).await
}

#[tokio::test]
async fn tls_is_checked_only_where_it_should_be() {
    let (config, pem) = server_tls();
    let (_, other) = server_tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = tokio_rustls::TlsAcceptor::from(config.clone());
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let mut buffer = [0; 1024];
                let _read = stream.read(&mut buffer).await;
                let _sent = stream.write_all(b"HTTP/1.1 204 No\r\n\r\n").await;
                let _flushed = stream.flush().await;
                let _rest = stream.read(&mut buffer).await;
            }
        }
    });
    assert_eq!(get_secure(port, insecure_tls_config().unwrap()).await.unwrap().status, 204);
    let known = tls_config_for_bundle(pem.as_bytes()).unwrap();
    assert_eq!(get_secure(port, known).await.unwrap().status, 204);
    let unknown = tls_config_for_bundle(other.as_bytes()).unwrap();
    let refused = get_secure(port, unknown).await;
    assert!(matches!(refused, Err(HttpError::Tls(_))), "{refused:?}");
    assert!(tls_config_for_bundle(b"nothing").is_err());
    served.abort();
}

#[tokio::test]
async fn plain_http_on_a_tls_port_is_a_distinct_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 1024];
        let _read = stream.read(&mut buffer).await;
        let _sent = stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await;
        let _rest = stream.read(&mut buffer).await;
    });
    let refused = get_secure(port, insecure_tls_config().unwrap()).await;
    assert_eq!(refused, Err(HttpError::PlainHttp));
    served.await.unwrap();
}
