//! Streams over the port, to a scripted stream server and to a runtime in this process.

use super::pod_api::OnePod;
use super::*;
use ports::local_runtime::{
    LocalImageName, LocalImages, LocalProcess, LocalRuntime, LocalRuntimeResult, LocalStream,
    LocalStreamRequest, LocalUsages, StreamEndpoint,
};
use tokio::net::UnixStream;

/// Answers with an address, or carries the stream itself: it echoes what it gets.
#[derive(Default)]
struct StreamPartner {
    /// `None`: in this process.
    address: Option<SocketAddr>,
    requests: Mutex<Vec<LocalStreamRequest>>,
}

impl LocalRuntime for StreamPartner {
    fn address(&self, request: LocalStreamRequest) -> LocalRuntimeResult<'_, LocalStream> {
        let url = self.address.map(|address| format!("http://{address}/stream/secret?x=y"));
        self.requests.lock().expect("lock").push(request);
        Box::pin(async move {
            let message = "no address".to_owned();
            let url = url.ok_or(LocalApiError::TemporarilyUnavailable { message })?;
            Ok(LocalStream { url, runtime: "scripted".to_owned() })
        })
    }
    fn stream(&self, request: LocalStreamRequest) -> LocalRuntimeResult<'_, StreamEndpoint> {
        if self.address.is_some() {
            return Box::pin(async { Ok(StreamEndpoint::Address(self.address(request).await?)) });
        }
        self.requests.lock().expect("lock").push(request);
        Box::pin(async {
            Ok(StreamEndpoint::Here(Box::new(|descriptor, begun| {
                Box::pin(async move {
                    assert!(begun.is_empty(), "nothing was read yet");
                    let stream = UnixStream::from_std(descriptor.into()).expect("a socket");
                    let (mut read, mut write) = stream.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                })
            })))
        })
    }
    fn process<'a>(&'a self, _: &'a str) -> LocalRuntimeResult<'a, LocalProcess> {
        unreachable!("not asked")
    }
    fn usage(&self) -> LocalRuntimeResult<'_, LocalUsages> {
        unreachable!("not asked")
    }
    fn images(&self) -> LocalRuntimeResult<'_, LocalImages> {
        unreachable!("not asked")
    }
    fn remove_image<'a>(&'a self, _: &'a str) -> LocalRuntimeResult<'a, LocalImageName> {
        unreachable!("not asked")
    }
}

/// A stream server that answers one request with `head`, then echoes; returns what it got before.
async fn stream_server(head: &'static str) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("accepts");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.expect("a request"));
        }
        stream.write_all(head.as_bytes()).await.expect("writes");
        let (mut read, mut write) = stream.into_split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
        String::from_utf8(request).expect("text")
    });
    (address, served)
}

async fn fixture(address: Option<SocketAddr>) -> (KubeletPortFixture, Arc<StreamPartner>) {
    let runtime = Arc::new(StreamPartner { address, ..StreamPartner::default() });
    let (streams, local) = (runtime.clone(), OnePod::new(Path::new("/pods")));
    let complete = |port: KubeletPort| (port.with_runtime(streams), local as Arc<dyn LocalApi>);
    (KubeletPortFixture::with_port(true, |_| {}, complete).await, runtime)
}

const SPDY: &str = "connection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
                    x-stream-protocol-version: v4.channel.k8s.io\r\n\
                    x-stream-protocol-version: v3.channel.k8s.io\r\n";
const WEBSOCKET: &str = "connection: Upgrade\r\nupgrade: websocket\r\n\
                         sec-websocket-protocol: v5.channel.k8s.io\r\n";

/// Sends a request and reads the head of its response.
async fn ask(fixture: &KubeletPortFixture, request: &str, headers: &str) -> (String, Stream) {
    let mut stream = fixture.connect(None).await;
    let text =
        format!("{request} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer operator\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).await.expect("writes");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = timeout(Duration::from_secs(10), stream.read_u8()).await.expect("in time");
        head.push(byte.expect("an answer"));
    }
    (String::from_utf8(head).expect("text").to_lowercase(), stream)
}

/// The status and text of an error.
async fn error(fixture: &KubeletPortFixture, request: &str, headers: &str) -> (u16, String) {
    let (head, mut stream) = ask(fixture, request, headers).await;
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
    stream.read_exact(&mut body).await.expect("a body");
    (head[9..12].parse().expect("a status"), String::from_utf8(body).expect("text"))
}

/// Bytes come back while both sides are open, and then both ends are passed on.
async fn echoes(mut stream: Stream, from_server: &str) {
    let mut first = vec![0; from_server.len()];
    stream.read_exact(&mut first).await.expect("reads");
    assert_eq!(String::from_utf8_lossy(&first), from_server);
    let sent: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 253) as u8).collect();
    let (mut read, mut write) = tokio::io::split(stream);
    let bytes = sent.clone();
    let writing = tokio::spawn(async move {
        write.write_all(&bytes).await.expect("writes");
        write.shutdown().await.expect("ends");
    });
    let mut received = Vec::new();
    let reading = timeout(Duration::from_secs(20), read.read_to_end(&mut received));
    reading.await.expect("ends").expect("reads");
    assert!(received == sent, "{} of {} bytes came back", received.len(), sent.len());
    writing.await.expect("has written");
}

#[tokio::test]
async fn a_stream_is_passed_on_to_the_runtimes_address_and_back() {
    let table = [
        (
            "POST /exec/ns/web/main?command=sh&command=-c&command=a%20%3B%20b&input=1&output=1&error=1",
            SPDY,
            "SPDY/3.1",
        ),
        ("GET /exec/ns/web/uid-9/main?command=ls&output=1&error=1&tty=1", WEBSOCKET, "websocket"),
        ("POST /attach/ns/web/uid-1/main?output=1&error=1", SPDY, "SPDY/3.1"),
        ("POST /portForward/ns/web", SPDY, "SPDY/3.1"),
        ("GET /portForward/ns/web/uid-1?port=80,81", WEBSOCKET, "websocket"),
    ];
    for (request, headers, protocol) in table {
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                      Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\nfirst";
        let (address, served) = stream_server(answer).await;
        let (fixture, runtime) = fixture(Some(address)).await;
        let (head, stream) = ask(&fixture, request, headers).await;
        assert!(head.starts_with("http/1.1 101"), "{request}: {head}");
        assert!(head.contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"), "{head}");
        echoes(stream, "first").await;
        let got = timeout(Duration::from_secs(10), served).await.expect("ends").expect("served");
        let method = request.split(' ').next().expect("a method");
        assert!(got.starts_with(&format!("{method} /stream/secret?x=y HTTP/1.1\r\n")), "{got}");
        assert!(got.contains(&format!("upgrade: {protocol}\r\n")), "{got}");
        assert!(!got.contains("Bearer") && got.contains(&format!("host: {address}\r\n")), "{got}");
        assert_eq!(runtime.requests.lock().expect("lock").len(), 1);
    }
}

#[tokio::test]
async fn the_runtime_is_asked_for_what_the_query_names() {
    let command = |words: &[&str]| ports::local_runtime::LocalCommand {
        command: words.iter().map(|word| (*word).to_owned()).collect(),
        stdout: true,
        ..Default::default()
    };
    let container = || "now".to_owned();
    let exec = |command| LocalStreamRequest::Exec { container: container(), command };
    let attach = |command| LocalStreamRequest::Attach { container: container(), command };
    let table = [
        (
            "/exec/ns/web/main?command=sh&command=-c&command=a+%26b&output=1&error=1&input=1",
            exec(ports::local_runtime::LocalCommand {
                stdin: true,
                stderr: true,
                ..command(&["sh", "-c", "a &b"])
            }),
        ),
        (
            "/exec/ns/web/main?command=sh&output=1&error=1&tty=1&input=true",
            exec(ports::local_runtime::LocalCommand { tty: true, ..command(&["sh"]) }),
        ),
        (
            // The terminal of the container counts, not that of the request.
            "/attach/ns/web/main?output=1&tty=0&command=ignored",
            attach(ports::local_runtime::LocalCommand { tty: true, ..command(&[]) }),
        ),
        ("/portForward/ns/web", LocalStreamRequest::Forward { pod: "uid-1".to_owned() }),
    ];
    for (path, expected) in table {
        let (fixture, runtime) = fixture(None).await;
        let protocol = if path.starts_with("/portForward") {
            "connection: upgrade\r\nupgrade: SPDY/3.1\r\n"
        } else {
            SPDY
        };
        let (head, stream) = ask(&fixture, &format!("POST {path}"), protocol).await;
        assert!(head.starts_with("http/1.1 101"), "{path}: {head}");
        assert!(head.contains("upgrade: spdy/3.1\r\n"), "{head}");
        echoes(stream, "").await;
        assert_eq!(*runtime.requests.lock().expect("lock"), [expected], "{path}");
    }
}

#[tokio::test]
async fn a_request_without_a_stream_has_upstreams_error() {
    let (fixture, runtime) = fixture(None).await;
    let no_stream = "you must specify at least 1 of stdin, stdout, stderr";
    let table = [
        ("POST /exec/ns/web/main?command=ls", SPDY, 400, no_stream),
        ("POST /exec/ns/web/main?command=ls&error=1&tty=1", SPDY, 400, no_stream),
        ("POST /attach/ns/web/main?output=true", SPDY, 400, no_stream),
        ("POST /exec/ns/other/main?output=1", SPDY, 404, "pod does not exist"),
        ("POST /exec/ns/web/pulling?output=1", SPDY, 500, "container not found (\"pulling\")"),
        (
            "POST /attach/ns/web/pulling?output=1",
            SPDY,
            500,
            "container pulling not found in pod web_ns",
        ),
        ("POST /attach/ns/web/uid-9/main?output=1", SPDY, 500, "pod web_ns not found"),
        ("POST /portForward/ns/web/uid-9", SPDY, 404, "pod not found"),
        ("POST /exec/ns/web/main?output=1", "", 500, "Upgrade request required\n"),
        ("GET /portForward/ns/web", WEBSOCKET, 400, "query parameter \"port\" is required"),
        (
            "GET /portForward/ns/web?port=",
            WEBSOCKET,
            400,
            "query parameter \"port\" cannot be empty",
        ),
        ("GET /portForward/ns/web?port=0", WEBSOCKET, 400, "port \"0\" must be > 0"),
        ("DELETE /exec/ns/web/main", SPDY, 405, "405: Method Not Allowed"),
        ("POST /exec/ns/web/a/b/c", SPDY, 404, "404: Page Not Found"),
    ];
    for (request, headers, status, text) in table {
        let answer = error(&fixture, request, headers).await;
        assert_eq!(answer, (status, text.to_owned()), "{request}");
    }
    assert!(runtime.requests.lock().expect("lock").is_empty());
    let old = "connection: upgrade\r\nupgrade: SPDY/3.1\r\nx-stream-protocol-version: v1\r\n";
    let answer = error(&fixture, "POST /exec/ns/web/main?output=1", old).await;
    assert!(answer.0 == 403 && answer.1.contains("unable to negotiate protocol"), "{answer:?}");
    let refused = error(&fixture, "GET /exec/ns/web/main?output=1", WEBSOCKET).await;
    assert_eq!(refused, (500, "no address".to_owned()));
}

#[tokio::test]
async fn a_runtime_that_does_not_upgrade_is_shown_to_the_client() {
    let table = [
        (
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\ngone\n",
            (404, "gone\n".to_owned()),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            (500, "invalid upgrade response: status code 200\n".to_owned()),
        ),
    ];
    for (head, expected) in table {
        let (address, served) = stream_server(head).await;
        let (fixture, _) = fixture(Some(address)).await;
        let answer = error(&fixture, "POST /exec/ns/web/main?output=1", SPDY).await;
        assert_eq!(answer, expected);
        timeout(Duration::from_secs(10), served).await.expect("is closed").expect("served");
    }
    let (address, served) = stream_server("").await;
    served.abort();
    let _ = served.await;
    let (fixture, _) = fixture(Some(address)).await;
    let answer = error(&fixture, "POST /exec/ns/web/main?output=1", SPDY).await;
    assert!(answer.0 == 500 && answer.1.contains("cannot connect"), "{answer:?}");
    assert!(!answer.1.contains("secret"), "{answer:?}");
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_stream() {
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                  Upgrade: SPDY/3.1\r\n\r\n";
    let (address, served) = stream_server(answer).await;
    let (fixture, _) = fixture(Some(address)).await;
    let (_, stream) = ask(&fixture, "POST /exec/ns/web/main?output=1", SPDY).await;
    drop(stream);
    timeout(Duration::from_secs(10), served).await.expect("is closed").expect("served");
}
