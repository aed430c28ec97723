//! When the server listens, and the limits of streams and of connections, on real ones.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// Two ends of a connection: the server's and a client's.
pub(super) async fn pair() -> (upgrade::Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let stream = connection::Connection::Tcp(stream);
    (upgrade::Socket { stream, early: bytes::Bytes::new() }, client)
}

/// The same for a passed connection.
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

/// An upgraded connection keeps its permit until its stream ends.
#[tokio::test]
async fn a_stream_keeps_its_place_until_its_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let places = Arc::new(Semaphore::new(1));
    let answer = move |request: Request<Incoming>, pending: &Pending| {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            return upgrade::refusal(503, "full");
        };
        assert!(pending.leave());
        upgrade::begin(true, request, place, |_, socket| async move {
            // Data that came with the request is kept.
            assert_eq!(&socket.early[..], b"more");
            let (mut reading, _writing) = socket.stream.into_split();
            let _ = reading.read(&mut [0]).await;
        })
    };
    let server = tokio::spawn(accept(listener, PendingConnections::new(1), answer));
    let mut first = ask(address).await;
    assert!(answered(&mut first).await.starts_with("HTTP/1.1 101"));
    let mut second = ask(address).await;
    assert!(answered(&mut second).await.starts_with("HTTP/1.1 503"), "beside the only one allowed");
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(LONG, second.read_to_end(&mut rest)).await;
    closed.expect("a connection after its only request").unwrap();
    drop(first);
    let begun = std::time::Instant::now();
    loop {
        let head = answered(&mut ask(address).await).await;
        if head.starts_with("HTTP/1.1 101") {
            break;
        }
        assert!(begun.elapsed() < LONG, "{head}");
    }
    server.abort();
}

/// A runtime without requests for a URL has no port.
#[tokio::test]
async fn nothing_listens_before_somebody_asks_for_an_address() {
    // No other test has this address, so the port stays free meanwhile.
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
    // A failure to listen is an error, and a later request tries again.
    let others = Streams::new(free);
    let refused = others.address(|_| ()).await.unwrap_err();
    assert!(refused.text.contains(&format!("listening for streams on {free}")), "{refused}");
    drop(listeners);
    others.address(|_| ()).await.expect("it is free now");
    drop(place);
}

/// Streams on passed connections count like those with a URL.
#[tokio::test]
async fn streams_without_an_address_have_places_too() {
    let streams = Streams::new("127.0.0.1:0".parse().unwrap());
    let mut places: Vec<_> = (0..STREAMS).map(|_| streams.place().unwrap()).collect();
    let refused = streams.place().unwrap_err();
    assert_eq!(refused.code, Code::ResourceExhausted);
    assert!(refused.text.contains("512"), "{refused}");
    assert!(streams.places.clone().try_acquire_owned().is_err(), "a place for an address");
    places.pop();
    assert!(streams.place().is_ok(), "one has ended");
}

/// Connections that never send a whole request take no permit, and do not delay a client that does,
/// however many they are and however fast they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_sent_requests_keep_no_client_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let places = Arc::new(Semaphore::new(1));
    let answer = move |request: Request<Incoming>, pending: &Pending| {
        let place = Arc::clone(&places).try_acquire_owned().expect("no other stream");
        assert!(pending.leave());
        upgrade::begin(true, request, place, |_, _| async {})
    };
    let server = tokio::spawn(accept(listener, PendingConnections::new(PENDING), answer));
    let half = async move || {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /exec/abc HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        client
    };
    let mut held = std::collections::VecDeque::new();
    for _ in 0..2 * PENDING {
        held.push_back(half().await);
    }
    let begun = std::time::Instant::now();
    let head = tokio::time::timeout(LONG, async { answered(&mut ask(address).await).await }).await;
    assert!(head.expect("an answer").starts_with("HTTP/1.1 101"));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // The oldest are closed at once, the others at their timeout.
    let mut oldest = held.pop_front().unwrap();
    let mut newest = held.pop_back().unwrap();
    let ended = async |client: &mut TcpStream| client.read(&mut [0]).await.is_ok_and(|n| n == 0);
    assert!(tokio::time::timeout(Duration::from_secs(1), ended(&mut oldest)).await.is_ok());
    assert!(tokio::time::timeout(Duration::from_millis(100), ended(&mut newest)).await.is_err());
    assert!(tokio::time::timeout(2 * REQUEST, ended(&mut newest)).await.is_ok());
    // During a flood, too.
    let flood = tokio::spawn(async move {
        loop {
            held.push_back(half().await);
            held.pop_front();
        }
    });
    for _ in 0..20 {
        let head = tokio::time::timeout(LONG, async { answered(&mut ask(address).await).await });
        assert!(head.await.expect("an answer").starts_with("HTTP/1.1 101"));
        // The permit is released shortly after.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    flood.abort();
    server.abort();
}
