//! When the server listens, and the limits of streams and of connections, on real ones.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// Two ends of a connection: the server's and a client's.
pub(super) async fn pair() -> (upgrade::UpgradedSocket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let stream = connection::StreamSocket::Tcp(stream);
    (upgrade::UpgradedSocket { stream, early: bytes::Bytes::new() }, client)
}

/// The same for a passed connection.
pub(super) fn given_pair() -> (upgrade::UpgradedSocket, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    let server = server.into_std().unwrap();
    (upgrade::UpgradedSocket::given(server.into(), Vec::new()).unwrap(), client)
}

async fn connect(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    let request =
        "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\nmore";
    client.write_all(request.as_bytes()).await.unwrap();
    client
}

/// The head of the answer.
async fn read_response_head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// An upgraded connection keeps its permit until its stream ends.
#[tokio::test]
async fn a_stream_keeps_its_slot_until_it_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let slots = Arc::new(Semaphore::new(1));
    let respond = move |request: Request<Incoming>, pending: &PendingConnection| {
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            return upgrade::error_response(503, "full");
        };
        assert!(pending.take_out());
        upgrade::begin(true, request, slot, |_, socket| async move {
            // Data that came with the request is kept.
            assert_eq!(&socket.early[..], b"more");
            let (mut reading, _writing) = socket.stream.into_split();
            let _ = reading.read(&mut [0]).await;
        })
    };
    let server = tokio::spawn(accept(listener, PendingConnections::new(1), respond));
    let mut first = connect(address).await;
    assert!(read_response_head(&mut first).await.starts_with("HTTP/1.1 101"));
    let mut second = connect(address).await;
    assert!(
        read_response_head(&mut second).await.starts_with("HTTP/1.1 503"),
        "beside the only one allowed"
    );
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(LONG, second.read_to_end(&mut rest)).await;
    closed.expect("a connection after its only request").unwrap();
    drop(first);
    let begun = std::time::Instant::now();
    loop {
        let head = read_response_head(&mut connect(address).await).await;
        if head.starts_with("HTTP/1.1 101") {
            break;
        }
        assert!(begun.elapsed() < LONG, "{head}");
    }
    server.abort();
}

/// A runtime without requests for a URL has no port.
#[tokio::test]
async fn no_socket_listens_before_an_address_is_requested() {
    // No other test has this address, so the port stays free meanwhile.
    let free = TcpListener::bind("127.45.1.7:0").await.unwrap().local_addr().unwrap();
    let streams = StreamingServer::new(free);
    let slot = streams.slot().unwrap();
    TcpStream::connect(free).await.expect_err("somebody listens");
    let mut listeners = Vec::new();
    let first = streams.address(|listener| listeners.push(listener)).await.unwrap();
    assert_eq!(first, free);
    let again = streams.clone().address(|_| panic!("a second listener")).await.unwrap();
    assert_eq!(again, first);
    TcpStream::connect(first).await.expect("one listens");
    // A failure to listen is an error, and a later request tries again.
    let others = StreamingServer::new(free);
    let refused = others.address(|_| ()).await.unwrap_err();
    assert!(refused.text.contains(&format!("listening for streams on {free}")), "{refused}");
    drop(listeners);
    others.address(|_| ()).await.expect("it is free now");
    drop(slot);
}

/// Streams on passed connections count like those with a URL.
#[tokio::test]
async fn streams_without_an_address_count_towards_the_limit() {
    let streams = StreamingServer::new("127.0.0.1:0".parse().unwrap());
    let mut slots: Vec<_> = (0..MAX_STREAMS).map(|_| streams.slot().unwrap()).collect();
    let refused = streams.slot().unwrap_err();
    assert_eq!(refused.code, Code::ResourceExhausted);
    assert!(refused.text.contains("512"), "{refused}");
    assert!(streams.slots.clone().try_acquire_owned().is_err(), "a place for an address");
    slots.pop();
    assert!(streams.slot().is_ok(), "one has ended");
}

/// Connections that never send a whole request take no permit, and do not delay a client that does,
/// however many they are and however fast they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_requests_do_not_delay_other_clients() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let slots = Arc::new(Semaphore::new(1));
    let respond = move |request: Request<Incoming>, pending: &PendingConnection| {
        let slot = Arc::clone(&slots).try_acquire_owned().expect("no other stream");
        assert!(pending.take_out());
        upgrade::begin(true, request, slot, |_, _| async {})
    };
    let server = tokio::spawn(accept(listener, PendingConnections::new(MAX_PENDING), respond));
    let half = async move || {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /exec/abc HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        client
    };
    let mut held = std::collections::VecDeque::new();
    for _ in 0..2 * MAX_PENDING {
        held.push_back(half().await);
    }
    let begun = std::time::Instant::now();
    let head =
        tokio::time::timeout(LONG, async { read_response_head(&mut connect(address).await).await })
            .await;
    assert!(head.expect("an answer").starts_with("HTTP/1.1 101"));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // The oldest are closed at once, the others at their timeout.
    let mut oldest = held.pop_front().unwrap();
    let mut newest = held.pop_back().unwrap();
    let ended = async |client: &mut TcpStream| client.read(&mut [0]).await.is_ok_and(|n| n == 0);
    assert!(tokio::time::timeout(Duration::from_secs(1), ended(&mut oldest)).await.is_ok());
    assert!(tokio::time::timeout(Duration::from_millis(100), ended(&mut newest)).await.is_err());
    assert!(tokio::time::timeout(2 * REQUEST_TIMEOUT, ended(&mut newest)).await.is_ok());
    // During a flood, too.
    let flood = tokio::spawn(async move {
        loop {
            held.push_back(half().await);
            held.pop_front();
        }
    });
    for _ in 0..20 {
        let head = tokio::time::timeout(LONG, async {
            read_response_head(&mut connect(address).await).await
        });
        assert!(head.await.expect("an answer").starts_with("HTTP/1.1 101"));
        // The permit is released shortly after.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    flood.abort();
    server.abort();
}
