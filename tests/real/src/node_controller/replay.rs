//! An API server whose nodes' heartbeats are replayed: a proxy in front of the real one that adds
//! lease renewals to the watches of leases.
//!
//! Rule: everything else is the real API server's own: lists, watches of nodes and pods, writes. The
//! renewals are as the real one would send them, in JSON or protobuf as the client asked, one per
//! node in each period. So a crowd of thousands costs the machine no etcd and no writes. A client is
//! whoever it is: the proxy speaks as the administrator.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use node_testkit::bed::{Bed, NODE_ADDRESS};
use node_testkit::start::Subject as CertificateSubject;
use ports::ApiTime;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::cluster::{Cluster, Subject};
use super::hollow::{Hollow, NodeForm, now};
use super::load::{Load, Numbers};
use super::replayed_lease::{Form, renewal};

const ZONES: usize = 10;
const PODS_PER_NODE: usize = 1;
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How finely a period is cut.
const SLICES: u32 = 100;

type Reply = BoxBody<Bytes, std::io::Error>;
type Told = Arc<Mutex<BTreeMap<String, ApiTime>>>;

/// Runs both subjects behind the proxy.
///
/// # Errors
/// When a part fails.
pub async fn run(bed: &Bed, subjects: &[Subject; 2], count: usize) -> Result<[Numbers; 2]> {
    let mut cluster = Cluster::start(bed)?;
    let hollow = Hollow::new(cluster.client.clone(), HEARTBEAT);
    let forms = (0..count)
        .map(|number| NodeForm::in_zone(&format!("n{number}"), &format!("z{}", number % ZONES)));
    eprintln!("making {count} nodes");
    hollow.register(forms.collect()).await?;
    let load = Load::new(&cluster, hollow.clone(), ZONES);
    load.make_pods(count, PODS_PER_NODE).await?;
    load.settle(bed, &cluster, &subjects[0]).await?;
    let proxy = Proxy::start(&cluster, hollow).await?;
    cluster.through = Some(proxy.kubeconfig(bed, &cluster)?);
    tokio::spawn(proxy.serve());
    let mut numbers = Vec::new();
    for subject in subjects {
        numbers.push(load.measure(bed, &cluster, subject).await.context(subject.name())?);
    }
    let numbers: Result<[Numbers; 2], _> = numbers.try_into();
    numbers.ok().context("two subjects")
}

struct Proxy {
    listener: TcpListener,
    state: Arc<State>,
}

struct State {
    hollow: Hollow,
    /// What was replayed last of each node, for those who read a lease past the watch.
    told: Told,
    upstream: SocketAddr,
    client: Arc<rustls::ClientConfig>,
    server: Arc<rustls::ServerConfig>,
}

impl Proxy {
    async fn start(cluster: &Cluster, hollow: Hollow) -> Result<Self> {
        let authority = cluster.plane.authority();
        let names = CertificateSubject {
            common_name: "replay",
            alternative_names: &[NODE_ADDRESS, "127.0.0.1"],
            ..CertificateSubject::default()
        };
        let serving = authority.issue("replay", &names)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain = |file: &PathBuf| -> Result<Vec<CertificateDer<'static>>> {
            let pem = fs::read(file)?;
            Ok(CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>()?)
        };
        let key = |file: &PathBuf| -> Result<PrivateKeyDer<'static>> {
            Ok(PrivateKeyDer::from_pem_slice(&fs::read(file)?)?)
        };
        let mut server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain(&serving.certificate)?, key(&serving.key)?)?;
        server.alpn_protocols = vec![b"h2".to_vec()];
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(chain(&authority.files.certificate)?);
        let admin = cluster.plane.admin_files();
        let mut client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain(&admin.certificate)?, key(&admin.key)?)?;
        client.alpn_protocols = vec![b"h2".to_vec()];
        let url: Uri = cluster.plane.url().parse()?;
        let upstream = format!("{NODE_ADDRESS}:{}", url.port_u16().context("a port")?).parse()?;
        let listener = TcpListener::bind(format!("{NODE_ADDRESS}:0")).await?;
        let (client, server) = (Arc::new(client), Arc::new(server));
        let told = Told::default();
        Ok(Self { listener, state: Arc::new(State { hollow, told, upstream, client, server }) })
    }

    /// A kubeconfig that leads here.
    fn kubeconfig(&self, bed: &Bed, cluster: &Cluster) -> Result<PathBuf> {
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "replay",
            "clusters": [{"name": "replay", "cluster": {
                "server": format!("https://{}", self.listener.local_addr()?),
                "certificate-authority": cluster.plane.authority().files.certificate,
            }}],
            "users": [{"name": "replay", "user": {}}],
            "contexts": [{"name": "replay", "context": {"cluster": "replay", "user": "replay"}}],
        });
        let path = bed.folder().join("replay.kubeconfig");
        fs::write(&path, content.to_string())?;
        Ok(path)
    }

    async fn serve(self) {
        while let Ok((stream, _)) = self.listener.accept().await {
            let state = self.state.clone();
            tokio::spawn(async move {
                if let Err(error) = serve_connection(stream, state).await {
                    eprintln!("replay: {error:#}");
                }
            });
        }
    }
}

async fn serve_connection(stream: TcpStream, state: Arc<State>) -> Result<()> {
    let acceptor = tokio_rustls::TlsAcceptor::from(state.server.clone());
    let stream = acceptor.accept(stream).await?;
    let upstream = connect(&state).await?;
    let service = service_fn(move |request: Request<Incoming>| {
        let (state, upstream) = (state.clone(), upstream.clone());
        async move {
            let reply = forward(state, upstream, request).await.unwrap_or_else(|error| {
                eprintln!("replay: {error:#}");
                let body = http_body_util::Empty::new().map_err(|never: Infallible| match never {});
                let mut reply = Response::new(body.boxed());
                *reply.status_mut() = hyper::StatusCode::BAD_GATEWAY;
                reply
            });
            Ok::<_, Infallible>(reply)
        }
    });
    // Ends with its client; that is no failure.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    Ok(())
}

async fn connect(state: &State) -> Result<SendRequest<Incoming>> {
    let stream = TcpStream::connect(state.upstream).await?;
    let connector = tokio_rustls::TlsConnector::from(state.client.clone());
    let stream = connector.connect(ServerName::try_from(NODE_ADDRESS)?, stream).await?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn forward(
    state: Arc<State>,
    mut upstream: SendRequest<Incoming>,
    mut request: Request<Incoming>,
) -> Result<Response<Reply>> {
    let path = request.uri().path_and_query().context("a path")?.as_str().to_owned();
    *request.uri_mut() = format!("https://{}{path}", state.upstream).parse()?;
    let (file, query) = path.split_once('?').unwrap_or((&path, ""));
    let watches = query.split('&').any(|it| matches!(it, "watch=1" | "watch=true"));
    // A leader's own lease is watched by name.
    let leases = file.ends_with("/leases") && !query.contains("metadata.name");
    let read = (request.method() == hyper::Method::GET)
        .then(|| file.split_once("/kube-node-lease/leases/").map(|(_, node)| node.to_owned()))
        .flatten();
    let reply = upstream.send_request(request).await?;
    if let Some(node) = read {
        return as_replayed(&state, reply, &node).await;
    }
    if !(watches && leases && reply.status().is_success()) {
        return Ok(reply.map(|body| body.map_err(std::io::Error::other).boxed()));
    }
    let kind = reply.headers().get("content-type").and_then(|it| it.to_str().ok()).unwrap_or("");
    let form = if kind.contains("protobuf") { Form::Protobuf } else { Form::Json };
    Ok(reply.map(|body| splice(state.hollow.clone(), state.told.clone(), body, form)))
}

/// A lease that somebody reads, as it would stand if what was replayed had been written.
async fn as_replayed(
    state: &State,
    reply: Response<Incoming>,
    node: &str,
) -> Result<Response<Reply>> {
    let told = state.told.lock().unwrap_or_else(PoisonError::into_inner).get(node).copied();
    let (mut head, body) = reply.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let bytes = match (told, serde_json::from_slice::<serde_json::Value>(&bytes)) {
        (Some(time), Ok(mut lease)) => {
            lease["spec"]["renewTime"] = json!(time.to_micros_text());
            Bytes::from(lease.to_string())
        }
        // Not one of ours, or not in JSON: nobody who reads leases asks for anything else.
        _ => bytes,
    };
    head.headers.remove("content-length");
    let body = http_body_util::Full::new(bytes).map_err(|never: Infallible| match never {});
    Ok(Response::from_parts(head, body.boxed()))
}

/// The real watch with renewals between its frames.
fn splice(hollow: Hollow, told: Told, mut real: Incoming, form: Form) -> Reply {
    let (frames, received) = mpsc::channel::<Bytes>(256);
    let renewals = frames.clone();
    tokio::spawn(async move {
        let mut rest = BytesMut::new();
        while let Some(Ok(frame)) = real.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            rest.extend_from_slice(&data);
            // Whole frames only, so that a renewal never falls into the middle of one.
            while let Some(length) = form.whole_frame(&rest) {
                if frames.send(rest.split_to(length).freeze()).await.is_err() {
                    return;
                }
            }
        }
    });
    tokio::spawn(replay(hollow, told, renewals, form));
    ReceivedFrames(received).boxed()
}

/// Frames as the body of a reply.
struct ReceivedFrames(mpsc::Receiver<Bytes>);

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

/// Sends one renewal per beating node and period, evenly, until nobody receives.
async fn replay(hollow: Hollow, told: Told, frames: mpsc::Sender<Bytes>, form: Form) {
    let mut slices = tokio::time::interval(HEARTBEAT / SLICES);
    // What was listed must be known before it changes.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut slice = 0;
    loop {
        slices.tick().await;
        let nodes = hollow.share(slice, SLICES);
        slice = (slice + 1) % SLICES;
        for node in nodes {
            let time = now();
            let frame = renewal(form, &node, time);
            told.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone(), time);
            if frames.send(frame).await.is_err() {
                return;
            }
            hollow.heard(&node);
        }
    }
}
