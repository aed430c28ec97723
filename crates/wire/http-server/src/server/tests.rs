//! The server over streams in memory, in virtual time.

use super::*;
use crate::{BodySender, ReadBodyError, WorkPermits, read_body, stream_of};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use std::io;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

struct MemoryListener(tokio::sync::Mutex<mpsc::Receiver<DuplexStream>>);

impl ConnectionListener for MemoryListener {
    type Accepted = DuplexStream;
    type Stream = DuplexStream;
    type Peer = &'static str;

    async fn accept(&self) -> io::Result<DuplexStream> {
        match self.0.lock().await.recv().await {
            Some(stream) => Ok(stream),
            None => std::future::pending().await,
        }
    }

    async fn open(&self, accepted: DuplexStream) -> Option<(DuplexStream, &'static str)> {
        Some((accepted, "peer"))
    }
}

/// Answers by path.
struct PathHandler {
    followers: WorkPermits,
    senders: mpsc::Sender<BodySender>,
}

fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::whole(text.into()));
    *response.status_mut() = status;
    response
}

impl HttpRequestHandler<&'static str> for PathHandler {
    async fn answer(&self, peer: &&'static str, request: Request) -> HandlerResponse {
        match request.uri().path() {
            "/peer" => HandlerResponse::new(text(StatusCode::OK, *peer)),
            "/large" => HandlerResponse::new(Response::new(Body::whole(vec![b'x'; 1 << 20]))),
            "/slow" => {
                sleep(Duration::from_secs(3)).await;
                HandlerResponse::new(text(StatusCode::OK, "slow"))
            }
            "/never" => std::future::pending().await,
            "/body" => {
                let body = read_body(request.into_body(), 10, Duration::from_secs(5)).await;
                HandlerResponse::new(match body {
                    Ok(body) => Response::new(Body::whole(body)),
                    Err(error @ ReadBodyError::TooLarge { .. }) => {
                        text(StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
                    }
                    Err(error) => text(StatusCode::REQUEST_TIMEOUT, error.to_string()),
                })
            }
            "/follow" => {
                let Some(permit) = self.followers.try_acquire() else {
                    return HandlerResponse::new(text(StatusCode::SERVICE_UNAVAILABLE, "full"));
                };
                let (sender, body) = Body::parts();
                self.senders.send(sender).await.expect("the test listens");
                HandlerResponse::new(Response::new(body)).within(HOUR).with_permit(permit)
            }
            "/stream" => {
                let Some(permit) = self.followers.try_acquire() else {
                    return HandlerResponse::new(text(StatusCode::SERVICE_UNAVAILABLE, "full"));
                };
                let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                response.headers_mut().insert(UPGRADE, HeaderValue::from_static("echo"));
                let echo: UpgradeTask = Box::new(|upgraded| Box::pin(echo(upgraded)));
                HandlerResponse::upgrade(response, HOUR, echo).with_permit(permit)
            }
            _ => HandlerResponse::new(text(StatusCode::NOT_FOUND, "none")),
        }
    }
}

async fn echo(upgraded: hyper::upgrade::Upgraded) {
    let (mut stream, early) = stream_of::<DuplexStream>(upgraded).expect("a stream in memory");
    stream.write_all(&early).await.expect("writes");
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::io::copy(&mut read, &mut write).await.expect("copies");
}

struct ServerFixture {
    connections: mpsc::Sender<DuplexStream>,
    senders: mpsc::Receiver<BodySender>,
    end: Option<oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<()>,
}

fn limits() -> ServerLimits {
    ServerLimits { connections: 4, ..ServerLimits::default() }
}

impl ServerFixture {
    fn new(limits: ServerLimits) -> Self {
        let (connections, accepted) = mpsc::channel(64);
        let (senders, listened) = mpsc::channel(64);
        let (end, ended) = oneshot::channel();
        let paths = Arc::new(PathHandler { followers: WorkPermits::new(2), senders });
        let memory = MemoryListener(tokio::sync::Mutex::new(accepted));
        let server = tokio::spawn(serve(memory, paths, limits, async {
            let _ = ended.await;
        }));
        Self { connections, senders: listened, end: Some(end), server }
    }

    async fn connect(&self) -> DuplexStream {
        let (client, server) = duplex(16 * 1024);
        self.connections.send(server).await.expect("the server accepts");
        client
    }

    async fn requests(&self, path: &str) -> DuplexStream {
        let mut client = self.connect().await;
        ask(&mut client, path).await;
        client
    }
}

async fn ask(client: &mut DuplexStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    client.write_all(request.as_bytes()).await.expect("writes");
}

/// The status of one response and, by its length, the body.
async fn answer(client: &mut DuplexStream) -> (u16, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.expect("an answer"));
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let length = length.map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.expect("a body");
    let status = head[9..12].parse().expect("a status");
    (status, String::from_utf8(body).expect("text"))
}

/// What is left until the connection closes, and how long that took.
async fn rest(client: &mut DuplexStream) -> (Vec<u8>, Duration) {
    let before = Instant::now();
    let mut rest = Vec::new();
    // A broken connection counts as closed.
    let _ = client.read_to_end(&mut rest).await;
    (rest, before.elapsed())
}

fn near(elapsed: Duration, expected: Duration) -> bool {
    elapsed >= expected && elapsed < expected + Duration::from_secs(1)
}

#[tokio::test(start_paused = true)]
async fn a_connection_serves_many_requests_and_closes_when_idle() {
    let fixture = ServerFixture::new(limits());
    let mut client = fixture.requests("/peer").await;
    assert_eq!(answer(&mut client).await, (200, "peer".to_owned()));
    sleep(Duration::from_secs(80)).await;
    ask(&mut client, "/other").await;
    assert_eq!(answer(&mut client).await, (404, "none".to_owned()));
    let (left, elapsed) = rest(&mut client).await;
    assert!(left.is_empty() && near(elapsed, limits().idle_timeout), "{left:?} {elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_come_in_time_ends_the_connection() {
    let fixture = ServerFixture::new(limits());
    let mut silent = fixture.connect().await;
    let (_, elapsed) = rest(&mut silent).await;
    assert!(near(elapsed, limits().head_timeout), "{elapsed:?}");
    // A byte now and then does not extend the deadline.
    let mut slow = fixture.requests("/peer").await;
    answer(&mut slow).await;
    let before = Instant::now();
    while slow.write_all(b"G").await.is_ok() && before.elapsed() < HOUR {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(before.elapsed() < limits().head_timeout + Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_giant_head_is_refused() {
    let fixture = ServerFixture::new(limits());
    let mut client = fixture.connect().await;
    let head = format!("GET /peer HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(64 * 1024));
    let (mut read, mut write) = tokio::io::split(&mut client);
    // The server may close before it has all of it.
    let written = async { drop(write.write_all(head.as_bytes()).await) };
    let mut answered = vec![0; 12];
    let ((), read) = tokio::join!(written, read.read_exact(&mut answered));
    read.expect("an answer");
    assert_eq!(answered, b"HTTP/1.1 431");
}

#[tokio::test(start_paused = true)]
async fn the_longest_idle_connection_is_closed_and_a_busy_one_never() {
    let fixture = ServerFixture::new(limits());
    let mut working = fixture.requests("/slow").await;
    let mut idle = Vec::new();
    for _ in 0..3 {
        let mut client = fixture.requests("/peer").await;
        answer(&mut client).await;
        idle.push(client);
        sleep(Duration::from_millis(100)).await;
    }
    let mut new = fixture.requests("/peer").await;
    assert_eq!(answer(&mut new).await.0, 200);
    let (_, elapsed) = rest(&mut idle[0]).await;
    assert!(elapsed < Duration::from_secs(1), "the oldest was kept for {elapsed:?}");
    ask(&mut idle[1], "/peer").await;
    assert_eq!(answer(&mut idle[1]).await.0, 200);
    assert_eq!(answer(&mut working).await, (200, "slow".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn silent_connections_never_block_a_request() {
    let fixture = ServerFixture::new(limits());
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(fixture.connect().await);
    }
    let before = Instant::now();
    let mut client = fixture.requests("/peer").await;
    assert_eq!(answer(&mut client).await.0, 200);
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn when_all_connections_are_busy_the_next_one_waits() {
    let fixture = ServerFixture::new(ServerLimits { connections: 1, ..limits() });
    let mut first = fixture.requests("/slow").await;
    sleep(Duration::from_secs(1)).await;
    let mut second = fixture.requests("/peer").await;
    let before = Instant::now();
    assert_eq!(answer(&mut second).await.0, 200);
    assert!(near(before.elapsed(), Duration::from_secs(2)), "{:?}", before.elapsed());
    assert_eq!(answer(&mut first).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_response_past_its_deadline_closes_the_connection() {
    let fixture = ServerFixture::new(limits());
    let mut client = fixture.requests("/never").await;
    let (left, elapsed) = rest(&mut client).await;
    assert!(left.is_empty() && near(elapsed, limits().response_timeout), "{elapsed:?}");
    // The same for a client that does not read its answer.
    let mut client = fixture.requests("/large").await;
    // Shorter than the idle timeout.
    sleep(limits().response_timeout + Duration::from_secs(10)).await;
    let (left, _) = rest(&mut client).await;
    assert!(left.len() < 64 * 1024, "{} bytes were kept for it", left.len());
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_arrives_whole() {
    let fixture = ServerFixture::new(limits());
    let mut client = fixture.requests("/large").await;
    assert_eq!(answer(&mut client).await, (200, "x".repeat(1 << 20)));
}

#[tokio::test(start_paused = true)]
async fn body_parts_arrive_as_they_are_sent_and_their_permit_is_released() {
    let mut fixture = ServerFixture::new(limits());
    let mut client = fixture.requests("/follow").await;
    let other = fixture.requests("/follow").await;
    let sender = fixture.senders.recv().await.expect("a sender");
    let other_sender = fixture.senders.recv().await.expect("a sender");
    let mut refused = fixture.requests("/follow").await;
    assert_eq!(answer(&mut refused).await.0, 503);
    ask(&mut refused, "/peer").await;
    assert_eq!(answer(&mut refused).await.0, 200);
    // Longer than any other response may take.
    sleep(Duration::from_secs(1800)).await;
    assert!(sender.send(Bytes::from_static(b"line\n")).await);
    let mut seen = Vec::new();
    while !seen.ends_with(b"5\r\nline\n\r\n") {
        seen.push(client.read_u8().await.expect("a part"));
    }
    drop(sender);
    let mut end = [0; 5];
    client.read_exact(&mut end).await.expect("the end");
    assert_eq!(&end, b"0\r\n\r\n");
    let again = fixture.requests("/follow").await;
    let again_sender = fixture.senders.recv().await.expect("a place is free");
    // A client that disconnects frees it as well, and its sender notices.
    drop((other, again));
    other_sender.closed().await;
    again_sender.closed().await;
    assert!(!again_sender.send(Bytes::from_static(b"x")).await);
}

#[tokio::test(start_paused = true)]
async fn an_aborted_body_breaks_the_connection() {
    let mut fixture = ServerFixture::new(limits());
    let mut client = fixture.requests("/follow").await;
    let sender = fixture.senders.recv().await.expect("a sender");
    assert!(sender.send(Bytes::from_static(b"half")).await);
    sender.abort().await;
    let (left, elapsed) = rest(&mut client).await;
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    assert!(!left.ends_with(b"0\r\n\r\n"), "{:?}", String::from_utf8_lossy(&left));
}

#[tokio::test(start_paused = true)]
async fn bodies_of_requests_have_limits_of_size_and_time() {
    let fixture = ServerFixture::new(limits());
    let post = |length: usize, sent: &str| {
        format!("POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{sent}")
    };
    for (length, sent, status) in [(5, "12345", 200), (11, "12345678901", 413), (10, "1234", 408)] {
        let mut client = fixture.connect().await;
        client.write_all(post(length, sent).as_bytes()).await.expect("writes");
        assert_eq!(answer(&mut client).await.0, status, "{length} {sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_holds_its_connection_and_permit_until_it_ends() {
    let fixture = ServerFixture::new(limits());
    let upgrade = "GET /stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut client = fixture.connect().await;
        client.write_all(upgrade.as_bytes()).await.expect("writes");
        client.write_all(b"early").await.expect("writes");
        assert_eq!(answer(&mut client).await.0, 101);
        let mut back = [0; 5];
        client.read_exact(&mut back).await.expect("comes back");
        assert_eq!(&back, b"early");
        streams.push(client);
    }
    let mut refused = fixture.connect().await;
    refused.write_all(upgrade.as_bytes()).await.expect("writes");
    assert_eq!(answer(&mut refused).await.0, 503);
    sleep(Duration::from_secs(1800)).await;
    streams[0].write_all(b"later").await.expect("writes");
    let mut back = [0; 5];
    streams[0].read_exact(&mut back).await.expect("comes back");
    assert_eq!(&back, b"later");
    drop(streams.remove(0));
    sleep(Duration::from_secs(1)).await;
    let mut again = fixture.connect().await;
    again.write_all(upgrade.as_bytes()).await.expect("writes");
    assert_eq!(answer(&mut again).await.0, 101);
    // Not for ever.
    let (_, elapsed) = rest(&mut streams[0]).await;
    assert!(elapsed < HOUR, "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_responses_and_closes_idle_connections() {
    let mut fixture = ServerFixture::new(limits());
    let mut idle = fixture.requests("/peer").await;
    answer(&mut idle).await;
    let mut working = fixture.requests("/slow").await;
    let mut never = fixture.requests("/never").await;
    sleep(Duration::from_secs(1)).await;
    let before = Instant::now();
    drop(fixture.end.take());
    assert_eq!(answer(&mut working).await, (200, "slow".to_owned()));
    let (left, _) = rest(&mut working).await;
    assert!(left.is_empty());
    let (_, elapsed) = rest(&mut idle).await;
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    let (left, _) = rest(&mut never).await;
    assert!(left.is_empty());
    fixture.server.await.expect("the server ended");
    assert!(near(before.elapsed(), limits().shutdown_timeout), "{:?}", before.elapsed());
}
