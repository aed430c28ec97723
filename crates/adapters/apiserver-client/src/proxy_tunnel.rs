//! Opens a tunnel through an HTTP proxy: one `CONNECT` and its response.
//!
//! Rule: the response's head has a size limit, and nothing may follow it, since an API server never
//! speaks first; no error shows the credentials. The deadline is the caller's. Does not follow
//! redirects and knows one kind of authentication, Basic.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_rustls::client::TlsStream;

use crate::batching_socket::BatchingSocket;
use crate::proxy::ProxyAddress;

/// The longest head of a proxy's response.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// How much of the status line goes into a message.
const MAX_SHOWN_CHARS: usize = 100;

/// Asks the proxy at the other end of `stream` for a tunnel to `target`.
pub(crate) async fn open_tunnel<S>(
    stream: &mut S,
    proxy: &ProxyAddress,
    target: &str,
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |error: io::Error| error.to_string();
    stream.write_all(&connect_request(proxy, target)?).await.map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    let mut head = Vec::new();
    loop {
        if let Some(outcome) = connect_outcome(&head) {
            return outcome;
        }
        let room = (MAX_HEAD_BYTES + 1).saturating_sub(head.len()) as u64;
        if (&mut *stream).take(room).read_buf(&mut head).await.map_err(failed)? == 0 {
            return Err("closed the connection before it answered CONNECT".to_owned());
        }
    }
}

fn connect_request(proxy: &ProxyAddress, target: &str) -> Result<Vec<u8>, String> {
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("{target:?} cannot be written into a request"));
    }
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(authorization) = &proxy.authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(authorization.reveal());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    Ok(request)
}

/// What the bytes so far mean; `None` if more are needed.
fn connect_outcome(received: &[u8]) -> Option<Result<(), String>> {
    const NOT_HTTP: &str = "its answer to CONNECT is not HTTP";
    let beginning = b"HTTP/1.";
    let shared = received.len().min(beginning.len());
    if received.get(..shared) != beginning.get(..shared) {
        return Some(Err(NOT_HTTP.to_owned()));
    }
    let end = received.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    match end {
        None if received.len() <= MAX_HEAD_BYTES => return None,
        Some(end) if end <= MAX_HEAD_BYTES => {}
        _ => {
            let message = format!("its answer to CONNECT is longer than {MAX_HEAD_BYTES} bytes");
            return Some(Err(message));
        }
    }
    let line = received.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let status = line.split_once(' ').map_or("", |(_, status)| status);
    let code = status.get(..3).and_then(|code| code.parse::<u16>().ok());
    let separated = status.get(3..).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    let Some(code) = code.filter(|_| separated) else {
        return Some(Err(NOT_HTTP.to_owned()));
    };
    Some(match code {
        200..300 if end == Some(received.len()) => Ok(()),
        200..300 => Err("it sent data into the tunnel before the first request".to_owned()),
        407 => Err("it wants other credentials (407)".to_owned()),
        _ => {
            let shown: String = status
                .chars()
                .take(MAX_SHOWN_CHARS)
                .map(|character| if character.is_control() { ' ' } else { character })
                .collect();
            Err(format!("it refused CONNECT: {shown}"))
        }
    })
}

/// A connection to the API server, or to the proxy that leads there.
#[derive(Debug)]
pub(crate) enum ServerStream {
    Plain(BatchingSocket),
    /// To a proxy that is reached over TLS.
    Tls(Box<TlsStream<BatchingSocket>>),
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests;
