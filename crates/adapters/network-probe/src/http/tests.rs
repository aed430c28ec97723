//! Upstream's rules for responses, redirects and headers, each on a scripted server.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::scripted::{ScriptedProbeServer, TimeWaitSockets};

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn status(code: u16, more: &str) -> Vec<u8> {
    format!("HTTP/1.1 {code} X\r\n{more}Content-Length: 4\r\n\r\nbody").into_bytes()
}

async fn get(port: u16, path: &str, headers: &[(&str, &str)]) -> ProbeAttemptResult {
    let headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let request = HttpProbe {
        secure: false,
        host: "127.0.0.1",
        port,
        path,
        headers: &headers,
        user_agent: "kube-probe/1.36",
    };
    attempt(&request, None, Duration::from_secs(10)).await
}

#[tokio::test]
async fn http_status_codes_map_to_upstreams_results() {
    let rows = [
        (200, ProbeAttemptResult::Success("body".into())),
        (299, ProbeAttemptResult::Success("body".into())),
        (304, ProbeAttemptResult::Warning("Probe terminated redirects, Response body: ".into())),
        (
            302,
            ProbeAttemptResult::Warning("Probe terminated redirects, Response body: body".into()),
        ),
        (400, ProbeAttemptResult::Failure("HTTP probe failed with statuscode: 400".into())),
        (503, ProbeAttemptResult::Failure("HTTP probe failed with statuscode: 503".into())),
    ];
    for (code, expected) in rows {
        let waiting = TimeWaitSockets::now();
        let server = ScriptedProbeServer::start(move |_| status(code, "")).await;
        assert_eq!(get(server.port, "/", &[]).await, expected, "{code}");
        assert_eq!(waiting.since(server.port), 0, "{code}");
    }
}

#[tokio::test]
async fn probe_headers_override_default_headers() {
    let server = ScriptedProbeServer::start(|_| ok("")).await;
    let port = server.port;
    get(port, "/healthz?x=1", &[]).await;
    get(port, "/", &[("X-Twice", "1"), ("x-twice", "2"), ("Host", "pod.example")]).await;
    get(port, "/", &[("user-agent", "mine"), ("Accept", "text/plain")]).await;
    get(port, "/", &[("User-Agent", ""), ("accept", "")]).await;
    let heads = server.heads();
    let head = |line: &str, rest: &str| format!("GET {line} HTTP/1.1\r\n{rest}\r\n\r\n");
    let ours = "User-Agent: kube-probe/1.36\r\nAccept: */*";
    let host = format!("Host: 127.0.0.1:{port}\r\nConnection: close");
    assert_eq!(heads[0], head("/healthz?x=1", &format!("{ours}\r\n{host}")));
    assert!(heads[1].contains("Host: pod.example\r\n"), "{}", heads[1]);
    assert!(heads[1].contains("X-Twice: 1\r\n") && heads[1].contains("X-Twice: 2\r\n"));
    assert_eq!(heads[1].matches("Host:").count(), 1);
    assert!(
        heads[2].contains("User-Agent: mine\r\n") && heads[2].contains("Accept: text/plain\r\n")
    );
    assert_eq!(heads[3], head("/", &host));
    let bad = get(port, "/", &[("bad name", "x")]).await;
    assert!(matches!(bad, ProbeAttemptResult::Failure(_)), "{bad:?}");
    let bad = get(port, "/", &[("x", "a\r\nInjected: y")]).await;
    assert!(matches!(bad, ProbeAttemptResult::Failure(_)), "{bad:?}");
}

#[tokio::test]
async fn redirects_stay_on_the_host() {
    let server = ScriptedProbeServer::start(|head| match head.split(' ').nth(1) {
        Some("/start") => status(302, "Location: next\r\n"),
        Some("/next") => ok("there"),
        Some("/away") => status(301, "Location: http://other.invalid/\r\n"),
        Some("/loop") => status(307, "Location: /loop\r\n"),
        Some("/odd") => status(302, "Location: ftp://127.0.0.1/\r\n"),
        _ => status(404, ""),
    })
    .await;
    let port = server.port;
    assert_eq!(
        get(port, "/start", &[("Host", "h")]).await,
        ProbeAttemptResult::Success("there".into())
    );
    assert!(server.heads()[1].contains("Host: h\r\n"));
    let away = get(port, "/away", &[]).await;
    let expected = "Probe terminated redirects, Response body: body";
    assert_eq!(away, ProbeAttemptResult::Warning(expected.into()));
    let before = server.heads().len();
    let round = get(port, "/loop", &[]).await;
    let expected = format!("Get \"http://127.0.0.1:{port}/loop\": stopped after 10 redirects");
    assert_eq!(round, ProbeAttemptResult::Failure(expected));
    assert_eq!(server.heads().len() - before, 11);
    let odd = get(port, "/odd", &[]).await;
    assert!(
        matches!(&odd, ProbeAttemptResult::Failure(reason) if reason.contains("unsupported protocol"))
    );
}

#[tokio::test]
async fn another_port_of_the_host_is_the_same_host() {
    let other = ScriptedProbeServer::start(|_| ok("other port")).await;
    let port = other.port;
    let server = ScriptedProbeServer::start(move |_| {
        status(302, &format!("Location: http://127.0.0.1:{port}/\r\n"))
    })
    .await;
    let answer = get(server.port, "/", &[("Host", "h")]).await;
    assert_eq!(answer, ProbeAttemptResult::Success("other port".into()));
    assert!(other.heads()[0].contains(&format!("Host: 127.0.0.1:{port}\r\n")));
}

#[tokio::test]
async fn a_large_body_is_truncated() {
    let server = ScriptedProbeServer::start(|_| ok(&"x".repeat(20_000))).await;
    let ProbeAttemptResult::Success(body) = get(server.port, "/", &[]).await else { panic!() };
    assert_eq!(body.len(), 10_240);
}

#[tokio::test]
async fn http_probe_failures_are_worded_as_gos() {
    let server = ScriptedProbeServer::start(|_| Vec::new()).await;
    let url = format!("http://127.0.0.1:{}/", server.port);
    let expected = ProbeAttemptResult::Failure(format!("Get \"{url}\": EOF"));
    assert_eq!(get(server.port, "/", &[]).await, expected);
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let end = format!("127.0.0.1:{port}");
    let expected = format!("Get \"http://{end}/x\": dial tcp {end}: connect: connection refused");
    assert_eq!(get(port, "/x", &[]).await, ProbeAttemptResult::Failure(expected));
}

#[tokio::test]
async fn a_hanging_http_server_fails_the_probe_at_its_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let request = HttpProbe {
        secure: false,
        host: "127.0.0.1",
        port,
        path: "/",
        headers: &[],
        user_agent: "x",
    };
    let late = attempt(&request, None, Duration::from_millis(200)).await;
    let expected = format!(
        "Get \"http://127.0.0.1:{port}/\": context deadline exceeded \
         (Client.Timeout exceeded while awaiting headers)"
    );
    assert_eq!(late, ProbeAttemptResult::Failure(expected));
    drop(listener);
}

#[tokio::test]
async fn any_certificate_is_taken_and_plain_http_is_named() {
    let made = rcgen::generate_simple_self_signed(vec!["other.example".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut buffer = [0; 2048];
        let _read = stream.read(&mut buffer).await;
        let _sent = stream.write_all(&ok("secure")).await;
        let _done = stream.shutdown().await;
    });
    let tls = http_once::insecure_tls_config().ok();
    let request = |port: u16| HttpProbe {
        secure: true,
        host: "127.0.0.1",
        port,
        path: "/",
        headers: &[],
        user_agent: "x",
    };
    let limit = Duration::from_secs(10);
    let answer = attempt(&request(port), tls.clone(), limit).await;
    assert_eq!(answer, ProbeAttemptResult::Success("secure".into()));
    served.await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 2048];
        let _read = stream.read(&mut buffer).await;
        let _sent = stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await;
        let _rest = stream.read(&mut buffer).await;
    });
    let answer = attempt(&request(port), tls, limit).await;
    let expected = format!(
        "Get \"https://127.0.0.1:{port}/\": http: server gave HTTP response to HTTPS client"
    );
    assert_eq!(answer, ProbeAttemptResult::PlainHttp(expected));
    served.await.unwrap();
}
