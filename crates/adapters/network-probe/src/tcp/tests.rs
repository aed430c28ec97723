//! Ports that listen, that do not, and that never answer.

use super::*;
use crate::scripted::TimeWaitSockets;

#[tokio::test]
async fn a_listening_port_succeeds_and_a_closed_one_fails() {
    let waiting = TimeWaitSockets::now();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let limit = Duration::from_secs(5);
    for _ in 0..10 {
        assert_eq!(
            attempt("127.0.0.1", port, limit).await,
            ProbeAttemptResult::Success(String::new())
        );
        let _accepted = listener.accept().await.unwrap();
    }
    assert_eq!(waiting.since(port), 0);
    drop(listener);
    let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(attempt("127.0.0.1", port, limit).await, ProbeAttemptResult::Failure(refused));
}

#[tokio::test]
async fn an_unanswered_connect_fails_at_its_timeout() {
    // A full accept queue: further connections are not answered.
    let listener = rustix_listener();
    let port = listener.local_addr().unwrap().port();
    let mut held = Vec::new();
    let limit = Duration::from_millis(300);
    let late = loop {
        match attempt("127.0.0.1", port, limit).await {
            ProbeAttemptResult::Success(_) => {
                let stream = tokio::net::TcpStream::connect(("127.0.0.1", port));
                held.push(tokio::time::timeout(limit, stream).await);
                assert!(held.len() < 50, "the queue never fills");
            }
            late => break late,
        }
    };
    let expected = format!("dial tcp 127.0.0.1:{port}: i/o timeout");
    assert_eq!(late, ProbeAttemptResult::Failure(expected));
}

fn rustix_listener() -> std::net::TcpListener {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.listen(1).unwrap().into_std().unwrap()
}

#[test]
fn host_and_port_are_joined_as_go_joins_them() {
    assert_eq!(join_host_port("::1", 80), "[::1]:80");
    assert_eq!(join_host_port("10.0.0.1", 80), "10.0.0.1:80");
}
