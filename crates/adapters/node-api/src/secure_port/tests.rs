//! The port with TLS: which paths are open, and which need authorization.

use super::*;
use crate::review::ReviewTimes;
use crate::serving_certificate::CertificateSource;
use ports::ClusterApiError;
use ports::PortFuture;
use ports::cluster_api::{
    ApiFuture, ClusterEvent, Deletion, ObjectFeed, ObjectSelector, Patch, Repetition, StoredEvent,
    StoredObject,
};
use ports::cluster_objects::{Lease, Node, Pod, Renewal};
use ports::node_object::NodeObject;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

struct HelloPage;

impl Pages for HelloPage {
    fn answer<'a>(&'a self, request: &'a PageRequest) -> PortFuture<'a, Page> {
        Box::pin(async move { Page::text(200, format!("page {}", request.path)) })
    }
}

/// An API server that knows one token and lets two names read `/metrics`; counts the reviews.
#[derive(Default)]
struct ScriptedReviewApi {
    requests: AtomicUsize,
    authority: String,
}

fn unanswered<'a, T: Send + 'a>() -> ApiFuture<'a, T> {
    let error = ClusterApiError::Unreachable { request: "test".into(), cause: "none".into() };
    Box::pin(async move { Err(error) })
}

impl ClusterApi for ScriptedReviewApi {
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
    fn read<'a>(&'a self, object: &'a ObjectPath) -> ApiFuture<'a, StoredObject> {
        assert_eq!(object.name, "extension-apiserver-authentication");
        let json = serde_json::json!({"data": {"client-ca-file": self.authority}}).to_string();
        let stored = StoredObject {
            uid: String::new(),
            resource_version: String::new(),
            json: json.into_bytes(),
        };
        Box::pin(async move { Ok(stored) })
    }
    fn create<'a>(&'a self, object: &'a ObjectPath, body: Vec<u8>) -> ApiFuture<'a, StoredObject> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let mut review: serde_json::Value = serde_json::from_slice(&body).expect("a review");
        let spec = review["spec"].clone();
        review["status"] = match object.resource.plural {
            "tokenreviews" if spec["token"] == "good" => {
                serde_json::json!({"authenticated": true, "user": {"username": "scraper"}})
            }
            "tokenreviews" => serde_json::json!({"user": {}}),
            _ => {
                assert_eq!(spec["nonResourceAttributes"]["verb"], "get");
                let path = &spec["nonResourceAttributes"]["path"];
                let known = spec["user"] == "scraper" || spec["user"] == "admin";
                serde_json::json!({"allowed": known && path == "/metrics"})
            }
        };
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

const TIMES: ReviewTimes = ReviewTimes {
    token: Duration::from_secs(10),
    allowed: Duration::from_secs(10),
    refused: Duration::from_secs(10),
};

/// An authority, and a client's certificate and key signed by it.
struct TlsTestClient {
    authority: String,
    chain: Vec<rustls::pki_types::CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn client(name: &str) -> TlsTestClient {
    client_until(name, SystemTime::now() + Duration::from_secs(3600))
}

fn client_until(name: &str, end: SystemTime) -> TlsTestClient {
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("params");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().expect("key");
    let authority = params.self_signed(&key).expect("authority");
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("params");
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_after = end.into();
    let key = KeyPair::generate().expect("key");
    let certificate = params.signed_by(&key, &issuer).expect("certificate");
    TlsTestClient {
        authority: authority.pem(),
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::try_from(key.serialize_der()).expect("key"),
    }
}

async fn port(review_api: Option<Arc<ScriptedReviewApi>>) -> SocketAddr {
    let api = review_api.map(|review_api| review_api as Arc<dyn ClusterApi>);
    let names = vec!["localhost".to_owned()];
    let port = SecurePort {
        address: "127.0.0.1:0".parse().expect("address"),
        tls: TlsSettings {
            source: CertificateSource::SelfSigned { dir: None, names },
            tls13_only: false,
            cipher_suites: Vec::new(),
            client_authorities: None,
        },
        open_paths: vec!["/healthz".into(), "readyz".into(), "/open/*".into()],
        reviews: Reviews::new(api.clone(), api.clone(), TIMES),
        authority_lookup: api,
        pages: Arc::new(HelloPage),
    };
    let port = port.listen().await.expect("listens");
    let address = port.address().expect("address");
    tokio::spawn(port.serve());
    address
}

#[derive(Debug)]
struct TestServerVerifier;

impl rustls::client::danger::ServerCertVerifier for TestServerVerifier {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

async fn connect(
    address: SocketAddr,
    certificate: Option<&TlsTestClient>,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, std::io::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TestServerVerifier));
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some(client) => builder
            .with_client_auth_cert(client.chain.clone(), client.key.clone_key())
            .expect("client certificate"),
    };
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("name");
    connector.connect(name, stream).await
}

/// Status and body of a page.
async fn get(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
    certificate: Option<&TlsTestClient>,
) -> Result<(u16, String), std::io::Error> {
    let mut stream = connect(address, certificate).await?;
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{token}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    Ok((head[9..12].parse().expect("status"), body.to_owned()))
}

#[tokio::test]
async fn open_paths_are_open_and_others_are_not() {
    let address = port(None).await;
    for path in ["/healthz", "/readyz", "/open/all/below"] {
        let (status, body) = get(address, path, None, None).await.expect("an answer");
        assert_eq!((status, body), (200, format!("page {path}")));
    }
    let (status, body) = get(address, "/metrics", None, None).await.expect("an answer");
    assert_eq!(status, 403);
    assert!(body.contains(r#"User \"system:anonymous\" cannot get path \"/metrics\""#), "{body}");
    // No reviews are possible, so no token is valid.
    let (status, _) = get(address, "/metrics", Some("good"), None).await.expect("an answer");
    assert_eq!(status, 401);
}

#[tokio::test]
async fn tokens_are_reviewed_and_results_cached() {
    let review_api = Arc::new(ScriptedReviewApi::default());
    let address = port(Some(review_api.clone())).await;
    let status = async |path: &str, token: &str| {
        get(address, path, Some(token), None).await.expect("an answer").0
    };
    assert_eq!(status("/metrics", "good").await, 200);
    assert_eq!(review_api.requests.load(Ordering::SeqCst), 2);
    assert_eq!(status("/metrics", "good").await, 200);
    assert_eq!(review_api.requests.load(Ordering::SeqCst), 2);
    assert_eq!(status("/metrics", "bad").await, 401);
    assert_eq!(status("/other", "good").await, 403);
    assert_eq!(status("/healthz", "bad").await, 200);
}

#[tokio::test]
async fn certificates_of_the_clusters_authority_are_taken_and_others_refused() {
    let admin = client("admin");
    let review_api =
        ScriptedReviewApi { authority: admin.authority.clone(), ..ScriptedReviewApi::default() };
    let address = port(Some(Arc::new(review_api))).await;
    let answer = get(address, "/metrics", None, Some(&admin)).await.expect("an answer");
    assert_eq!(answer, (200, "page /metrics".to_owned()));
    let (status, body) = get(address, "/secrets", None, Some(&admin)).await.expect("an answer");
    assert_eq!(status, 403);
    assert!(body.contains(r#"User \"admin\""#), "{body}");
    let unknown_client = client("admin");
    assert!(get(address, "/metrics", None, Some(&unknown_client)).await.is_err());
}

#[tokio::test]
async fn a_certificate_that_expires_while_its_connection_lasts_authenticates_no_longer() {
    let end = SystemTime::now() + Duration::from_secs(2);
    let admin = client_until("admin", end);
    let review_api =
        ScriptedReviewApi { authority: admin.authority.clone(), ..ScriptedReviewApi::default() };
    let address = port(Some(Arc::new(review_api))).await;
    let mut stream = connect(address, Some(&admin)).await.expect("a connection");
    let mut status = async |token: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nhost: x\r\n{token}\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = vec![0; 4096];
        let size = stream.read(&mut answer).await.expect("an answer");
        String::from_utf8_lossy(&answer[9..size.min(12)]).into_owned()
    };
    assert_eq!(status("").await, "200");
    // The expiry time has whole seconds.
    let rest = end.duration_since(SystemTime::now()).unwrap_or_default();
    tokio::time::sleep(rest + Duration::from_millis(100)).await;
    assert_eq!(status("").await, "401");
    assert_eq!(status("authorization: Bearer good\r\n").await, "200");
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_does_not_block_others() {
    let address = port(None).await;
    let mut silent = TcpStream::connect(address).await.expect("connects");
    let mut bytes = [0; 1];
    let read = timeout(HANDSHAKE_TIMEOUT * 2, silent.read(&mut bytes)).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
}
