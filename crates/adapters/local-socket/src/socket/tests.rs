//! A socket in a directory of its own, with requests over the wire.

use super::*;
use crate::reply::tests::{OnePod, OneRuntime};
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
async fn it_answers_its_own_user_and_takes_the_place_of_a_dead_socket_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run/agent.sock");
    let socket = LocalSocket::new(path.clone());
    for life in ["first", "after a crash"] {
        tokio::select! {
            why = socket.serve(Arc::new(OnePod)) => panic!("{life}: {why}"),
            text = ask_until_answered(&path) => {
                assert!(text.starts_with("HTTP/1.1 200"), "{text}");
                assert!(text.contains("\"nodeName\":\"n\""), "{text}");
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
                let second = LocalSocket::new(path.clone());
                let why = tokio::select! {
                    why = second.serve(Arc::new(OnePod)) => why,
                    why = socket.serve(Arc::new(OnePod)) => why,
                };
                assert!(why.contains("another agent answers"), "{why}");
            }
        }
        assert!(path.exists(), "a dead socket stays behind");
    }
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    std::fs::write(&path, "mine").unwrap();
    let why = LocalSocket::new(path.clone()).serve(Arc::new(OnePod)).await;
    assert!(why.contains("is no socket"), "{why}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn only_root_and_the_own_user_may_ask() {
    // Credentials of a connection cannot be forged in a test without another user; the check is
    // tested by requiring an owner that is not the current user.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = one.peer_cred().unwrap().uid();
        assert!(may_ask(&one, own).is_ok());
        assert_eq!(may_ask(&one, own + 1).is_ok(), own == 0);
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
async fn until(stream: &mut UnixStream, words: &str) -> String {
    let mut said = Vec::new();
    while !said.ends_with(words.as_bytes()) {
        let byte = stream.read_u8().await;
        said.push(byte.unwrap_or_else(|error| panic!("{error} after {said:?}")));
    }
    String::from_utf8(said).unwrap()
}

#[tokio::test]
async fn a_stream_goes_on_where_it_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let socket = LocalSocket::new(path.clone()).with_runtime(Arc::new(OneRuntime));
    let asking = async {
        let mut stream = offer(&path, "/v1/containers/c/exec", "early").await;
        let head = until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(head.to_lowercase().contains("upgrade: spdy/3.1"), "{head}");
        until(&mut stream, "exec c a false: early").await;
        stream.write_all(b"later").await.unwrap();
        until(&mut stream, "later").await;
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
        why = socket.serve(Arc::new(OnePod)) => panic!("{why}"),
        () = asking => {}
    }
}

/// Streams take no request slots: however many there are, requests are answered.
#[tokio::test]
async fn streams_take_no_place_of_questions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let socket = LocalSocket::new(path.clone()).with_runtime(Arc::new(OneRuntime));
    let asking = async {
        let mut streams = Vec::new();
        for _ in 0..2 * MOST_CONNECTIONS {
            let mut stream = offer(&path, "/v1/containers/c/exec", "").await;
            until(&mut stream, "exec c a false: ").await;
            streams.push(stream);
        }
        let text = ask(&path).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        for mut stream in streams {
            stream.write_all(b"still here").await.unwrap();
            until(&mut stream, "still here").await;
        }
    };
    tokio::select! {
        why = socket.serve(Arc::new(OnePod)) => panic!("{why}"),
        () = asking => {}
    }
}

/// If there is no stream on the connection, the answer is the usual one.
#[tokio::test]
async fn an_offered_connection_may_be_declined() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let socket = LocalSocket::new(path.clone()).with_runtime(Arc::new(OneRuntime));
    let asking = async {
        for (asked, status, words) in [
            ("/v1/pods/u/forward", "200", r#""url":"forward u""#),
            ("/v1/containers/c/attach", "503", "it does not run"),
            ("/v1/pods/u/stop", "202", r#""uid":"u""#),
            ("/v1/containers/c/other", "404", "there is no"),
        ] {
            let mut stream = offer(&path, asked, "").await;
            let text = until(&mut stream, "}").await;
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{asked}: {text}");
            assert!(text.contains(words), "{asked}: {text}");
        }
    };
    tokio::select! {
        why = socket.serve(Arc::new(OnePod)) => panic!("{why}"),
        () = asking => {}
    }
}

/// A client without access gets no stream either.
#[tokio::test]
async fn strangers_get_no_stream() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let desk = Desk { api: Arc::new(OnePod), runtime: Some(Arc::new(OneRuntime)) };
    let places = Places::default();
    let taken = places.questions.acquire_owned().await.unwrap();
    let held = Arc::new(Mutex::new(Held::Question { _place: taken }));
    let place = Place { held, waiting: places.waiting };
    let serving = tokio::spawn(serve(far, Err("user 7 may not".to_owned()), desk, place));
    near.write_all(
        b"POST /v1/containers/c/exec HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\n\
          upgrade: SPDY/3.1\r\ncontent-length: 2\r\n\r\n{}",
    )
    .await
    .unwrap();
    let text = until(&mut near, "}").await;
    assert!(text.starts_with("HTTP/1.1 403") && text.contains("user 7 may not"), "{text}");
    drop(near);
    assert!(serving.await.unwrap().is_none());
}

/// Waiting connections take no request slots, and their number is limited.
#[tokio::test]
async fn those_who_wait_take_no_place_of_questions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let socket = LocalSocket::new(path.clone());
    let asking = async {
        let mut waiting = Vec::new();
        ask_until_answered(&path).await;
        for _ in 0..MOST_WAITING {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            stream.write_all(b"GET /v1/changes/77 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            waiting.push(stream);
        }
        let text = tokio::time::timeout(Duration::from_secs(5), ask(&path)).await;
        let text = text.expect("those who wait keep others out").unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let beyond = async {
            loop {
                let mut stream = UnixStream::connect(&path).await.unwrap();
                let request = b"GET /v1/changes/77 HTTP/1.1\r\nhost: x\r\n\r\n";
                stream.write_all(request).await.unwrap();
                let said = until(&mut stream, "}");
                // An earlier connection may not have been read yet: then this one waits too.
                match tokio::time::timeout(Duration::from_millis(500), said).await {
                    Ok(text) => return text,
                    Err(_) => waiting.push(stream),
                }
            }
        };
        let text = tokio::time::timeout(Duration::from_secs(20), beyond).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 503") && text.contains("others wait"), "{text}");
    };
    tokio::select! {
        why = socket.serve(Arc::new(OnePod)) => panic!("{why}"),
        () = asking => {}
    }
}
