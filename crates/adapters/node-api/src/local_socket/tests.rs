//! The local socket: which peers may connect, and the responses.

use super::*;
use ports::PortFuture;

struct Echo;

impl Pages for Echo {
    fn answer<'a>(&'a self, request: &'a PageRequest) -> PortFuture<'a, Page> {
        Box::pin(async move { Page::text(200, format!("you asked for {}", request.path)) })
    }
}

#[tokio::test]
async fn the_owner_gets_pages_and_the_socket_goes_with_its_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run/a.sock");
    let socket = PageSocket::listen(&path).await.expect("listens");
    let mode = std::fs::metadata(&path).expect("socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = PageSocket::listen(&path).await;
    assert!(second.is_err_and(|error| error.to_string().contains("another process listens there")));
    let server = tokio::spawn(socket.serve(Arc::new(Echo)));
    let answer = request_page(&path, "/explain/node-1.example").await.expect("a page");
    assert_eq!(answer, (200, "you asked for /explain/node-1.example".to_owned()));
    assert!(request_page(&path, "/a b").await.is_err());
    assert!(request_page(&path, "/a\r\nx: y").await.is_err());
    server.abort();
    let _ = server.await;
    assert!(!path.exists());
    let error = request_page(&path, "/").await.unwrap_err().to_string();
    assert!(error.contains("a.sock"), "{error}");
}

#[tokio::test]
async fn a_dead_socket_is_replaced_and_a_regular_file_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("left"));
    assert!(path.exists());
    assert!(PageSocket::listen(&path).await.is_ok());
    std::fs::write(&path, "").expect("file");
    let rejected = PageSocket::listen(&path).await;
    assert!(rejected.is_err_and(|error| error.to_string().contains("not a socket")));
}
