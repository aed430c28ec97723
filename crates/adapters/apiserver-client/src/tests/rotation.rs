//! TLS: many requests on one connection, trusted authorities, certificates that rotate while in
//! use, and dead connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ports::cluster_api::{ObjectPath, ObjectSelector};
use ports::cluster_objects::Node;
use ports::{ClusterApi, ClusterApiError, FeedEvent, ObjectFeed as _};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::peer::{BodyChunk, RecordedRequest, ScriptedApiServer, json, line, options, stream};
use crate::access::{ClientCertificate, ClusterAccess, Material, Trust};
use crate::client::{ApiClient, Pings};
use crate::watch::Watch;

const NODE: &str = r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7"}}"#;

pub(super) struct TestCertificateAuthority(CertifiedIssuer<'static, KeyPair>);

impl TestCertificateAuthority {
    pub(super) fn new() -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(parameters, key).expect("an authority"))
    }

    fn issue(&self, name: &str) -> (String, KeyPair, Vec<u8>) {
        let key = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = parameters.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key, certificate.der().to_vec())
    }

    /// A server that requires client certificates of this authority.
    pub(super) fn server(&self) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.0.as_ref().der().clone()).expect("a root");
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()
                .expect("a verifier");
        let (_, key, der) = self.issue("127.0.0.1");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![der.into()], key)
            .expect("a server");
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    /// Writes a client's certificate; returns it in DER.
    fn write_client(&self, files: &CredentialFiles) -> Vec<u8> {
        let (pem, key, der) = self.issue("client");
        std::fs::write(&files.certificate, pem).expect("write");
        std::fs::write(&files.key, key.serialize_pem()).expect("write");
        der
    }

    pub(super) fn access(
        &self,
        peer: &ScriptedApiServer,
        files: Option<&CredentialFiles>,
    ) -> ClusterAccess {
        let mut access = peer.access();
        access.server.tls = true;
        access.trust =
            Trust::Authority(Material::Inline(crate::Secret::new(self.0.as_ref().pem())));
        access.certificate = files.map(|files| ClientCertificate {
            certificate: Material::File(files.certificate.clone()),
            key: Material::File(files.key.clone()),
        });
        access
    }
}

pub(super) struct CredentialFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl CredentialFiles {
    fn within(dir: &Path) -> Self {
        Self { certificate: dir.join("c.pem"), key: dir.join("k.pem") }
    }
}

fn client(access: ClusterAccess) -> ApiClient {
    ApiClient::new(access, options()).expect("a client")
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(5);
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Opens so many requests that are never answered, and waits until all have arrived.
async fn hold_requests(client: &ApiClient, peer: &ScriptedApiServer, count: usize) -> JoinSet<()> {
    let mut held = JoinSet::new();
    for _ in 0..count {
        let client = client.with_deadline(Duration::from_secs(60));
        held.spawn(async move {
            let _ = client.read(&ObjectPath::node("n")).await;
        });
    }
    eventually("all requests arrive", || peer.requests().len() >= count).await;
    held
}

fn never(_: usize, _: &RecordedRequest) -> super::peer::ScriptedReply {
    super::peer::silence()
}

#[tokio::test]
async fn many_requests_share_a_connection_and_too_many_open_another() {
    let authority = TestCertificateAuthority::new();
    let peer = ScriptedApiServer::secure(authority.server(), None, never).await;
    let client = client(authority.access(&peer, None));
    let held = hold_requests(&client, &peer, 60).await;
    assert_eq!(peer.connections(), 1);
    drop(held);
    let peer = ScriptedApiServer::secure(authority.server(), None, never).await;
    let client = self::client(authority.access(&peer, None));
    let _held = hold_requests(&client, &peer, 130).await;
    assert_eq!(peer.connections(), 3);
}

#[tokio::test]
async fn a_server_that_allows_fewer_streams_gets_more_connections() {
    let authority = TestCertificateAuthority::new();
    let peer = ScriptedApiServer::secure(authority.server(), Some(4), |n, _| match n {
        0 => json(200, NODE),
        _ => super::peer::silence(),
    })
    .await;
    let client = client(authority.access(&peer, None));
    // After the first response the stream limit is known.
    client.read(&ObjectPath::node("n")).await.expect("a node");
    let _held = hold_requests(&client, &peer, 10).await;
    let max_streams = (1..=peer.connections())
        .map(|at| peer.requests().iter().skip(1).filter(|request| request.connection == at).count())
        .max();
    assert!(
        peer.connections() >= 3 && max_streams <= Some(4),
        "{} {max_streams:?}",
        peer.connections()
    );
}

#[tokio::test]
async fn only_servers_with_a_trusted_certificate_are_used() {
    let (authority, other) = (TestCertificateAuthority::new(), TestCertificateAuthority::new());
    let peer = ScriptedApiServer::secure(authority.server(), None, |_, _| json(200, NODE)).await;
    let node = ObjectPath::node("n");
    let mut access = other.access(&peer, None);
    let error = client(access.clone()).read(&node).await.expect_err("a stranger");
    assert!(matches!(error, ClusterApiError::Unreachable { .. }), "{error:?}");
    access.trust = Trust::InsecureSkipVerify;
    client(access).read(&node).await.expect("anybody will do");
    let mut access = authority.access(&peer, None);
    access.tls_server_name = Some("other.example".to_owned());
    client(access).read(&node).await.expect_err("another name");
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test]
async fn new_certificates_are_used_on_new_connections_and_watches_move() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = CredentialFiles::within(dir.path());
    let authority = TestCertificateAuthority::new();
    let first = authority.write_client(&files);
    let peer = ScriptedApiServer::secure(authority.server(), None, |_, request| {
        if request.target.contains("watch=true") {
            let object = r#"{"metadata":{"name":"n","resourceVersion":"9"}}"#;
            let event = line(&format!(r#"{{"type":"ADDED","object":{object}}}"#));
            stream(200, vec![event, BodyChunk::Hang])
        } else if request.target.contains("limit=") {
            json(200, r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#)
        } else {
            json(200, NODE)
        }
    })
    .await;
    let client = client(authority.access(&peer, Some(&files)));
    let mut watch: Watch<Node> = Watch::start(&client, ObjectSelector::default());
    for _ in 0..4 {
        timeout(Duration::from_secs(5), watch.next()).await.expect("an event");
    }
    // Half of a rotation: the certificate is new, its key is not there yet.
    let key = std::fs::read(&files.key).expect("read");
    let second = authority.write_client(&files);
    let second_key = std::fs::read(&files.key).expect("read");
    std::fs::write(&files.key, key).expect("write");
    client.refresh_credentials().await.expect("the old ones stay");
    client.read(&ObjectPath::node("n")).await.expect("a node");
    assert!(peer.requests().iter().all(|request| request.certificate == first));
    assert_eq!(peer.connections(), 1);
    // The other half.
    std::fs::write(&files.key, second_key).expect("write");
    client.refresh_credentials().await.expect("new ones");
    client.read(&ObjectPath::node("n")).await.expect("a node");
    let event = timeout(Duration::from_secs(5), watch.next()).await.expect("an event");
    assert!(matches!(event, FeedEvent::Applied(_)), "no outage, no list: {event:?}");
    let requests = peer.requests();
    let moved = requests.last().expect("a request");
    assert!(requests.iter().rev().take(2).all(|request| request.certificate == second));
    assert!(
        requests.iter().any(|request| request.connection == 2 && request.target.contains("=9")),
        "{moved:?}"
    );
    assert_eq!(peer.connections(), 2);
    assert!(!format!("{client:?}").contains("PRIVATE"));
}

#[tokio::test]
async fn a_renewed_certificate_takes_the_place_of_the_configured_one_once_it_is_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = CredentialFiles::within(dir.path());
    let authority = TestCertificateAuthority::new();
    let first = authority.write_client(&files);
    let peer = ScriptedApiServer::secure(authority.server(), None, |_, _| json(200, NODE)).await;
    let renewed = dir.path().join("current.pem");
    let mut access = authority.access(&peer, Some(&files));
    access.renewed_certificate = Some(renewed.clone());
    let client = client(access);
    client.read(&ObjectPath::node("n")).await.expect("a node");
    assert_eq!(peer.requests().last().expect("a request").certificate, first);
    let second = authority.write_client(&files);
    let both = [std::fs::read(&files.certificate), std::fs::read(&files.key)];
    let both: Vec<u8> = both.into_iter().flat_map(|part| part.expect("read")).collect();
    // A link that leads to nothing is no certificate.
    std::os::unix::fs::symlink(dir.path().join("dated.pem"), &renewed).expect("a link");
    std::fs::write(dir.path().join("dated.pem"), both).expect("write");
    std::fs::remove_file(&files.certificate).expect("removed");
    client.refresh_credentials().await.expect("new ones");
    client.read(&ObjectPath::node("n")).await.expect("a node");
    assert_eq!(peer.requests().last().expect("a request").certificate, second);
}

/// Relays bytes between a client and a peer until `is_stalled` is set.
async fn relay(to: u16, is_stalled: Arc<AtomicBool>) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let port = listener.local_addr().expect("an address").port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut pipes = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", to)).await.expect("the peer");
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            // Only the existing connections stall; a new one works.
            let is_stalled =
                if is_stalled.load(Ordering::SeqCst) { Arc::default() } else { is_stalled.clone() };
            pipes.spawn(pipe(from_client, to_server, is_stalled.clone()));
            pipes.spawn(pipe(from_server, to_client, is_stalled));
        }
    });
    (port, tasks)
}

async fn pipe(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_stalled: Arc<AtomicBool>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if is_stalled.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_dead_watch_connection_is_detected_by_pings_and_replaced() {
    let authority = TestCertificateAuthority::new();
    let peer = ScriptedApiServer::secure(authority.server(), None, |_, request| {
        if request.target.contains("watch=true") {
            let version = if request.target.contains("resourceVersion=5") { 6 } else { 7 };
            let object = format!(r#"{{"metadata":{{"name":"n","resourceVersion":"{version}"}}}}"#);
            let event = line(&format!(r#"{{"type":"ADDED","object":{object}}}"#));
            stream(200, vec![event, BodyChunk::Hang])
        } else {
            // The list, and then the current version.
            let version = if request.target.contains("limit=500") { 5 } else { 6 };
            json(200, format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#))
        }
    })
    .await;
    let is_stalled = Arc::new(AtomicBool::new(false));
    let mut access = authority.access(&peer, None);
    let (port, _relay) = relay(access.server.port, is_stalled.clone()).await;
    access.server.port = port;
    let mut options = options();
    options.pings =
        Pings { every: Duration::from_millis(300), answered_within: Duration::from_secs(2) };
    let client = ApiClient::new(access, options).expect("a client");
    let mut watch: Watch<Node> = Watch::start(&client, ObjectSelector::default());
    for _ in 0..4 {
        timeout(Duration::from_secs(5), watch.next()).await.expect("an event");
    }
    is_stalled.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let event = timeout(Duration::from_secs(20), watch.next()).await.expect("an event");
    assert!(matches!(event, FeedEvent::Interrupted(_)), "{event:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let event = timeout(Duration::from_secs(5), watch.next()).await.expect("an event");
    assert_eq!(event, FeedEvent::Resumed);
    let event = timeout(Duration::from_secs(5), watch.next()).await.expect("an event");
    assert!(matches!(&event, FeedEvent::Applied(node) if node.metadata.resource_version == "7"));
}

#[tokio::test]
async fn unread_watches_buffer_little_and_block_no_other_request() {
    let authority = TestCertificateAuthority::new();
    let object = r#"{"metadata":{"name":"n","resourceVersion":"6"}}"#;
    let events = format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n").repeat(100);
    let events = Bytes::from(events);
    let peer = ScriptedApiServer::secure(authority.server(), None, move |_, request| {
        if request.target.contains("watch=true") {
            stream(200, vec![BodyChunk::Endless(events.clone())])
        } else if request.target.contains("limit=") {
            json(200, r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#)
        } else {
            json(200, NODE)
        }
    })
    .await;
    let client = client(authority.access(&peer, None));
    let unread: Vec<Watch<Node>> =
        (0..40).map(|_| Watch::start(&client, ObjectSelector::default())).collect();
    let watching =
        || peer.requests().iter().filter(|request| request.target.contains("watch=true")).count();
    eventually("all watch", || watching() == unread.len()).await;
    let mut before = usize::MAX;
    while before != peer.produced() {
        before = peer.produced();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    client.read(&ObjectPath::node("n")).await.expect("a node, past the full streams");
    assert_eq!(peer.connections(), 1);
    // A window for each, and what the peer has buffered itself.
    assert!(before < unread.len() * 1024 * 1024, "{before} bytes for {} streams", unread.len());
}

/// As a cluster's leader does it, at a fifth of its times: it waits half the renew deadline for a
/// response, and has all of it to renew its lease.
#[tokio::test]
async fn a_lease_is_renewed_in_time_after_its_connection_stops_responding() {
    let authority = TestCertificateAuthority::new();
    let peer = ScriptedApiServer::secure(authority.server(), None, |_, _| {
        json(200, r#"{"metadata":{"name":"l","resourceVersion":"5"},"spec":{}}"#)
    })
    .await;
    let is_stalled = Arc::new(AtomicBool::new(false));
    let mut access = authority.access(&peer, None);
    let (port, _relay) = relay(access.server.port, is_stalled.clone()).await;
    access.server.port = port;
    let (renew, retry) = (Duration::from_secs(5), Duration::from_secs(1));
    let election = client(access).with_own_rate_limit().with_caller_timeout(renew / 2);
    let ask = || timeout(renew / 2, election.read_lease("kube-system", "l"));
    ask().await.expect("in time").expect("a lease");
    is_stalled.store(true, Ordering::SeqCst);
    let began = Instant::now();
    while !matches!(ask().await, Ok(Ok(_))) {
        assert!(began.elapsed() < renew, "the lease is lost");
        tokio::time::sleep(retry).await;
    }
    assert!(began.elapsed() < renew, "{:?}", began.elapsed());
    assert_eq!(peer.connections(), 2);
}
