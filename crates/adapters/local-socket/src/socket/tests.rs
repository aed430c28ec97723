//! A socket in a folder of its own, asked over the wire.

use super::*;
use crate::reply::tests::OnePod;
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
    // Credentials of a connection cannot be forged in a test without another user; the rule itself
    // is shown by asking for an owner that nobody here is.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = one.peer_cred().unwrap().uid();
        assert!(may_ask(&one, own).is_ok());
        assert_eq!(may_ask(&one, own + 1).is_ok(), own == 0);
    });
}
