//! Scripted health servers over HTTP/2, and endpoints that are none.

use hyper::header::HeaderValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::scripted::TimeWaitSockets;

/// What a scripted server answers with.
#[derive(Debug, Clone)]
struct GrpcScript {
    http: u16,
    message: Option<Vec<u8>>,
    /// In trailers, or in the head if there is no message.
    status: Option<(&'static str, &'static str)>,
}

async fn serve(script: GrpcScript) -> (u16, tokio::task::JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        let (head, mut body) = request.into_parts();
        let asked = tokio::spawn(async move { body.data().await.unwrap().unwrap().to_vec() });
        let mut response = Response::builder().status(script.http);
        let status = |headers: &mut HeaderMap| {
            if let Some((code, message)) = script.status {
                headers.insert("grpc-status", HeaderValue::from_static(code));
                headers.insert("grpc-message", HeaderValue::from_static(message));
            }
        };
        if script.message.is_none() {
            status(response.headers_mut().unwrap());
        }
        let ends = script.message.is_none();
        let mut stream = respond.send_response(response.body(()).unwrap(), ends).unwrap();
        if let Some(message) = script.message {
            let last = script.status.is_none();
            stream.send_data(Bytes::from(message), last).unwrap();
            if !last {
                let mut trailers = HeaderMap::new();
                status(&mut trailers);
                stream.send_trailers(trailers).unwrap();
            }
        }
        while connection.accept().await.is_some() {}
        let agent = head.headers["user-agent"].to_str().unwrap();
        (format!("{} {agent}", head.uri), asked.await.unwrap())
    });
    (port, served)
}

async fn check_at(port: u16, limit: Duration) -> ProbeAttemptResult {
    let probe =
        GrpcProbe { host: "127.0.0.1", port, service: "svc", user_agent: "kube-probe/1.36" };
    attempt(&probe, limit).await
}

const LIMIT: Duration = Duration::from_secs(5);

fn health(status: u8) -> Option<Vec<u8>> {
    Some(vec![0, 0, 0, 0, 2, 8, status])
}

#[tokio::test]
async fn a_serving_service_is_a_success() {
    let waiting = TimeWaitSockets::now();
    let good = GrpcScript { http: 200, message: health(1), status: Some(("0", "")) };
    let (port, served) = serve(good).await;
    let success = ProbeAttemptResult::Success("service healthy".to_owned());
    assert_eq!(check_at(port, LIMIT).await, success);
    let (head, asked) = served.await.unwrap();
    let url = format!("http://127.0.0.1:{port}/grpc.health.v1.Health/Check");
    assert_eq!(head, format!("{url} kube-probe/1.36"));
    assert_eq!(asked, [0, 0, 0, 0, 5, 0x0a, 3, b's', b'v', b'c']);
    assert_eq!(waiting.since(port), 0);
}

#[tokio::test]
async fn every_other_grpc_result_fails_with_upstreams_message() {
    let ok = Some(("0", ""));
    let rows = [
        (200, health(2), ok, "service unhealthy (responded with \"NOT_SERVING\")"),
        (200, health(0), ok, "service unhealthy (responded with \"UNKNOWN\")"),
        (200, health(9), ok, "service unhealthy (responded with \"9\")"),
        (
            200,
            None,
            Some(("12", "no%20such")),
            "error: this server does not implement the grpc health protocol \
             (grpc.health.v1.Health): no such",
        ),
        (
            200,
            None,
            Some(("5", "unknown service")),
            "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
        ),
        (200, health(1), Some(("4", "")), "timeout: health rpc did not complete within 5s"),
        (
            404,
            None,
            None,
            "error: this server does not implement the grpc health protocol \
             (grpc.health.v1.Health): unexpected HTTP status code received from server: \
             404 Not Found",
        ),
        (
            200,
            health(1),
            None,
            "error: health rpc probe failed: rpc error: code = Internal desc = server closed the \
             stream without sending trailers",
        ),
        (
            200,
            Some(vec![0, 0, 0]),
            ok,
            "error: health rpc probe failed: rpc error: code = Internal desc = an answer that is \
             cut off",
        ),
    ];
    for (http, message, status, expected) in rows {
        let (port, served) = serve(GrpcScript { http, message, status }).await;
        assert_eq!(check_at(port, LIMIT).await, ProbeAttemptResult::Failure(expected.to_owned()));
        served.await.unwrap();
    }
}

#[tokio::test]
async fn a_non_grpc_server_is_retried_until_the_timeout() {
    let limit = Duration::from_millis(300);
    // A port without a listener.
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let unreachable_answer = |port: u16| {
        ProbeAttemptResult::Failure(format!(
            "timeout: failed to connect service \"127.0.0.1:{port}\" within 300ms: \
             context deadline exceeded"
        ))
    };
    assert_eq!(check_at(port, limit).await, unreachable_answer(port));
    // Another protocol.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _sent = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    assert_eq!(check_at(port, limit).await, unreachable_answer(port));
    served.abort();
    // Silence.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 4096];
        while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    });
    assert_eq!(check_at(port, limit).await, unreachable_answer(port));
    served.await.unwrap();
}

#[tokio::test]
async fn an_unanswered_grpc_call_differs_from_an_unreachable_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut held = Vec::new();
        while let Some(Ok(request)) = connection.accept().await {
            held.push(request);
        }
    });
    let late = check_at(port, Duration::from_secs(3)).await;
    let expected = "timeout: health rpc did not complete within 3s";
    assert_eq!(late, ProbeAttemptResult::Failure(expected.to_owned()));
    served.await.unwrap();
}

#[tokio::test]
async fn a_server_that_comes_up_meanwhile_is_reached() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let coming = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_, mut respond) = connection.accept().await.unwrap().unwrap();
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        stream.send_data(Bytes::from_static(&[0, 0, 0, 0, 2, 8, 1]), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        stream.send_trailers(trailers).unwrap();
        while connection.accept().await.is_some() {}
    });
    let success = ProbeAttemptResult::Success("service healthy".to_owned());
    assert_eq!(check_at(port, Duration::from_secs(10)).await, success);
    coming.await.unwrap();
}

#[test]
fn grpc_messages_are_percent_decoded_and_invalid_escapes_stay() {
    for (coded, message) in [
        ("no%20such", "no such"),
        ("%e2%82%AC", "\u{20ac}"),
        ("%ff", "\u{fffd}"),
        ("%+5", "%+5"),
        ("%-5", "%-5"),
        ("100%", "100%"),
        ("%4", "%4"),
        ("%zz%41", "%zzA"),
        ("a+b", "a+b"),
    ] {
        assert_eq!(plain(coded.as_bytes()), message, "{coded}");
    }
}
