//! The upgrade from HTTP to SPDY or WebSocket, and the choice of the subprotocol.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use stream_frames::channels::{self, Protocol, SPDY_PROTOCOLS};
use stream_frames::websocket::accept_key;
use tokio::net::TcpStream;

use super::connection::Connection;
use super::{Place, Wanted, commands, forward, spdy_transport, websocket_transport};
use crate::runtime::Runtime;

pub(super) type Body = Full<Bytes>;

/// An upgraded connection, and data that was received before the upgrade.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: Connection,
    pub(super) early: Bytes,
}

impl Socket {
    fn of(upgraded: Upgraded) -> Option<Self> {
        let parts = upgraded.downcast::<TokioIo<TcpStream>>().ok()?;
        Some(Self { stream: Connection::Tcp(parts.io.into_inner()), early: parts.read_buf })
    }

    /// A connection that was never HTTP.
    pub(super) fn given(connection: OwnedFd, early: Vec<u8>) -> std::io::Result<Self> {
        Ok(Self { stream: Connection::of_descriptor(connection)?, early: early.into() })
    }
}

const SPDY: &str = "SPDY/3.1";
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
const FORWARD_PROTOCOL: &str = "portforward.k8s.io";
/// The protocol of commands; see [`cri_wire::OpenStream`].
const GIVEN_PROTOCOL: &str = "v4.channel.k8s.io";

/// The transport of the channels.
#[derive(Debug, Clone)]
pub(super) enum Carrier {
    Spdy { protocol: String },
    WebSocket { protocol: Protocol },
}

impl Carrier {
    /// Of a passed connection, which has no negotiation.
    pub(super) fn of_given() -> Self {
        Self::Spdy { protocol: GIVEN_PROTOCOL.to_owned() }
    }
}

pub(super) fn refusal(status: u16, text: &str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    // One request per connection.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    response
}

fn words(headers: &HeaderMap, name: &str) -> Vec<String> {
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
    place: Place,
    go_on: impl FnOnce(Carrier, Socket) -> F + Send + 'static,
) -> Response<Body>
where
    F: Future<Output = ()> + Send + 'static,
{
    let upgrades = words(request.headers(), "upgrade");
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
        Err((status, text)) => return refusal(status, &text),
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await.map(Socket::of) {
            Ok(Some(socket)) => go_on(carrier, socket).await,
            Ok(None) => tracing::error!("a stream is not on the connection that was accepted"),
            Err(error) => tracing::debug!(%error, "a stream was not upgraded"),
        }
        drop(place);
    });
    response
}

type Agreed = Result<(Response<Body>, Carrier), (u16, String)>;

fn by_websocket(headers: &HeaderMap) -> Agreed {
    let key = headers.get("sec-websocket-key").and_then(|key| key.to_str().ok());
    let key = key.ok_or((400, "a WebSocket request without a key".to_owned()))?;
    if words(headers, "sec-websocket-version") != ["13"] {
        return Err((400, "WebSocket version 13 is needed".to_owned()));
    }
    let offered = words(headers, "sec-websocket-protocol");
    let protocol = channels::agree(&offered)
        .ok_or_else(|| (403, format!("no protocol of {} is known", offered.join(", "))))?;
    let mut builder = Response::builder()
        .status(101)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header("sec-websocket-accept", accept_key(key));
    if !protocol.name.is_empty() {
        builder = builder.header("sec-websocket-protocol", protocol.name);
    }
    finished(builder, Carrier::WebSocket { protocol })
}

fn by_spdy(headers: &HeaderMap, forwarding: bool) -> Agreed {
    let offered = words(headers, STREAM_PROTOCOL);
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
    finished(builder, Carrier::Spdy { protocol: protocol.to_owned() })
}

fn finished(builder: hyper::http::response::Builder, carrier: Carrier) -> Agreed {
    let response = builder.body(Full::default()).map_err(|error| (500, error.to_string()))?;
    Ok((response, carrier))
}

/// Runs the request on its connection.
pub(super) async fn go_on(runtime: Runtime, wanted: Wanted, carrier: Carrier, socket: Socket) {
    match (wanted, carrier) {
        (Wanted::PortForward(request), carrier) => {
            let door = match runtime.door(&request.pod_sandbox_id) {
                Ok(door) => door,
                Err(failure) => return tracing::debug!(%failure, "a port-forward did not begin"),
            };
            match carrier {
                Carrier::Spdy { .. } => forward::over_spdy(door, socket).await,
                Carrier::WebSocket { protocol } => {
                    forward::over_websocket(door, &request.port, protocol, socket).await;
                }
            }
        }
        (command, carrier) => {
            let streams = commands::streams_of(&command);
            let session = match carrier {
                Carrier::Spdy { protocol } => {
                    spdy_transport::begin(socket, &protocol, streams).await
                }
                Carrier::WebSocket { protocol } => {
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
