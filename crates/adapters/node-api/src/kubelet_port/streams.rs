//! Exec, attach and port-forward on the kubelet's port.
//!
//! Rule: the runtime's stream is passed on byte by byte, whatever protocol client and runtime
//! agree on: from its one-time address, or, for a runtime in this process, over a socket pair (a
//! TLS connection cannot be handed over as a descriptor). Streams have a limit of their own, so that
//! neither log followers nor scrapers lock them out. Codes and texts are upstream's
//! (pkg/kubelet/server/server.go; cri-streaming pkg/streaming/errors.go).

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use http_server::{Body, HandlerResponse, WorkPermit, WorkPermits};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, UPGRADE};
use hyper::http::request::Parts;
use hyper::upgrade::Upgraded;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use ports::local_api::LocalApiError;
use ports::local_runtime::{
    CarryStream, LocalCommand, LocalRuntime, LocalStreamRequest, STREAM_UPGRADE, StreamEndpoint,
};
use ports::{LocalApi, PortFuture};
use tokio::net::UnixStream;
use tracing::{error, info};

use super::pods;
use super::query::QueryParameters;
use super::relay::relay;
use super::reply::{KubeletReply, TEXT};
use super::route::{ContainerPath, PodRoute};
use super::upgrade::{UpgradeAnswer, UpgradeError, asks_upgrade, asks_websocket, upgrade_at};

/// Streams that are open at the same time.
const STREAM_PERMITS: usize = 256;
/// Streams have no limit but their idle time; a connection's deadline must be some time.
const NO_LIMIT: Duration = Duration::from_hours(24 * 365);
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
/// What a runtime in this process speaks.
const COMMAND_PROTOCOL: &str = "v4.channel.k8s.io";
const FORWARD_PROTOCOL: &str = "portforward.k8s.io";

/// What is to be streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamRoute<'a> {
    Exec(ContainerPath<'a>),
    Attach(ContainerPath<'a>),
    PortForward(PodRoute<'a>),
}

impl StreamRoute<'_> {
    /// The protocol of a stream in this process.
    fn protocol(self) -> &'static str {
        match self {
            Self::Exec(_) | Self::Attach(_) => COMMAND_PROTOCOL,
            Self::PortForward(_) => FORWARD_PROTOCOL,
        }
    }
}

/// Serves streams.
pub(super) struct PortStreams {
    runtime: Option<Arc<dyn LocalRuntime>>,
    permits: WorkPermits,
    /// `streamingConnectionIdleTimeout`; zero for none.
    idle: Duration,
}

impl PortStreams {
    pub(super) fn new(runtime: Option<Arc<dyn LocalRuntime>>, idle: Duration) -> Self {
        Self { runtime, permits: WorkPermits::new(STREAM_PERMITS), idle }
    }

    pub(super) async fn answer(
        &self,
        local: &dyn LocalApi,
        route: StreamRoute<'_>,
        client: &Parts,
    ) -> Result<HandlerResponse, KubeletReply> {
        let wanted = stream_request(local, route, client)?;
        if !asks_upgrade(&client.headers) {
            return Err(KubeletReply::text(500, "Upgrade request required\n"));
        }
        let permit = self.permits.try_acquire().ok_or_else(KubeletReply::too_many)?;
        let runtime = self.runtime.as_ref().ok_or_else(no_runtime)?;
        // A WebSocket needs the runtime's own server.
        let endpoint = if asks_websocket(&client.headers) {
            runtime.address(wanted).await.map(StreamEndpoint::Address)
        } else {
            runtime.stream(wanted).await
        };
        match endpoint.map_err(|error| runtime_error(&error))? {
            StreamEndpoint::Address(stream) => self.at_address(&stream.url, client, permit).await,
            StreamEndpoint::Here(carry) => {
                self.in_process(carry, route.protocol(), &client.headers, permit)
            }
        }
    }

    async fn at_address(
        &self,
        url: &str,
        client: &Parts,
        permit: WorkPermit,
    ) -> Result<HandlerResponse, KubeletReply> {
        match upgrade_at(url, client).await.map_err(|error| upgrade_error(&error))? {
            UpgradeAnswer::Upgraded { headers, connection } => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                *response.headers_mut() = headers;
                let idle = self.idle;
                Ok(upgraded(response, permit, move |client| async move {
                    relay(TokioIo::new(client), TokioIo::new(connection), idle).await;
                }))
            }
            UpgradeAnswer::Rejected { status, content_type, body } => {
                let mut response = Response::new(Body::whole(body));
                *response.status_mut() = status;
                let text = || HeaderValue::from_static(TEXT);
                let content_type = content_type.unwrap_or_else(text);
                response.headers_mut().insert(CONTENT_TYPE, content_type);
                Ok(HandlerResponse::new(response).with_permit(permit))
            }
        }
    }

    /// The stream of a runtime in this process.
    fn in_process(
        &self,
        carry: CarryStream,
        protocol: &'static str,
        headers: &HeaderMap,
        permit: WorkPermit,
    ) -> Result<HandlerResponse, KubeletReply> {
        check_protocol(headers, protocol)?;
        let pair = UnixStream::pair().and_then(|(ours, theirs)| Ok((ours, theirs.into_std()?)));
        let (ours, theirs) = pair.map_err(|error: io::Error| {
            KubeletReply::text(500, format!("cannot open a stream: {error}\n"))
        })?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(STREAM_UPGRADE));
        headers.insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
        let idle = self.idle;
        Ok(upgraded(response, permit, move |client| async move {
            // The stream ends with the relay: its end of the pair sees the end of the other.
            let stream = carry(OwnedFd::from(theirs), Vec::new());
            tokio::join!(relay(TokioIo::new(client), ours, idle), stream);
        }))
    }
}

fn upgraded<F>(
    response: Response<Body>,
    permit: WorkPermit,
    task: impl FnOnce(Upgraded) -> F + Send + 'static,
) -> HandlerResponse
where
    F: Future<Output = ()> + Send + 'static,
{
    let task = Box::new(move |client| Box::pin(task(client)) as PortFuture<'static, ()>);
    HandlerResponse::upgrade(response, NO_LIMIT, task).with_permit(permit)
}

/// What the runtime is asked for.
fn stream_request(
    local: &dyn LocalApi,
    route: StreamRoute<'_>,
    client: &Parts,
) -> Result<LocalStreamRequest, KubeletReply> {
    let query = QueryParameters::parse(client.uri.query().unwrap_or_default());
    match route {
        StreamRoute::Exec(path) => {
            let mut command = streams(&query)?;
            command.command = query.all("command").map(str::to_owned).collect();
            let container = pods::container_to_exec(local, path)?.id;
            Ok(LocalStreamRequest::Exec { container, command })
        }
        StreamRoute::Attach(path) => {
            let command = streams(&query)?;
            let (container, tty) = pods::container_to_attach(local, path)?;
            let command = LocalCommand { tty, ..command };
            Ok(LocalStreamRequest::Attach { container: container.id, command })
        }
        StreamRoute::PortForward(path) => {
            if asks_websocket(&client.headers) {
                forwarded_ports(&query)?;
            }
            Ok(LocalStreamRequest::Forward { pod: pods::pod_to_forward(local, path)? })
        }
    }
}

/// upstream: cri-streaming pkg/streaming/remotecommand (NewOptions)
fn streams(query: &QueryParameters) -> Result<LocalCommand, KubeletReply> {
    let tty = query.is_one("tty");
    let (stdin, stdout) = (query.is_one("input"), query.is_one("output"));
    let stderr = query.is_one("error") && !tty;
    if !stdin && !stdout && !stderr {
        let text = "you must specify at least 1 of stdin, stdout, stderr";
        return Err(KubeletReply::text(400, text));
    }
    Ok(LocalCommand { command: Vec::new(), stdin, stdout, stderr, tty })
}

/// The ports of a WebSocket client, which cannot name them later.
/// upstream: cri-streaming pkg/streaming/portforward (NewV4Options)
fn forwarded_ports(query: &QueryParameters) -> Result<Vec<u16>, KubeletReply> {
    let invalid = |text: String| KubeletReply::text(400, text);
    let mut ports = Vec::new();
    for value in query.all("port") {
        if value.is_empty() {
            return Err(invalid("query parameter \"port\" cannot be empty".to_owned()));
        }
        for text in value.split(',') {
            let port: u16 = text.parse().map_err(|error| {
                invalid(format!("unable to parse {value:?} as a port: {error}"))
            })?;
            if port == 0 {
                return Err(invalid(format!("port {value:?} must be > 0")));
            }
            ports.push(port);
        }
    }
    if ports.is_empty() {
        return Err(invalid("query parameter \"port\" is required".to_owned()));
    }
    Ok(ports)
}

/// Clients without the header are older than it and speak what the server speaks.
fn check_protocol(headers: &HeaderMap, protocol: &str) -> Result<(), KubeletReply> {
    let values = headers.get_all(STREAM_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    if offered.is_empty() || offered.contains(&protocol) {
        return Ok(());
    }
    let text = format!(
        "unable to upgrade: unable to negotiate protocol: client supports {offered:?}, server \
         accepts [{protocol:?}]"
    );
    Err(KubeletReply::text(403, text))
}

pub(super) fn no_runtime() -> KubeletReply {
    KubeletReply::text(500, "the container runtime has no streams\n")
}

/// upstream: cri-streaming pkg/streaming/errors.go (WriteError)
pub(super) fn runtime_error(error: &LocalApiError) -> KubeletReply {
    let status = if matches!(error, LocalApiError::NotFound { .. }) { 404 } else { 500 };
    info!(v = 2, err = %error, "The runtime opened no stream");
    KubeletReply::text(status, error.to_string())
}

fn upgrade_error(error: &UpgradeError) -> KubeletReply {
    error!(err = %error, "Error while proxying request");
    KubeletReply::text(500, format!("{error}\n"))
}
