//! A link that speaks SPDY/3.1: a connection to a stream's address, upgraded, or one that speaks it
//! already.
//!
//! Rule: connecting and the handshake have a deadline; a response other than the upgrade is shown
//! in the error, with the runtime's name. SPDY because every CRI runtime serves it, with streams
//! that can be closed one by one in each direction; WebSocket's version 5, which can too, is newer
//! than the runtimes in use.

use super::stream::{Duplex, PodStream};
use anyhow::{Context, Result, anyhow, bail, ensure};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use ports::local_runtime::{LocalStream, STREAM_UPGRADE};
use std::time::Duration;
use stream_frames::spdy::{Headers, SpdyDecoder, SpdyEncoder, SpdyFrame};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(30);
/// Of a response that refuses the upgrade.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

pub(super) const COMMAND_PROTOCOL: &str = "v4.channel.k8s.io";
pub(super) const FORWARD_PROTOCOL: &str = "portforward.k8s.io";

type BoxedDuplex = Box<dyn Duplex>;

pub(super) struct SpdyReader {
    socket: ReadHalf<BoxedDuplex>,
    decoder: SpdyDecoder,
    part: Vec<u8>,
}

pub(super) struct SpdyWriter {
    socket: WriteHalf<BoxedDuplex>,
    encoder: SpdyEncoder,
    bytes: Vec<u8>,
}

impl SpdyReader {
    /// The next frame; None when the other side has closed.
    pub(super) async fn next(&mut self) -> Result<Option<SpdyFrame>> {
        loop {
            if let Some(frame) = self.decoder.next_frame().context("the runtime's stream")? {
                return Ok(Some(frame));
            }
            match self.socket.read(&mut self.part).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(read) => self.decoder.push(&self.part[..read]),
            }
        }
    }
}

impl SpdyWriter {
    pub(super) async fn send(&mut self, frame: &SpdyFrame) -> Result<()> {
        self.bytes.clear();
        self.encoder.write(frame, &mut self.bytes)?;
        self.socket.write_all(&self.bytes).await.context("the runtime's stream")
    }

    pub(super) async fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Result<()> {
        let headers = Headers::new(headers.iter().copied());
        self.send(&SpdyFrame::Open { stream, headers, end: false }).await
    }
}

pub(super) async fn connect(stream: PodStream, protocol: &str) -> Result<(SpdyReader, SpdyWriter)> {
    let socket = match stream {
        PodStream::Open(socket) => socket,
        PodStream::Address(address) => tokio::time::timeout(DEADLINE, upgrade(&address, protocol))
            .await
            .map_err(|_| anyhow!("no answer within {DEADLINE:?}"))
            .and_then(|connected| connected)
            .with_context(|| format!("the stream of {}", address.runtime))?,
    };
    let (reader, writer) = tokio::io::split(socket);
    let reader =
        SpdyReader { socket: reader, decoder: SpdyDecoder::default(), part: vec![0; 64 * 1024] };
    let writer = SpdyWriter { socket: writer, encoder: SpdyEncoder::default(), bytes: Vec::new() };
    Ok((reader, writer))
}

async fn upgrade(stream: &LocalStream, protocol: &str) -> Result<BoxedDuplex> {
    let uri: Uri = stream.url.parse().with_context(|| format!("its address {}", stream.url))?;
    ensure!(
        uri.scheme_str() == Some("http"),
        "not over this runtime yet: its address is {}; expected http (see its configuration of the \
         streaming server)",
        stream.url
    );
    let host = uri.host().with_context(|| format!("no host in {}", stream.url))?;
    let address = (host.trim_matches(['[', ']']), uri.port_u16().unwrap_or(80));
    let socket = TcpStream::connect(address)
        .await
        .with_context(|| format!("connect to {}:{}", address.0, address.1))?;
    let _ = socket.set_nodelay(true);
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection.with_upgrades());
    let path = uri.path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str);
    let request = Request::post(path)
        .header("host", uri.authority().map_or(host, |authority| authority.as_str()))
        .header("connection", "Upgrade")
        .header("upgrade", STREAM_UPGRADE)
        .header("x-stream-protocol-version", protocol)
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_RESPONSE_BYTES).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        bail!("it refused: {status}: {}", String::from_utf8_lossy(&body).trim());
    }
    Ok(Box::new(TokioIo::new(hyper::upgrade::on(answer).await?)))
}
