//! A proxy before the real API server: it terminates TLS, authenticates with the given client
//! certificate, and lets a handler decide on each request.
//!
//! Rule: it changes nothing by itself. Each client connection has its own connection to the API
//! server.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use node_testkit::bed::{Bed, NODE_ADDRESS};
use node_testkit::start::{CertificateSubject, KeyAndCertificate};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

use super::cluster::TestCluster;

pub(super) type ProxyBody = BoxBody<Bytes, std::io::Error>;

/// Decides how a request is handled.
pub(super) trait RequestHandler: Send + Sync + 'static {
    /// The response; `None` to close the connection with everything in flight on it.
    fn answer(
        self: Arc<Self>,
        upstream: Upstream,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Option<Response<ProxyBody>>>> + Send;
}

/// The proxy.
pub(super) struct ApiServerProxy {
    name: &'static str,
    listener: TcpListener,
    config: Arc<ProxyConfig>,
}

struct ProxyConfig {
    upstream: SocketAddr,
    client: Arc<rustls::ClientConfig>,
    server: Arc<rustls::ServerConfig>,
}

/// A connection to the real API server.
#[derive(Clone)]
pub(super) struct Upstream {
    sender: SendRequest<Incoming>,
    address: SocketAddr,
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = fs::read(file)?;
    Ok(CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>()?)
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>> {
    Ok(PrivateKeyDer::from_pem_slice(&fs::read(file)?)?)
}

impl ApiServerProxy {
    /// Starts it; all requests reach the API server with the credentials in these files.
    pub(super) async fn open(
        name: &'static str,
        cluster: &TestCluster,
        client_identity: &KeyAndCertificate,
    ) -> Result<Self> {
        let authority = cluster.plane.authority();
        let names = CertificateSubject {
            common_name: name,
            alternative_names: &[NODE_ADDRESS, "127.0.0.1"],
            ..CertificateSubject::default()
        };
        let serving = authority.issue(name, &names)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain(&serving.certificate)?, key(&serving.key)?)?;
        server.alpn_protocols = vec![b"h2".to_vec()];
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(chain(&authority.files.certificate)?);
        let mut client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                chain(&client_identity.certificate)?,
                key(&client_identity.key)?,
            )?;
        client.alpn_protocols = vec![b"h2".to_vec()];
        let url: Uri = cluster.plane.url().parse()?;
        let upstream = format!("{NODE_ADDRESS}:{}", url.port_u16().context("a port")?).parse()?;
        let listener = TcpListener::bind(format!("{NODE_ADDRESS}:0")).await?;
        let config = ProxyConfig { upstream, client: Arc::new(client), server: Arc::new(server) };
        Ok(Self { name, listener, config: Arc::new(config) })
    }

    /// A kubeconfig for the proxy.
    pub(super) fn kubeconfig(&self, bed: &Bed, cluster: &TestCluster) -> Result<PathBuf> {
        let name = self.name;
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {
                "server": format!("https://{}", self.listener.local_addr()?),
                "certificate-authority": cluster.plane.authority().files.certificate,
            }}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        });
        let path = bed.dir().join(format!("{name}.kubeconfig"));
        fs::write(&path, content.to_string())?;
        Ok(path)
    }

    /// Serves until it is dropped.
    pub(super) async fn serve<K: RequestHandler>(self, handler: Arc<K>) {
        let name = self.name;
        while let Ok((stream, _)) = self.listener.accept().await {
            let (config, handler) = (self.config.clone(), handler.clone());
            tokio::spawn(async move {
                if let Err(error) = serve_connection(stream, config, (name, handler)).await {
                    eprintln!("{name}: {error:#}");
                }
            });
        }
    }
}

async fn serve_connection<K: RequestHandler>(
    stream: TcpStream,
    config: Arc<ProxyConfig>,
    (name, handler): (&'static str, Arc<K>),
) -> Result<()> {
    let acceptor = tokio_rustls::TlsAcceptor::from(config.server.clone());
    let stream = acceptor.accept(stream).await?;
    let upstream = config.connect().await?;
    let cut = Arc::new(Notify::new());
    let cutting = cut.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, upstream, cut) = (handler.clone(), upstream.clone(), cutting.clone());
        async move {
            let reply = match handler.answer(upstream, request).await {
                Ok(Some(reply)) => reply,
                Ok(None) => {
                    cut.notify_one();
                    std::future::pending().await
                }
                Err(error) => {
                    eprintln!("{name}: {error:#}");
                    status(StatusCode::BAD_GATEWAY, &Value::Null)
                }
            };
            Ok::<_, Infallible>(reply)
        }
    });
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // Ends with its client; that is no failure.
        _ = serving => {}
        () = cut.notified() => {}
    }
    Ok(())
}

impl ProxyConfig {
    async fn connect(&self) -> Result<Upstream> {
        let stream = TcpStream::connect(self.upstream).await?;
        let connector = tokio_rustls::TlsConnector::from(self.client.clone());
        let stream = connector.connect(ServerName::try_from(NODE_ADDRESS)?, stream).await?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await?;
        tokio::spawn(connection);
        Ok(Upstream { sender, address: self.upstream })
    }
}

impl Upstream {
    /// Sends a request to the real API server.
    pub(super) async fn ask(
        &mut self,
        mut request: Request<Incoming>,
    ) -> Result<Response<Incoming>> {
        let path = request.uri().path_and_query().context("a path")?.as_str().to_owned();
        *request.uri_mut() = format!("https://{}{path}", self.address).parse()?;
        Ok(self.sender.send_request(request).await?)
    }
}

/// Whether a request is a watch.
pub(super) fn is_watch(request: &Request<Incoming>) -> bool {
    let query = request.uri().query().unwrap_or("");
    query.split('&').any(|it| matches!(it, "watch=1" | "watch=true"))
}

/// The real response, unchanged.
pub(super) fn unchanged(reply: Response<Incoming>) -> Response<ProxyBody> {
    reply.map(|body| body.map_err(std::io::Error::other).boxed())
}

/// A complete body.
pub(super) fn whole(bytes: Bytes) -> ProxyBody {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed()
}

/// A response of the proxy itself.
pub(super) fn status(code: StatusCode, body: &Value) -> Response<ProxyBody> {
    let mut reply = Response::new(whole(Bytes::from(body.to_string())));
    *reply.status_mut() = code;
    let json = hyper::header::HeaderValue::from_static("application/json");
    reply.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    reply
}

/// Frames as the body of a response.
pub(super) struct ReceivedFrames(pub(super) mpsc::Receiver<Bytes>);

impl hyper::body::Body for ReceivedFrames {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(context).map(|it| it.map(|bytes| Ok(Frame::data(bytes))))
    }
}
