//! When a server listens, and the limit of connections, on real ones.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// Two ends of a connection: the server's as streams have it, and a client's.
pub(super) async fn pair() -> (upgrade::Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let stream = connection::Connection::Tcp(stream);
    (upgrade::Socket { stream, early: bytes::Bytes::new() }, client)
}

/// The same, without an address.
pub(super) fn given_pair() -> (upgrade::Socket, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    let server = server.into_std().unwrap();
    (upgrade::Socket::given(server.into(), Vec::new()).unwrap(), client)
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
    let server = tokio::spawn(accept(listener, Arc::new(Semaphore::new(1)), |request, place| {
        upgrade::begin(true, request, place, |_, socket| async move {
            // What came with the request is not lost.
            assert_eq!(&socket.early[..], b"more");
            let (mut reading, _writing) = socket.stream.into_split();
            let _ = reading.read(&mut [0]).await;
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

/// Whoever never asks for an address has no port.
#[tokio::test]
async fn nothing_listens_before_somebody_asks_for_an_address() {
    // No other test has this address, so nobody takes its port meanwhile.
    let free = TcpListener::bind("127.45.1.7:0").await.unwrap().local_addr().unwrap();
    let streams = Streams::new(free);
    let place = streams.place().unwrap();
    TcpStream::connect(free).await.expect_err("somebody listens");
    let mut listeners = Vec::new();
    let first = streams.address(|listener| listeners.push(listener)).await.unwrap();
    assert_eq!(first, free);
    let again = streams.clone().address(|_| panic!("a second listener")).await.unwrap();
    assert_eq!(again, first);
    TcpStream::connect(first).await.expect("one listens");
    // What cannot be listened on is said, and may be had later.
    let others = Streams::new(free);
    let refused = others.address(|_| ()).await.unwrap_err();
    assert!(refused.text.contains(&format!("listening for streams on {free}")), "{refused}");
    drop(listeners);
    others.address(|_| ()).await.expect("it is free now");
    drop(place);
}

/// Streams without an address are counted together with those that have one.
#[tokio::test]
async fn streams_without_an_address_have_places_too() {
    let streams = Streams::new("127.0.0.1:0".parse().unwrap());
    let mut places: Vec<_> = (0..CONNECTIONS).map(|_| streams.place().unwrap()).collect();
    let refused = streams.place().unwrap_err();
    assert_eq!(refused.code, Code::ResourceExhausted);
    assert!(refused.text.contains("512"), "{refused}");
    assert!(streams.places.clone().try_acquire_owned().is_err(), "a place for an address");
    places.pop();
    assert!(streams.place().is_ok(), "one has ended");
}
