//! An upgrade request passed on to the address that a runtime returned for a stream.
//!
//! Rule: the request's method and headers reach the runtime, except what identifies the client:
//! credentials are for this port only. The runtime's response reaches the client, whether it
//! upgrades or not. Connecting and answering have deadlines. The bytes are not looked at.
//! upstream: apimachinery pkg/util/proxy/upgradeaware.go

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName,
    HeaderValue, PROXY_AUTHORIZATION, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::http::uri::{Authority, Scheme};
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

const CONNECT_TIME: Duration = Duration::from_secs(10);
/// For the runtime's response. upstream: the runtimes' stream creation timeout
const RESPONSE_TIME: Duration = Duration::from_secs(30);
/// For the text of a rejection.
const BODY_TIME: Duration = Duration::from_secs(10);
const BODY_BYTES: usize = 64 * 1024;

/// Headers that stay here.
const WITHHELD: &[HeaderName] =
    &[HOST, AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE, CONTENT_LENGTH, TRANSFER_ENCODING];
const WITHHELD_PREFIX: &str = "impersonate-";

/// What the runtime answered.
#[derive(Debug)]
pub(super) enum UpgradeAnswer {
    Upgraded { headers: HeaderMap, connection: Upgraded },
    Rejected { status: StatusCode, content_type: Option<HeaderValue>, body: Bytes },
}

/// Why there is no answer of the runtime. The address is a secret: it is in no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UpgradeError {
    #[error("the runtime's address for the stream is not usable: {0}")]
    Address(&'static str),
    #[error("cannot connect to the runtime's stream server at {host}: {cause}")]
    Connect { host: String, cause: String },
    #[error("no answer of the runtime's stream server within {} s", RESPONSE_TIME.as_secs())]
    TooSlow,
    #[error("the runtime's stream server: {0}")]
    Exchange(String),
    #[error("invalid upgrade response: status code {0}")]
    NoUpgrade(u16),
}

/// Whether the client asks to upgrade its connection.
pub(super) fn asks_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| contains(value, "upgrade"))
}

/// Whether it asks for a WebSocket.
pub(super) fn asks_websocket(headers: &HeaderMap) -> bool {
    asks_upgrade(headers)
        && headers
            .get(UPGRADE)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn contains(value: &HeaderValue, word: &str) -> bool {
    value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains(word))
}

/// Sends the client's request to this address.
pub(super) async fn upgrade_at(url: &str, client: &Parts) -> Result<UpgradeAnswer, UpgradeError> {
    let url: Uri = url.parse().map_err(|_| UpgradeError::Address("it is not a URL"))?;
    let request = request(&url, client)?;
    let stream = connect(&url).await?;
    let exchange = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the exchange: when it is upgraded, when it is read, or when the sender is gone.
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await
    };
    let answered = timeout(RESPONSE_TIME, exchange).await.map_err(|_| UpgradeError::TooSlow)?;
    let response = answered.map_err(|error| UpgradeError::Exchange(error.to_string()))?;
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            let headers = response.headers().clone();
            let upgraded = timeout(RESPONSE_TIME, hyper::upgrade::on(response)).await;
            let upgraded = upgraded.map_err(|_| UpgradeError::TooSlow)?;
            let connection = upgraded.map_err(|error| UpgradeError::Exchange(error.to_string()))?;
            Ok(UpgradeAnswer::Upgraded { headers, connection })
        }
        status if status.as_u16() < 400 => Err(UpgradeError::NoUpgrade(status.as_u16())),
        status => rejected(status, response).await,
    }
}

async fn rejected(
    status: StatusCode,
    response: Response<Incoming>,
) -> Result<UpgradeAnswer, UpgradeError> {
    let content_type = response.headers().get(CONTENT_TYPE).cloned();
    let body = Limited::new(response.into_body(), BODY_BYTES).collect();
    // The status says enough if the text does not come.
    let body = match timeout(BODY_TIME, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        _ => Bytes::new(),
    };
    Ok(UpgradeAnswer::Rejected { status, content_type, body })
}

fn request(url: &Uri, client: &Parts) -> Result<Request<Empty<Bytes>>, UpgradeError> {
    if url.scheme() != Some(&Scheme::HTTP) {
        return Err(UpgradeError::Address("expected http://HOST:PORT/PATH"));
    }
    let unusable = |_| UpgradeError::Address("it has no host");
    let host = url.authority().map(Authority::as_str).unwrap_or_default();
    let host = HeaderValue::from_str(host).map_err(unusable)?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(Empty::new());
    *request.method_mut() = client.method.clone();
    *request.uri_mut() = path.parse().map_err(|_| UpgradeError::Address("its path is invalid"))?;
    let headers = request.headers_mut();
    for (name, value) in &client.headers {
        if !WITHHELD.contains(name) && !name.as_str().starts_with(WITHHELD_PREFIX) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers.insert(HOST, host);
    Ok(request)
}

async fn connect(url: &Uri) -> Result<TcpStream, UpgradeError> {
    let host = url.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = url.port_u16().unwrap_or(80);
    let failed = |cause: String| UpgradeError::Connect { host: format!("{host}:{port}"), cause };
    let connected = timeout(CONNECT_TIME, TcpStream::connect((host, port))).await;
    let connected = connected.map_err(|_| failed("no connection in time".to_owned()))?;
    let stream = connected.map_err(|error| failed(error.to_string()))?;
    // A connection works without it.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method("POST").uri("/exec/ns/web/main?command=ls");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn an_upgrade_is_recognized_as_upstream_recognizes_it() {
        let spdy: &[(&str, &str)] = &[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
        let websocket: &[(&str, &str)] =
            &[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        let neither: &[(&str, &str)] = &[("connection", "keep-alive"), ("upgrade", "websocket")];
        for (headers, expected) in
            [(spdy, (true, false)), (websocket, (true, true)), (neither, (false, false))]
        {
            let headers = parts(headers).headers;
            assert_eq!((asks_upgrade(&headers), asks_websocket(&headers)), expected, "{headers:?}");
        }
    }

    #[test]
    fn credentials_stay_here_and_other_headers_are_passed_on() {
        let client = parts(&[
            ("host", "node:10250"),
            ("authorization", "Bearer secret"),
            ("cookie", "secret"),
            ("impersonate-user", "admin"),
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("x-stream-protocol-version", "v3.channel.k8s.io"),
        ]);
        let url: Uri = "http://127.0.0.1:1234/exec/token?a=b".parse().expect("a URL");
        let request = request(&url, &client).expect("a request");
        assert_eq!(
            (request.method().as_str(), request.uri().to_string()),
            ("POST", "/exec/token?a=b".to_owned())
        );
        let mut headers: Vec<(&str, &str)> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("text")))
            .collect();
        headers.sort_unstable();
        let expected = [
            ("connection", "Upgrade"),
            ("host", "127.0.0.1:1234"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v3.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ];
        assert_eq!(headers, expected);
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_used_is_an_error_without_its_path() {
        for url in ["https://127.0.0.1/secret", "/secret", "not a url/secret", "http:///secret"] {
            let error = upgrade_at(url, &parts(&[])).await.expect_err("an error").to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = gone.local_addr().expect("an address");
        drop(gone);
        let url = format!("http://{address}/secret");
        let error = upgrade_at(&url, &parts(&[])).await.expect_err("an error").to_string();
        assert!(error.contains(&address.to_string()) && !error.contains("secret"), "{error}");
    }
}
