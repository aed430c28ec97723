//! Through a proxy: the tunnel, credentials, TLS to the proxy, and proxies that refuse, hang or
//! answer nonsense.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ports::cluster_api::ObjectPath;
use ports::{ClusterApi, ClusterApiError};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::peer::{RecordedRequest, ScriptedApiServer, ScriptedReply, json, options};
use super::rotation::TestCertificateAuthority;
use crate::access::ClusterAccess;
use crate::client::ApiClient;
use crate::proxy::{ProxyAddress, ProxyEnvironment};

const NODE: &str = r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7"}}"#;

fn node(_: usize, _: &RecordedRequest) -> ScriptedReply {
    json(200, NODE)
}

/// What the proxy does with a `CONNECT`.
#[derive(Clone, Copy)]
enum ProxyAnswer {
    Tunnel,
    Text(&'static str),
    EndlessHead,
    Hang,
}

type Script = dyn Fn(usize) -> ProxyAnswer + Send + Sync;

/// A proxy whose every tunnel ends at one port of the loopback.
struct ConnectProxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl ConnectProxy {
    /// The script gets the number of earlier connections.
    async fn start(
        to: &ScriptedApiServer,
        tls: Option<ServerConfig>,
        script: impl Fn(usize) -> ProxyAnswer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let port = listener.local_addr().expect("an address").port();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let mut tasks = JoinSet::new();
        let to = to.access().server.port;
        tasks.spawn(accept(listener, to, tls, Box::new(script), heads.clone()));
        Self { port, heads, _tasks: tasks }
    }

    fn address(&self, scheme: &str, user: &str) -> ProxyAddress {
        let text = format!("{scheme}://{user}127.0.0.1:{}", self.port);
        ProxyAddress::parse(&text).expect("a proxy")
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("heads").clone()
    }
}

async fn accept(
    listener: TcpListener,
    to: u16,
    tls: Option<ServerConfig>,
    script: Box<Script>,
    heads: Arc<Mutex<Vec<String>>>,
) {
    let tls = tls.map(|config| tokio_rustls::TlsAcceptor::from(Arc::new(config)));
    let mut connections = JoinSet::new();
    let mut count = 0;
    while let Ok((stream, _)) = listener.accept().await {
        let (answer, tls, heads) = (script(count), tls.clone(), heads.clone());
        count += 1;
        connections.spawn(async move {
            match tls {
                None => serve(stream, to, answer, &heads).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => serve(stream, to, answer, &heads).await,
                    Err(_) => None,
                },
            }
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut client: S,
    to: u16,
    answer: ProxyAnswer,
    heads: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    heads.lock().expect("heads").push(String::from_utf8_lossy(&head).into_owned());
    match answer {
        ProxyAnswer::Hang => std::future::pending().await,
        ProxyAnswer::Text(text) => client.write_all(text.as_bytes()).await.ok()?,
        ProxyAnswer::EndlessHead => {
            client.write_all(b"HTTP/1.1 200 OK\r\nX: ").await.ok()?;
            loop {
                client.write_all(&[b'x'; 1024]).await.ok()?;
            }
        }
        ProxyAnswer::Tunnel => {
            let mut server = TcpStream::connect(("127.0.0.1", to)).await.ok()?;
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
            tokio::io::copy_bidirectional(&mut client, &mut server).await.ok()?;
        }
    }
    Some(())
}

async fn read(access: ClusterAccess) -> Result<(), ClusterApiError> {
    let client = ApiClient::new(access, options()).expect("a client");
    client.read(&ObjectPath::node("n")).await.map(drop)
}

/// Reads through a proxy that must fail, and returns the message.
async fn unreachable(access: ClusterAccess) -> String {
    let error = read(access).await.expect_err("no connection");
    assert!(matches!(error, ClusterApiError::Unreachable { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    error.to_string()
}

#[tokio::test]
async fn requests_share_a_tunnel_that_is_opened_with_the_urls_credentials() {
    let authority = TestCertificateAuthority::new();
    let peer = ScriptedApiServer::secure(authority.server(), None, node).await;
    let proxy = ConnectProxy::start(&peer, None, |_| ProxyAnswer::Tunnel).await;
    let mut access = authority.access(&peer, None);
    // Only the proxy knows where this is.
    access.server.host = "api.invalid".to_owned();
    access.server.port = 6443;
    access.tls_server_name = Some("127.0.0.1".to_owned());
    let variable = format!("http://me:hunter2@127.0.0.1:{}", proxy.port);
    let environment =
        ProxyEnvironment::from_variables(|name| (name == "HTTPS_PROXY").then(|| variable.clone()));
    let access = access.with_proxy_from(&environment).expect("a good proxy");
    let client = ApiClient::new(access, options()).expect("a client");
    for _ in 0..3 {
        client.read(&ObjectPath::node("n")).await.expect("a node");
    }
    let expected = "CONNECT api.invalid:6443 HTTP/1.1\r\nHost: api.invalid:6443\r\n\
                    Proxy-Authorization: Basic bWU6aHVudGVyMg==\r\n\r\n";
    assert_eq!(proxy.heads(), [expected]);
    assert_eq!((peer.requests().len(), peer.connections()), (3, 1));
    // The API server gets none of the proxy's credentials.
    assert!(peer.requests().iter().all(|request| request.authorization.is_empty()));
    assert!(!format!("{client:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_server_on_the_loopback_needs_no_proxy_of_the_environment() {
    let peer = ScriptedApiServer::plain(node).await;
    let proxy = ConnectProxy::start(&peer, None, |_| ProxyAnswer::Tunnel).await;
    let variable = format!("http://127.0.0.1:{}", proxy.port);
    let environment = ProxyEnvironment::from_variables(|_| Some(variable.clone()));
    read(peer.access().with_proxy_from(&environment).expect("access")).await.expect("a node");
    assert!(proxy.heads().is_empty());
    // A kubeconfig's proxy-url has no exceptions.
    let proxied = ClusterAccess { proxy: Some(proxy.address("http", "")), ..peer.access() };
    read(proxied).await.expect("a node");
    assert_eq!(proxy.heads().len(), 1);
}

#[tokio::test]
async fn a_proxy_over_tls_is_verified_before_it_gets_the_credentials() {
    let authority = TestCertificateAuthority::new();
    let peer = ScriptedApiServer::secure(authority.server(), None, node).await;
    for (trusted, of) in [(true, &authority), (false, &TestCertificateAuthority::new())] {
        let mut config = of.server();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let proxy = ConnectProxy::start(&peer, Some(config), |_| ProxyAnswer::Tunnel).await;
        let address = proxy.address("https", "me:hunter2@");
        let access = ClusterAccess { proxy: Some(address), ..authority.access(&peer, None) };
        if trusted {
            read(access).await.expect("a node");
            assert!(proxy.heads()[0].contains("Proxy-Authorization: Basic"));
        } else {
            let message = unreachable(access).await;
            assert!(message.contains("to the proxy: TLS: invalid peer certificate"), "{message}");
            assert!(proxy.heads().is_empty());
        }
    }
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_password() {
    let peer = ScriptedApiServer::plain(node).await;
    let unauthorized = "HTTP/1.1 407 Who?\r\nProxy-Authenticate: Basic\r\n\r\n<html>";
    let table = [
        (ProxyAnswer::Text(unauthorized), "other credentials (407)"),
        (ProxyAnswer::Text("HTTP/1.1 502 Bad Gateway\r\n\r\n"), "refused CONNECT: 502 Bad Gateway"),
        (ProxyAnswer::Text("HTTP/1.1 200"), "closed the connection before"),
        (ProxyAnswer::Text("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK"), "before the first request"),
        (ProxyAnswer::Text("220 mail"), "is not HTTP"),
        (ProxyAnswer::EndlessHead, "longer than 16384 bytes"),
    ];
    for (answer, expected) in table {
        let proxy = ConnectProxy::start(&peer, None, move |_| answer).await;
        let address = proxy.address("http", "me:hunter2@");
        let message = unreachable(ClusterAccess { proxy: Some(address), ..peer.access() }).await;
        let named = format!("through the proxy http://127.0.0.1:{}: ", proxy.port);
        assert!(message.contains(expected) && message.contains(&named), "{message}");
    }
    assert_eq!(peer.connections(), 0);
}

#[tokio::test]
async fn a_proxy_that_hangs_or_is_gone_is_named_at_the_deadline() {
    let peer = ScriptedApiServer::plain(node).await;
    let proxy = ConnectProxy::start(&peer, None, |_| ProxyAnswer::Hang).await;
    let address = proxy.address("http", "me:hunter2@");
    let began = Instant::now();
    let message = unreachable(ClusterAccess { proxy: Some(address), ..peer.access() }).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let named = format!("through the proxy http://127.0.0.1:{}: ", proxy.port);
    assert!(message.contains("not in time") && message.contains(&named), "{message}");
    // Bound and closed again: nothing listens there.
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = gone.local_addr().expect("an address").port();
    drop(gone);
    let address = ProxyAddress::parse(&format!("http://me:hunter2@127.0.0.1:{port}"));
    let access = ClusterAccess { proxy: Some(address.expect("a proxy")), ..peer.access() };
    let message = unreachable(access).await;
    assert!(message.contains(&format!("through the proxy http://127.0.0.1:{port}: ")), "{message}");
    assert_eq!(peer.connections(), 0);
}

#[tokio::test]
async fn a_client_recovers_with_its_proxy() {
    let peer = ScriptedApiServer::plain(node).await;
    let proxy = ConnectProxy::start(&peer, None, |count| match count {
        0 => ProxyAnswer::Text("HTTP/1.1 503 Busy\r\n\r\n"),
        1 => ProxyAnswer::Hang,
        _ => ProxyAnswer::Tunnel,
    })
    .await;
    let address = proxy.address("http", "");
    let access = ClusterAccess { proxy: Some(address), ..peer.access() };
    let client = ApiClient::new(access, options()).expect("a client");
    let short = client.with_deadline(Duration::from_millis(300));
    let path = ObjectPath::node("n");
    let message = short.read(&path).await.expect_err("refused").to_string();
    assert!(message.contains("503 Busy"), "{message}");
    let message = short.read(&path).await.expect_err("hangs").to_string();
    assert!(message.contains("not in time"), "{message}");
    client.read(&path).await.expect("a node");
    assert_eq!((proxy.heads().len(), peer.requests().len()), (3, 1));
}
