//! One request to one host: connect, send, and return the response with its body unread.
//!
//! Rule: each step has a timeout, including each wait for more of a body. A connection carries one
//! request: a pull makes few and large ones. Does not follow redirects and knows no credentials.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use crate::address::HttpUrl;
use crate::error::{Error, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for the next bytes of a body.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const USER_AGENT_VALUE: &str = concat!("keelson/", env!("CARGO_PKG_VERSION"));

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct HttpRequest {
    pub(crate) method: hyper::Method,
    pub(crate) address: HttpUrl,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpRequest {
    pub(crate) fn get(address: HttpUrl) -> Self {
        Self { method: hyper::Method::GET, address, headers: HeaderMap::new(), body: Bytes::new() }
    }
}

/// A response whose body arrives while it is read.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    /// Ends the connection.
    driver: AbortHandle,
}

impl Drop for HttpResponse {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl HttpResponse {
    /// The next bytes; none at the end.
    pub(crate) async fn next(&mut self) -> std::result::Result<Option<Bytes>, String> {
        loop {
            let frame = tokio::time::timeout(IDLE_TIMEOUT, self.body.frame())
                .await
                .map_err(|_| format!("nothing came for {IDLE_TIMEOUT:?}"))?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(error_chain(&error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    Err(_) => {}
                },
            }
        }
    }

    /// The whole body, within a maximum size and time.
    pub(crate) async fn all(&mut self, what: &str, limits: (usize, Duration)) -> Result<Vec<u8>> {
        let (limit, within) = limits;
        let broken = |reason: String| Error::Connection { what: what.to_owned(), reason };
        let mut bytes = Vec::new();
        let reading = async {
            while let Some(part) = self.next().await.map_err(broken)? {
                if bytes.len() + part.len() > limit {
                    let reason = format!("the answer exceeds {limit} bytes");
                    return Err(Error::Answer { what: what.to_owned(), reason });
                }
                bytes.extend_from_slice(&part);
            }
            Ok(())
        };
        tokio::time::timeout(within, reading)
            .await
            .map_err(|_| broken(format!("the answer is not whole after {within:?}")))??;
        Ok(bytes)
    }

    /// The beginning of an error body for messages: what arrives within the timeout.
    pub(crate) async fn response_text(&mut self, within: Duration) -> String {
        const ENOUGH: usize = 2000;
        let mut bytes = Vec::new();
        let reading = async {
            while bytes.len() < ENOUGH
                && let Ok(Some(part)) = self.next().await
            {
                bytes.extend_from_slice(&part[..part.len().min(ENOUGH - bytes.len())]);
            }
        };
        // After a timeout, use what arrived.
        let _ = tokio::time::timeout(within, reading).await;
        let text = String::from_utf8_lossy(&bytes);
        let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.is_empty() { "no reason given".to_owned() } else { text }
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    }
}

/// Sends one request. `tls` is used for https URLs.
pub(crate) async fn send(send: &HttpRequest, tls: &Arc<ClientConfig>) -> Result<HttpResponse> {
    let failed = |reason: String| Error::Connection { what: send.address.to_string(), reason };
    let address = &send.address;
    let connecting = async {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.set_nodelay(true)?;
        Ok::<_, std::io::Error>(stream)
    };
    let within = |step: &str| format!("{step}: not done after {CONNECT_TIMEOUT:?}");
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
        .await
        .map_err(|_| failed(within("connecting")))?
        .map_err(|error| failed(format!("connecting: {error}")))?;
    if !address.secure {
        return exchange(stream, send).await.map_err(failed);
    }
    let name = ServerName::try_from(address.host.clone())
        .map_err(|error| failed(format!("the host's name: {error}")))?;
    let handshake = TlsConnector::from(Arc::clone(tls)).connect(name, stream);
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, handshake)
        .await
        .map_err(|_| failed(within("TLS")))?
        .map_err(|error| failed(format!("TLS: {error}")))?;
    exchange(stream, send).await.map_err(failed)
}

async fn exchange<Stream>(
    stream: Stream,
    send: &HttpRequest,
) -> std::result::Result<HttpResponse, String>
where
    Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder =
        Request::builder().method(send.method.clone()).uri(send.address.path.as_str());
    builder = builder.header(HOST, send.address.authority()).header(USER_AGENT, USER_AGENT_VALUE);
    for (name, value) in &send.headers {
        builder = builder.header(name, value);
    }
    let request = builder.body(Full::new(send.body.clone())).map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error_chain(&error))?;
    let driver = tokio::spawn(async move {
        // Errors are reported by the request or its body.
        let _ = connection.await;
    })
    .abort_handle();
    let answer = tokio::time::timeout(RESPONSE_TIMEOUT, sender.send_request(request)).await;
    let response: Response<Incoming> = match answer {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            driver.abort();
            return Err(error_chain(&error));
        }
        Err(_) => {
            driver.abort();
            return Err(format!("no answer after {RESPONSE_TIMEOUT:?}"));
        }
    };
    let (parts, body) = response.into_parts();
    Ok(HttpResponse { status: parts.status.as_u16(), headers: parts.headers, body, driver })
}

/// An error with its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}
