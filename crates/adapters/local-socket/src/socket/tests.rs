//! A socket in a directory of its own, with requests over the wire.

use super::*;
use crate::reply::tests::{OnePodApi, StreamRuntime};
use std::os::unix::fs::PermissionsExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn ask(path: &std::path::Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path).await?;
    stream.write_all(b"GET /v1/pods HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

async fn ask_until_answered(path: &std::path::Path) -> String {
    loop {
        match ask(path).await {
            Ok(text) => return text,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

#[tokio::test]
async fn the_socket_serves_its_own_user_and_replaces_only_a_dead_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/agent.sock");
    let socket = AgentSocket::new(path.clone());
    for round in ["first", "after a crash"] {
        tokio::select! {
            reason = socket.serve(Arc::new(OnePodApi)) => panic!("{round}: {reason}"),
            text = ask_until_answered(&path) => {
                assert!(text.starts_with("HTTP/1.1 200"), "{text}");
                assert!(text.contains("\"nodeName\":\"n\""), "{text}");
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
                let second = AgentSocket::new(path.clone());
                let reason = tokio::select! {
                    reason = second.serve(Arc::new(OnePodApi)) => reason,
                    reason = socket.serve(Arc::new(OnePodApi)) => reason,
                };
                assert!(reason.contains("another agent answers"), "{reason}");
            }
        }
        assert!(path.exists(), "a dead socket stays behind");
    }
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    std::fs::write(&path, "mine").unwrap();
    let reason = AgentSocket::new(path.clone()).serve(Arc::new(OnePodApi)).await;
    assert!(reason.contains("is no socket"), "{reason}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn only_root_and_the_agents_user_are_accepted() {
    // Credentials of a connection cannot be forged in a test without another user; the check is
    // tested by requiring an owner that is not the current user.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (one, _other) = UnixStream::pair().unwrap();
        let own_uid = one.peer_cred().unwrap().uid();
        assert!(check_peer(&one, own_uid).is_ok());
        assert_eq!(check_peer(&one, own_uid + 1).is_ok(), own_uid == 0);
    });
}

/// Requests `path`, offers the connection, and sends more data at once.
async fn offer(socket: &std::path::Path, path: &str, more: &str) -> UnixStream {
    let mut stream = loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => break stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let body = r#"{"command": ["a"]}"#;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: spdy/3.1\r\n\
         content-length: {}\r\n\r\n{body}{more}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads until these words have come.
async fn read_until(stream: &mut UnixStream, expected: &str) -> String {
    let mut received = Vec::new();
    while !received.ends_with(expected.as_bytes()) {
        let byte = stream.read_u8().await;
        received.push(byte.unwrap_or_else(|error| panic!("{error} after {received:?}")));
    }
    String::from_utf8(received).unwrap()
}

#[tokio::test]
async fn a_stream_continues_on_the_connection_of_its_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let socket = AgentSocket::new(path.clone()).with_runtime(Arc::new(StreamRuntime));
    let asking = async {
        let mut stream = offer(&path, "/v1/containers/c/exec", "early").await;
        let head = read_until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(head.to_lowercase().contains("upgrade: spdy/3.1"), "{head}");
        read_until(&mut stream, "exec c a false: early").await;
        stream.write_all(b"later").await.unwrap();
        read_until(&mut stream, "later").await;
        // The end of one direction is not the other's.
        let (mut reading, mut writing) = stream.into_split();
        let sending = async {
            writing.write_all(&vec![b'x'; 3 << 20]).await.unwrap();
            writing.shutdown().await.unwrap();
        };
        let mut rest = Vec::new();
        let ((), read) = tokio::join!(sending, reading.read_to_end(&mut rest));
        assert_eq!(read.unwrap(), 3 << 20);
    };
    tokio::select! {
        reason = socket.serve(Arc::new(OnePodApi)) => panic!("{reason}"),
        () = asking => {}
    }
}

/// Streams take no request slots: however many there are, requests are answered.
#[tokio::test]
async fn streams_take_no_permit_of_requests() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let socket = AgentSocket::new(path.clone()).with_runtime(Arc::new(StreamRuntime));
    let asking = async {
        let mut streams = Vec::new();
        for _ in 0..2 * MAX_CONNECTIONS {
            let mut stream = offer(&path, "/v1/containers/c/exec", "").await;
            read_until(&mut stream, "exec c a false: ").await;
            streams.push(stream);
        }
        let text = ask(&path).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        for mut stream in streams {
            stream.write_all(b"still here").await.unwrap();
            read_until(&mut stream, "still here").await;
        }
    };
    tokio::select! {
        reason = socket.serve(Arc::new(OnePodApi)) => panic!("{reason}"),
        () = asking => {}
    }
}

/// If there is no stream on the connection, the answer is the usual one.
#[tokio::test]
async fn an_upgrade_offer_may_be_answered_with_a_url() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let socket = AgentSocket::new(path.clone()).with_runtime(Arc::new(StreamRuntime));
    let asking = async {
        for (asked, status, expected) in [
            ("/v1/pods/u/forward", "200", r#""url":"forward u""#),
            ("/v1/containers/c/attach", "503", "it does not run"),
            ("/v1/pods/u/stop", "202", r#""uid":"u""#),
            ("/v1/containers/c/other", "404", "there is no"),
        ] {
            let mut stream = offer(&path, asked, "").await;
            let text = read_until(&mut stream, "}").await;
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{asked}: {text}");
            assert!(text.contains(expected), "{asked}: {text}");
        }
    };
    tokio::select! {
        reason = socket.serve(Arc::new(OnePodApi)) => panic!("{reason}"),
        () = asking => {}
    }
}

/// A client without access gets no stream either.
#[tokio::test]
async fn other_users_get_no_stream() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let router = RequestRouter { api: Arc::new(OnePodApi), runtime: Some(Arc::new(StreamRuntime)) };
    let permits = ConnectionPermits::default();
    let taken = permits.requests.acquire_owned().await.unwrap();
    let held_permit = Arc::new(Mutex::new(HeldPermit::Request { _permit: taken }));
    let permit = ConnectionPermit { held_permit, waiting: permits.waiting };
    let serving = tokio::spawn(serve(far, Err("user 7 may not".to_owned()), router, permit));
    near.write_all(
        b"POST /v1/containers/c/exec HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\n\
          upgrade: SPDY/3.1\r\ncontent-length: 2\r\n\r\n{}",
    )
    .await
    .unwrap();
    let text = read_until(&mut near, "}").await;
    assert!(text.starts_with("HTTP/1.1 403") && text.contains("user 7 may not"), "{text}");
    drop(near);
    assert!(serving.await.unwrap().is_none());
}

/// Waiting connections take no request slots, and their number is limited.
#[tokio::test]
async fn long_polls_take_no_permit_of_requests() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let socket = AgentSocket::new(path.clone());
    let asking = async {
        let mut waiting = Vec::new();
        ask_until_answered(&path).await;
        for _ in 0..MAX_LONG_POLLS {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            stream.write_all(b"GET /v1/changes/77 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            waiting.push(stream);
        }
        let text = tokio::time::timeout(Duration::from_secs(5), ask(&path)).await;
        let text = text.expect("those who wait keep others out").unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let extra_request = async {
            loop {
                let mut stream = UnixStream::connect(&path).await.unwrap();
                let request = b"GET /v1/changes/77 HTTP/1.1\r\nhost: x\r\n\r\n";
                stream.write_all(request).await.unwrap();
                let received = read_until(&mut stream, "}");
                // An earlier connection may not have been read yet: then this one waits too.
                match tokio::time::timeout(Duration::from_millis(500), received).await {
                    Ok(text) => return text,
                    Err(_) => waiting.push(stream),
                }
            }
        };
        let text = tokio::time::timeout(Duration::from_secs(20), extra_request).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 503") && text.contains("others wait"), "{text}");
    };
    tokio::select! {
        reason = socket.serve(Arc::new(OnePodApi)) => panic!("{reason}"),
        () = asking => {}
    }
}
