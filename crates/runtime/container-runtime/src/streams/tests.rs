//! The limit of connections, on real ones.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// Two ends of a connection: the server's as streams have it, and a client's.
pub(super) async fn pair() -> (upgrade::Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    (upgrade::Socket { stream, early: bytes::Bytes::new() }, client)
}

async fn ask(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    let request =
        "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\nmore";
    client.write_all(request.as_bytes()).await.unwrap();
    client
}

/// The head of the answer.
async fn answered(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// An upgraded connection is a connection still: its place is free when its stream is over.
#[tokio::test]
async fn a_stream_keeps_its_place_until_its_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(accept(listener, 1, |request, place| {
        upgrade::begin(true, request, place, |_, mut socket| async move {
            // What came with the request is not lost.
            assert_eq!(&socket.early[..], b"more");
            let _ = socket.stream.read(&mut [0]).await;
        })
    }));
    let mut first = ask(address).await;
    assert!(answered(&mut first).await.starts_with("HTTP/1.1 101"));
    let mut second = ask(address).await;
    let early = tokio::time::timeout(Duration::from_millis(300), second.read_u8()).await;
    assert!(early.is_err(), "a second stream runs beside the only one allowed");
    drop(first);
    let head = tokio::time::timeout(LONG, answered(&mut second)).await.expect("an answer");
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    server.abort();
}
