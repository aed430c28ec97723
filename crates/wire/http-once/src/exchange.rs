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

use crate::failure::{Failure, of_hyper, of_io};
use crate::line::Line;
use crate::target::Target;
use crate::tls::server_name;

/// What to ask for.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    pub target: &'a Target,
    /// Sent as they are; a `Host` among them replaces the target's.
    pub headers: &'a [(String, String)],
    /// How much of the body is kept.
    pub body_limit: usize,
    /// Needed if the target is https.
    pub tls: Option<Arc<ClientConfig>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub location: Option<String>,
    pub body: Vec<u8>,
    /// The body had at least one byte more than the limit.
    pub truncated: bool,
}

/// Sends a GET over a connection and reads the response.
pub async fn exchange(line: Line, ask: &Ask<'_>) -> Result<Answer, Failure> {
    let request = request(ask)?;
    let peer = line.peer();
    if !ask.target.secure {
        return talk(line, request, ask.body_limit, peer).await;
    }
    let Some(tls) = ask.tls.clone() else {
        return Err(Failure::Tls("no settings for https".to_owned()));
    };
    let handshake = TlsConnector::from(tls).connect(server_name(&ask.target.host), line);
    match handshake.into_fallible().await {
        Ok(stream) => talk(stream, request, ask.body_limit, peer).await,
        Err((_, line)) if line.first_bytes().starts_with(b"HTTP/") => Err(Failure::PlainHttp),
        Err((error, _)) => {
            match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(refused) => Err(Failure::Tls(refused.to_string())),
                None => Err(of_io(&error, peer)),
            }
        }
    }
}

fn request(ask: &Ask<'_>) -> Result<Request<Empty<Bytes>>, Failure> {
    let mut headers = HeaderMap::new();
    for (name, value) in ask.headers {
        let field = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
            Failure::Request(format!("net/http: invalid header field name {name:?}"))
        })?;
        let content = HeaderValue::from_str(value).map_err(|_| {
            Failure::Request(format!("net/http: invalid header field value for {name:?}"))
        })?;
        headers.append(field, content);
    }
    if !headers.contains_key(hyper::header::HOST) {
        let host = HeaderValue::from_str(&ask.target.authority())
            .map_err(|error| Failure::Request(error.to_string()))?;
        headers.insert(hyper::header::HOST, host);
    }
    headers.insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
    let mut request = Request::get(ask.target.path.as_str())
        .body(Empty::new())
        .map_err(|error| Failure::Request(error.to_string()))?;
    *request.headers_mut() = headers;
    Ok(request)
}

async fn talk<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    limit: usize,
    peer: std::net::SocketAddr,
) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| of_hyper(&error, peer);
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

async fn answer(response: Response<Incoming>, limit: usize) -> Result<Answer, Failure> {
    let (head, mut body) = response.into_parts();
    let location = head.headers.get(hyper::header::LOCATION);
    let location = location.map(|place| String::from_utf8_lossy(place.as_bytes()).into_owned());
    let mut kept = Vec::new();
    let mut truncated = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::CutShort)?;
        let Some(data) = frame.data_ref() else { continue };
        let room = limit - kept.len();
        kept.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            truncated = true;
            break;
        }
    }
    Ok(Answer { status: head.status.as_u16(), location, body: kept, truncated })
}
