//! One request and its response.
//!
//! Rule: the connection lives as long as this call; dropping the call closes it. No task is
//! spawned.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::http_error::{HttpError, from_hyper, from_io};
use crate::target::RequestTarget;
use crate::tcp_connection::TcpConnection;
use crate::tls::server_name;

/// What to ask for.
#[derive(Debug, Clone)]
pub struct GetRequest<'a> {
    pub target: &'a RequestTarget,
    /// Sent as they are; a `Host` among them replaces the target's.
    pub headers: &'a [(String, String)],
    /// How much of the body is kept.
    pub body_limit: usize,
    /// Needed if the target is https.
    pub tls: Option<Arc<ClientConfig>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetResponse {
    pub status: u16,
    pub location: Option<String>,
    pub body: Vec<u8>,
    /// The body had at least one byte more than the limit.
    pub truncated: bool,
}

/// Sends a GET over a connection and reads the response.
pub async fn exchange(
    tcp_connection: TcpConnection,
    get_request: &GetRequest<'_>,
) -> Result<GetResponse, HttpError> {
    let request = request(get_request)?;
    let peer = tcp_connection.peer();
    if !get_request.target.secure {
        return send_and_read(tcp_connection, request, get_request.body_limit, peer).await;
    }
    let Some(tls) = get_request.tls.clone() else {
        return Err(HttpError::Tls("no settings for https".to_owned()));
    };
    let handshake =
        TlsConnector::from(tls).connect(server_name(&get_request.target.host), tcp_connection);
    match handshake.into_fallible().await {
        Ok(stream) => send_and_read(stream, request, get_request.body_limit, peer).await,
        Err((_, tcp_connection)) if tcp_connection.first_bytes().starts_with(b"HTTP/") => {
            Err(HttpError::PlainHttp)
        }
        Err((error, _)) => {
            match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(tls_error) => Err(HttpError::Tls(tls_error.to_string())),
                None => Err(from_io(&error, peer)),
            }
        }
    }
}

fn request(get_request: &GetRequest<'_>) -> Result<Request<Empty<Bytes>>, HttpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in get_request.headers {
        let field = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
            HttpError::Request(format!("net/http: invalid header field name {name:?}"))
        })?;
        let content = HeaderValue::from_str(value).map_err(|_| {
            HttpError::Request(format!("net/http: invalid header field value for {name:?}"))
        })?;
        headers.append(field, content);
    }
    if !headers.contains_key(hyper::header::HOST) {
        let host = HeaderValue::from_str(&get_request.target.authority())
            .map_err(|error| HttpError::Request(error.to_string()))?;
        headers.insert(hyper::header::HOST, host);
    }
    headers.insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
    let mut request = Request::get(get_request.target.path.as_str())
        .body(Empty::new())
        .map_err(|error| HttpError::Request(error.to_string()))?;
    *request.headers_mut() = headers;
    Ok(request)
}

async fn send_and_read<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    limit: usize,
    peer: std::net::SocketAddr,
) -> Result<GetResponse, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| from_hyper(&error, peer);
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .title_case_headers(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let conversation = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        answer(response, limit).await
    };
    tokio::pin!(conversation, connection);
    tokio::select! {
        biased;
        answer = &mut conversation => return answer,
        // The data that the connection has read is still to be consumed; its error is reported by
        // the exchange.
        _done = &mut connection => {}
    }
    conversation.await
}

async fn answer(response: Response<Incoming>, limit: usize) -> Result<GetResponse, HttpError> {
    let (head, mut body) = response.into_parts();
    let location = head.headers.get(hyper::header::LOCATION);
    let location = location.map(|header| String::from_utf8_lossy(header.as_bytes()).into_owned());
    let mut kept = Vec::new();
    let mut truncated = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| HttpError::CutShort)?;
        let Some(data) = frame.data_ref() else { continue };
        let room = limit - kept.len();
        kept.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            truncated = true;
            break;
        }
    }
    Ok(GetResponse { status: head.status.as_u16(), location, body: kept, truncated })
}
