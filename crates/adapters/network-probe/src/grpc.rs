//! The gRPC health protocol over a connection of its own (upstream: pkg/probe/grpc).
//!
//! Rule: a server counts as connected when it sends HTTP/2; until then connecting is retried up to
//! the limit, as upstream does. Any status but SERVING is a failure.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_once::{TcpConnection, dial};
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use pod_model::GoDuration;
use ports::probing::ProbeAttemptResult;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::health::{
    MAX_RESPONSE_BYTES, SERVING, code_name, code_of_http, request, status_in, status_name,
};
use crate::tcp::join_host_port;

#[cfg(test)]
mod tests;

/// Between two attempts to connect: gRPC's first back-off.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

const UNIMPLEMENTED: u32 = 12;
const DEADLINE_EXCEEDED: u32 = 4;

pub(crate) struct GrpcProbe<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) service: &'a str,
    pub(crate) user_agent: &'a str,
}

/// The status of a call that failed.
#[derive(Debug)]
struct GrpcStatus {
    code: u32,
    message: String,
}

pub(crate) async fn attempt(probe: &GrpcProbe<'_>, limit: Duration) -> ProbeAttemptResult {
    let reached = Arc::new(AtomicBool::new(false));
    let within = GoDuration::from_nanos(i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX));
    match tokio::time::timeout(limit, call_until_reached(probe, limit, &reached)).await {
        Ok(Ok(SERVING)) => ProbeAttemptResult::Success("service healthy".to_owned()),
        Ok(Ok(status)) => ProbeAttemptResult::Failure(format!(
            "service unhealthy (responded with {:?})",
            status_name(status)
        )),
        Ok(Err(GrpcStatus { code: UNIMPLEMENTED, message })) => {
            ProbeAttemptResult::Failure(format!(
                "error: this server does not implement the grpc health protocol \
             (grpc.health.v1.Health): {message}"
            ))
        }
        Ok(Err(GrpcStatus { code: DEADLINE_EXCEEDED, .. })) => ProbeAttemptResult::Failure(
            format!("timeout: health rpc did not complete within {within}"),
        ),
        Ok(Err(GrpcStatus { code, message })) => ProbeAttemptResult::Failure(format!(
            "error: health rpc probe failed: rpc error: code = {} desc = {message}",
            code_name(code)
        )),
        Err(_) if reached.load(Ordering::Relaxed) => ProbeAttemptResult::Failure(format!(
            "timeout: health rpc did not complete within {within}"
        )),
        Err(_) => ProbeAttemptResult::Failure(format!(
            "timeout: failed to connect service {:?} within {within}: context deadline exceeded",
            join_host_port(probe.host, probe.port)
        )),
    }
}

/// Retries until connected; then the server's answer counts, whatever it is.
async fn call_until_reached(
    probe: &GrpcProbe<'_>,
    limit: Duration,
    reached: &Arc<AtomicBool>,
) -> Result<u64, GrpcStatus> {
    loop {
        if let Ok(tcp_connection) = dial(probe.host, probe.port).await {
            let tcp_connection = Http2Detector { tcp_connection, reached: reached.clone() };
            match check(tcp_connection, probe, limit).await {
                Ok(answer) => return answer,
                Err(error) if reached.load(Ordering::Relaxed) => {
                    return Err(GrpcStatus { code: 14, message: error });
                }
                Err(_) => {}
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// One call over one connection; the outer error is the connection's.
async fn check(
    tcp_connection: Http2Detector,
    probe: &GrpcProbe<'_>,
    limit: Duration,
) -> Result<Result<u64, GrpcStatus>, String> {
    let failed = |error: h2::Error| error.to_string();
    let (sender, connection) = h2::client::handshake(tcp_connection).await.map_err(failed)?;
    let call = async {
        let mut sender = sender.ready().await.map_err(failed)?;
        let head = head(probe, limit)?;
        let (response, mut body) = sender.send_request(head, false).map_err(failed)?;
        body.send_data(Bytes::from(request(probe.service)), true).map_err(failed)?;
        read(response.await.map_err(failed)?).await
    };
    tokio::pin!(call, connection);
    let ended = tokio::select! {
        biased;
        answer = &mut call => return answer,
        ended = &mut connection => ended,
    };
    // What arrived before the connection ended is still to be read.
    match ended {
        Ok(()) => call.await,
        Err(error) => match call.await {
            Ok(answer) => Ok(answer),
            Err(_) => Err(failed(error)),
        },
    }
}

fn head(probe: &GrpcProbe<'_>, limit: Duration) -> Result<Request<()>, String> {
    let url =
        format!("http://{}/grpc.health.v1.Health/Check", join_host_port(probe.host, probe.port));
    Request::post(url)
        .header("content-type", "application/grpc")
        .header("user-agent", probe.user_agent)
        .header("te", "trailers")
        .header("grpc-timeout", format!("{}m", limit.as_millis().clamp(1, 99_999_999)))
        .body(())
        .map_err(|error| error.to_string())
}

async fn read(response: Response<h2::RecvStream>) -> Result<Result<u64, GrpcStatus>, String> {
    let (head, mut body) = response.into_parts();
    // A response without a message has its status in the head.
    if let Some(status) = status_of(&head.headers) {
        return Ok(Err(status));
    }
    if head.status != 200 {
        let message = format!("unexpected HTTP status code received from server: {}", head.status);
        return Ok(Err(GrpcStatus { code: code_of_http(head.status.as_u16()), message }));
    }
    let mut frame = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(|error| error.to_string())?;
        // The window grows only while more data is wanted.
        let _freed = body.flow_control().release_capacity(data.len());
        frame.extend_from_slice(&data);
        if frame.len() > MAX_RESPONSE_BYTES {
            let message = "grpc: received message larger than max".to_owned();
            return Ok(Err(GrpcStatus { code: 8, message }));
        }
    }
    let trailers = body.trailers().await.map_err(|error| error.to_string())?;
    match trailers.as_ref().and_then(status_of) {
        Some(GrpcStatus { code: 0, .. }) => {
            Ok(status_in(&frame)
                .map_err(|reason| GrpcStatus { code: 13, message: reason.to_owned() }))
        }
        Some(status) => Ok(Err(status)),
        None => {
            let message = "server closed the stream without sending trailers".to_owned();
            Ok(Err(GrpcStatus { code: 13, message }))
        }
    }
}

fn status_of(headers: &HeaderMap) -> Option<GrpcStatus> {
    let code = headers.get("grpc-status")?.to_str().ok()?.trim().parse().unwrap_or(2);
    let message =
        headers.get("grpc-message").map_or_else(String::new, |text| plain(text.as_bytes()));
    Some(GrpcStatus { code, message })
}

/// Percent-decodes a status message; an invalid escape stays as it is.
fn plain(message: &[u8]) -> String {
    percent_encoding::percent_decode(message).decode_utf8_lossy().into_owned()
}

/// A connection that notes when the server begins to send HTTP/2.
struct Http2Detector {
    tcp_connection: TcpConnection,
    reached: Arc<AtomicBool>,
}

/// Offset of a frame's type, and the type that a server must send first.
const FRAME_KIND_OFFSET: usize = 3;
const SETTINGS_FRAME: u8 = 4;

impl AsyncRead for Http2Detector {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let polled = Pin::new(&mut self.tcp_connection).poll_read(context, buffer);
        if self.tcp_connection.first_bytes().get(FRAME_KIND_OFFSET) == Some(&SETTINGS_FRAME) {
            self.reached.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Http2Detector {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.tcp_connection).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp_connection).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp_connection).poll_shutdown(context)
    }
}
