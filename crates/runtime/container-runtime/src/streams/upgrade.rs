//! The upgrade from HTTP to SPDY or WebSocket, and the choice of the subprotocol.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use stream_frames::channels::{self, ChannelProtocol, SPDY_PROTOCOLS};
use stream_frames::websocket::accept_key;
use tokio::net::TcpStream;

use super::connection::StreamSocket;
use super::{StreamRequest, StreamSlot, commands, forward, spdy_transport, websocket_transport};
use crate::runtime::Runtime;

pub(super) type UpgradeBody = Full<Bytes>;

/// An upgraded connection, and data that was received before the upgrade.
#[derive(Debug)]
pub(super) struct UpgradedSocket {
    pub(super) stream: StreamSocket,
    pub(super) early: Bytes,
}

impl UpgradedSocket {
    fn of(upgraded: Upgraded) -> Option<Self> {
        let parts = upgraded.downcast::<TokioIo<TcpStream>>().ok()?;
        Some(Self { stream: StreamSocket::Tcp(parts.io.into_inner()), early: parts.read_buf })
    }

    /// A connection that was never HTTP.
    pub(super) fn given(connection: OwnedFd, early: Vec<u8>) -> std::io::Result<Self> {
        Ok(Self { stream: StreamSocket::of_descriptor(connection)?, early: early.into() })
    }
}

const SPDY: &str = "SPDY/3.1";
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
const FORWARD_PROTOCOL: &str = "portforward.k8s.io";
/// The protocol of commands; see [`cri_wire::InProcessStream`].
const GIVEN_PROTOCOL: &str = "v4.channel.k8s.io";

/// The transport of the channels.
#[derive(Debug, Clone)]
pub(super) enum StreamCarrier {
    Spdy { protocol: String },
    WebSocket { protocol: ChannelProtocol },
}

impl StreamCarrier {
    /// Of a passed connection, which has no negotiation.
    pub(super) fn of_given() -> Self {
        Self::Spdy { protocol: GIVEN_PROTOCOL.to_owned() }
    }
}

pub(super) fn error_response(status: u16, text: &str) -> Response<UpgradeBody> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    // One request per connection.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    response
}

fn tokens_of(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|word| word.trim().to_owned())
        .filter(|word| !word.is_empty())
        .collect()
}

/// Answers with 101 and upgrades, or with an error. The permit is held until the stream ends.
pub(super) fn begin<F>(
    forwarding: bool,
    mut request: Request<Incoming>,
    slot: StreamSlot,
    serve_stream: impl FnOnce(StreamCarrier, UpgradedSocket) -> F + Send + 'static,
) -> Response<UpgradeBody>
where
    F: Future<Output = ()> + Send + 'static,
{
    let upgrades = tokens_of(request.headers(), "upgrade");
    let asked = |name: &str| upgrades.iter().any(|word| word.eq_ignore_ascii_case(name));
    let agreed = if asked("websocket") {
        by_websocket(request.headers())
    } else if asked(SPDY) {
        by_spdy(request.headers(), forwarding)
    } else {
        Err((400, "unable to upgrade: missing upgrade headers in request".to_owned()))
    };
    let (response, carrier) = match agreed {
        Ok(agreed) => agreed,
        Err((status, text)) => return error_response(status, &text),
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await.map(UpgradedSocket::of) {
            Ok(Some(socket)) => serve_stream(carrier, socket).await,
            Ok(None) => tracing::error!("a stream is not on the connection that was accepted"),
            Err(error) => tracing::debug!(%error, "a stream was not upgraded"),
        }
        drop(slot);
    });
    response
}

type Negotiated = Result<(Response<UpgradeBody>, StreamCarrier), (u16, String)>;

fn by_websocket(headers: &HeaderMap) -> Negotiated {
    let key = headers.get("sec-websocket-key").and_then(|key| key.to_str().ok());
    let key = key.ok_or((400, "a WebSocket request without a key".to_owned()))?;
    if tokens_of(headers, "sec-websocket-version") != ["13"] {
        return Err((400, "WebSocket version 13 is needed".to_owned()));
    }
    let offered = tokens_of(headers, "sec-websocket-protocol");
    let protocol = channels::negotiate(&offered)
        .ok_or_else(|| (403, format!("no protocol of {} is known", offered.join(", "))))?;
    let mut builder = Response::builder()
        .status(101)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header("sec-websocket-accept", accept_key(key));
    if !protocol.name.is_empty() {
        builder = builder.header("sec-websocket-protocol", protocol.name);
    }
    finished(builder, StreamCarrier::WebSocket { protocol })
}

fn by_spdy(headers: &HeaderMap, forwarding: bool) -> Negotiated {
    let offered = tokens_of(headers, STREAM_PROTOCOL);
    let known: &[&str] = if forwarding { &[FORWARD_PROTOCOL] } else { SPDY_PROTOCOLS };
    // Clients without the header are older than it.
    let protocol = if offered.is_empty() {
        known.last().copied()
    } else {
        known.iter().find(|known| offered.iter().any(|offer| offer == *known)).copied()
    };
    let protocol = protocol.ok_or_else(|| {
        let text = format!(
            "unable to upgrade: client offers {}, this server knows {}",
            offered.join(", "),
            known.join(", ")
        );
        (403, text)
    })?;
    let builder = Response::builder()
        .status(101)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, SPDY)
        .header(STREAM_PROTOCOL, protocol);
    finished(builder, StreamCarrier::Spdy { protocol: protocol.to_owned() })
}

fn finished(builder: hyper::http::response::Builder, carrier: StreamCarrier) -> Negotiated {
    let response = builder.body(Full::default()).map_err(|error| (500, error.to_string()))?;
    Ok((response, carrier))
}

/// Runs the request on its connection.
pub(super) async fn serve_stream(
    runtime: Runtime,
    wanted: StreamRequest,
    carrier: StreamCarrier,
    socket: UpgradedSocket,
) {
    match (wanted, carrier) {
        (StreamRequest::PortForward(request), carrier) => {
            let dialer = match runtime.dialer(&request.pod_sandbox_id) {
                Ok(dialer) => dialer,
                Err(failure) => return tracing::debug!(%failure, "a port-forward did not begin"),
            };
            match carrier {
                StreamCarrier::Spdy { .. } => forward::over_spdy(dialer, socket).await,
                StreamCarrier::WebSocket { protocol } => {
                    forward::over_websocket(dialer, &request.port, protocol, socket).await;
                }
            }
        }
        (command, carrier) => {
            let streams = commands::streams_of(&command);
            let session = match carrier {
                StreamCarrier::Spdy { protocol } => {
                    spdy_transport::begin(socket, &protocol, streams).await
                }
                StreamCarrier::WebSocket { protocol } => {
                    Ok(websocket_transport::begin(socket, protocol, streams))
                }
            };
            match session {
                Ok(session) => commands::run(&runtime, command, session).await,
                Err(why) => tracing::debug!(why, "a stream did not begin"),
            }
        }
    }
}
