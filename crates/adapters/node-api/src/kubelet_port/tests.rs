//! The port over TLS, with a scripted API server: which callers are answered, and how.

use super::*;
use crate::serving_certificate::CertificateSource;
use ports::cluster_api::{
    ApiFuture, ClusterEvent, Deletion, ObjectFeed, ObjectPath, ObjectSelector, Patch, Repetition,
    StoredEvent, StoredObject,
};
use ports::cluster_objects::{Lease, Node, Pod, Renewal};
use ports::local_api::{LocalApiError, LocalNode, LocalPodDetail, LocalPods, LocalStopAccepted};
use ports::node_object::NodeObject;
use ports::{ClusterApiError, HealthCheck, LocalApi};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

mod access;
mod commands;
mod logs;
mod other_pages;
mod pod_api;
mod streams;

/// How the scripted API server answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ReviewerBehaviour {
    #[default]
    Answers,
    Hangs,
    Refuses,
}

/// Knows the tokens `good`, `reader` and `operator`; `good` and `admin` may `get` on nodes/proxy,
/// `reader` on nodes/healthz, `operator` does anything with containers. Records the requests.
#[derive(Default)]
struct Reviewer {
    requests: Mutex<Vec<Value>>,
    behaviour: Mutex<ReviewerBehaviour>,
}

impl Reviewer {
    fn set(&self, behaviour: ReviewerBehaviour) {
        *self.behaviour.lock().expect("lock") = behaviour;
    }

    /// The specs of the reviews of one kind.
    fn requests(&self, kind: &str) -> Vec<Value> {
        let requests = self.requests.lock().expect("lock");
        let of_kind = requests.iter().filter(|review| review["kind"] == kind);
        of_kind.map(|review| review["spec"].clone()).collect()
    }

    fn status(review: &Value) -> Value {
        let spec = &review["spec"];
        if review["kind"] == "TokenReview" {
            return match spec["token"].as_str() {
                Some(name @ ("good" | "reader" | "operator")) => {
                    json!({"authenticated": true, "user": {"username": name, "groups": ["g"]}})
                }
                Some("passing") => json!({"user": {}, "error": "not now"}),
                _ => json!({"user": {}}),
            };
        }
        let attributes = &spec["resourceAttributes"];
        assert_eq!(attributes["version"], "v1");
        assert_eq!(attributes["resource"], "nodes");
        assert_eq!(attributes["name"], "node-1");
        let allowed = match (spec["user"].as_str(), attributes["subresource"].as_str()) {
            (Some("good" | "admin"), Some("proxy" | "metrics")) => attributes["verb"] == "get",
            (Some("operator"), Some("proxy" | "checkpoint" | "log")) => true,
            (Some("reader"), Some("healthz")) => true,
            _ => false,
        };
        json!({"allowed": allowed})
    }
}

fn unanswered<'a, T: Send + 'a>() -> ApiFuture<'a, T> {
    let error = ClusterApiError::Unreachable { request: "test".into(), cause: "none".into() };
    Box::pin(async move { Err(error) })
}

impl ClusterApi for Reviewer {
    fn watch_nodes(&self, _: ObjectSelector) -> Box<dyn ObjectFeed<Node>> {
        unreachable!("reviews watch nothing")
    }
    fn watch_own_node(&self, _: &str) -> Box<dyn ObjectFeed<NodeObject>> {
        unreachable!("reviews watch nothing")
    }
    fn watch_pods(&self, _: ObjectSelector) -> Box<dyn ObjectFeed<Pod>> {
        unreachable!("reviews watch nothing")
    }
    fn watch_node_pods(&self, _: &str) -> Box<dyn ObjectFeed<ports::ApiPod>> {
        unreachable!("reviews watch nothing")
    }
    fn watch_services(&self) -> Box<dyn ObjectFeed<ports::cluster_objects::Service>> {
        unreachable!("reviews watch nothing")
    }
    fn watch_runtime_classes(&self) -> Box<dyn ObjectFeed<ports::cluster_objects::RuntimeClass>> {
        unreachable!("reviews watch nothing")
    }
    fn watch_renewals(&self, _: ObjectSelector) -> Box<dyn ObjectFeed<Renewal>> {
        unreachable!("reviews watch nothing")
    }
    fn read<'a>(&'a self, _: &'a ObjectPath) -> ApiFuture<'a, StoredObject> {
        unanswered()
    }
    fn create<'a>(&'a self, _: &'a ObjectPath, body: Vec<u8>) -> ApiFuture<'a, StoredObject> {
        let mut review: Value = serde_json::from_slice(&body).expect("a review");
        self.requests.lock().expect("lock").push(review.clone());
        match *self.behaviour.lock().expect("lock") {
            ReviewerBehaviour::Answers => {}
            ReviewerBehaviour::Hangs => return Box::pin(std::future::pending()),
            ReviewerBehaviour::Refuses => return unanswered(),
        }
        review["status"] = Self::status(&review);
        let json = review.to_string().into_bytes();
        let stored = StoredObject { uid: String::new(), resource_version: String::new(), json };
        Box::pin(async move { Ok(stored) })
    }
    fn create_subresource<'a>(
        &'a self,
        _: &'a ObjectPath,
        _: &'a str,
        _: Vec<u8>,
    ) -> ApiFuture<'a, StoredObject> {
        unanswered()
    }
    fn patch<'a>(&'a self, _: &'a ObjectPath, _: Patch) -> ApiFuture<'a, StoredObject> {
        unanswered()
    }
    fn delete<'a>(&'a self, _: &'a ObjectPath, _: Deletion) -> ApiFuture<'a, ()> {
        unanswered()
    }
    fn read_lease<'a>(&'a self, _: &'a str, _: &'a str) -> ApiFuture<'a, Lease> {
        unanswered()
    }
    fn create_lease<'a>(&'a self, _: &'a Lease) -> ApiFuture<'a, Lease> {
        unanswered()
    }
    fn update_lease<'a>(&'a self, _: &'a Lease) -> ApiFuture<'a, Lease> {
        unanswered()
    }
    fn create_event<'a>(&'a self, _: &'a ClusterEvent) -> ApiFuture<'a, StoredEvent> {
        unanswered()
    }
    fn repeat_event<'a>(&'a self, _: &'a StoredEvent, _: Repetition<'a>) -> ApiFuture<'a, ()> {
        unanswered()
    }
}

struct EmptyLocalApi;

impl LocalApi for EmptyLocalApi {
    fn node(&self) -> LocalNode {
        LocalNode::default()
    }
    fn pods(&self) -> LocalPods {
        LocalPods::default()
    }
    fn pod(&self, _: &str) -> Option<LocalPodDetail> {
        None
    }
    fn stop<'a>(&'a self, _: &'a str) -> PortFuture<'a, Result<LocalStopAccepted, LocalApiError>> {
        unreachable!("the port stops nothing")
    }
    fn changed(&self, _: u64) -> PortFuture<'_, u64> {
        unreachable!("the port waits for nothing")
    }
}

struct AlwaysHealthy;

impl HealthCheck for AlwaysHealthy {
    fn name(&self) -> &str {
        "ping"
    }
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A client certificate authority.
struct PortTestAuthority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
struct TlsTestClient {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl PortTestAuthority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("params");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("key");
        let pem = params.self_signed(&key).expect("authority").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn client(&self, name: &str, group: &str) -> TlsTestClient {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("params");
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.distinguished_name.push(DnType::OrganizationName, group);
        let key = KeyPair::generate().expect("key");
        let certificate = params.signed_by(&key, &self.issuer).expect("certificate");
        TlsTestClient {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("key"),
        }
    }
}

/// A port under test and its surroundings.
struct KubeletPortFixture {
    dir: tempfile::TempDir,
    authority: PortTestAuthority,
    reviewer: Arc<Reviewer>,
    address: SocketAddr,
    read_only: Option<SocketAddr>,
}

fn settings(dir: &Path) -> KubeletPortSettings {
    KubeletPortSettings {
        address: "127.0.0.1:0".parse().expect("address"),
        read_only: None,
        node_name: "node-1".to_owned(),
        tls: TlsSettings {
            source: CertificateSource::SelfSigned { dir: None, names: vec!["node-1".to_owned()] },
            tls13_only: false,
            cipher_suites: Vec::new(),
            client_authorities: Some(dir.join("ca.crt")),
        },
        reviews_tokens: true,
        anonymous: false,
        authorization: AuthorizationMode::Webhook,
        times: ReviewTimes {
            token: Duration::from_secs(120),
            allowed: Duration::from_secs(300),
            refused: Duration::from_secs(30),
        },
        debugging_handlers: true,
        disabled_handlers: Vec::new(),
        log_dir: dir.join("log"),
        stream_idle: Duration::from_secs(600),
        checkpoint_dir: dir.join("checkpoints"),
        configuration: json!({"kind": "KubeletConfiguration"}),
    }
}

impl KubeletPortFixture {
    async fn new(change: impl FnOnce(&mut KubeletPortSettings)) -> Self {
        Self::with_api(true, change).await
    }

    async fn with_api(cluster: bool, change: impl FnOnce(&mut KubeletPortSettings)) -> Self {
        Self::with_port(cluster, change, |port| (port, Arc::new(EmptyLocalApi))).await
    }

    /// Of the settings, `change` sets some; `complete` adds what the port answers from.
    async fn with_port(
        cluster: bool,
        change: impl FnOnce(&mut KubeletPortSettings),
        complete: impl FnOnce(KubeletPort) -> (KubeletPort, Arc<dyn LocalApi>),
    ) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let authority = PortTestAuthority::new("authority");
        fs::write(dir.path().join("ca.crt"), &authority.pem).expect("written");
        let mut settings = settings(dir.path());
        change(&mut settings);
        let reviewer = Arc::new(Reviewer::default());
        let api = cluster.then(|| reviewer.clone() as Arc<dyn ClusterApi>);
        let (port, local) = complete(KubeletPort::new(settings, api));
        let port = port.listen().await.expect("listens");
        let address = port.address().expect("address");
        let read_only = port.read_only_address();
        let checks: Vec<Arc<dyn HealthCheck>> = vec![Arc::new(AlwaysHealthy)];
        let api = KubeletApi { checks: checks.into(), local };
        tokio::spawn(port.serve(api, std::future::pending()));
        Self { dir, authority, reviewer, address, read_only }
    }

    async fn get(
        &self,
        path: &str,
        token: Option<&str>,
        client: Option<&TlsTestClient>,
    ) -> (u16, String) {
        self.ask("GET", path, token, client.map(resolver)).await
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        client: Option<Arc<dyn ResolvesClientCert>>,
    ) -> (u16, String) {
        let mut stream = self.connect(client).await;
        request(&mut stream, method, path, token).await
    }

    async fn connect(&self, client: Option<Arc<dyn ResolvesClientCert>>) -> Stream {
        let builder =
            rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(TestServerVerifier));
        let config = match client {
            None => builder.with_no_client_auth(),
            Some(client) => builder.with_client_cert_resolver(client),
        };
        let stream = TcpStream::connect(self.address).await.expect("connects");
        let name = ServerName::try_from("node-1").expect("name");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.expect("a handshake")
    }
}

type Stream = tokio_rustls::client::TlsStream<TcpStream>;

/// One request on a connection that stays open; its response has a length.
async fn request(
    stream: &mut Stream,
    method: &str,
    path: &str,
    token: Option<&str>,
) -> (u16, String) {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let text = format!("{method} {path} HTTP/1.1\r\nhost: x\r\n{token}\r\n");
    stream.write_all(text.as_bytes()).await.expect("writes");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("an answer"));
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
    stream.read_exact(&mut body).await.expect("a body");
    (head[9..12].parse().expect("a status"), String::from_utf8(body).expect("text"))
}

/// Presents this certificate whatever the server asks for.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
    fn has_certs(&self) -> bool {
        true
    }
}

fn resolver(client: &TlsTestClient) -> Arc<dyn ResolvesClientCert> {
    shows(client.chain.clone(), &client.key)
}

fn shows(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'static>,
) -> Arc<dyn ResolvesClientCert> {
    let key = aws_lc_rs::sign::any_supported_type(key).expect("a key");
    Arc::new(Shows(Arc::new(CertifiedKey::new(chain, key))))
}

#[derive(Debug)]
struct TestServerVerifier;

impl ServerCertVerifier for TestServerVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[tokio::test]
async fn an_unusable_file_or_an_address_in_use_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().expect("dir");
    let missing = KubeletPort::new(settings(dir.path()), None).listen().await;
    let Err(KubeletEndpointError::Credentials { cause }) = missing else { panic!("it listens") };
    assert!(cause.contains("ca.crt"), "{cause}");
    fs::write(dir.path().join("ca.crt"), "nothing").expect("written");
    let empty = KubeletPort::new(settings(dir.path()), None).listen().await;
    let Err(KubeletEndpointError::Credentials { cause }) = empty else { panic!("it listens") };
    assert!(cause.contains("no certificate in it"), "{cause}");
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let mut settings = settings(dir.path());
    settings.address = taken.local_addr().expect("address");
    settings.tls.client_authorities = None;
    let port = KubeletPort::new(settings, None);
    let refused = port.listen().await;
    assert!(matches!(refused, Err(KubeletEndpointError::Listen { .. })));
}

#[tokio::test]
async fn suites_that_are_not_known_here_do_not_stop_the_port() {
    let suites = ["TLS_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"];
    let fixture = KubeletPortFixture::new(|settings| {
        settings.tls.cipher_suites = suites.map(str::to_owned).to_vec();
    })
    .await;
    assert_eq!(fixture.get("/healthz", Some("good"), None).await.0, 200);
    let none = usable_suites(TlsSettings {
        cipher_suites: vec![suites[0].to_owned()],
        ..settings(fixture.dir.path()).tls
    });
    assert!(none.tls13_only && none.cipher_suites.is_empty());
}
