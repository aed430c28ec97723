//! Port-forward: connections into a pod's network, one for each pair of streams.
//!
//! Rule: everything that is done for a client ends with the client, including its connections into
//! the pod. The amount of data that a client has sent and its pod has not read is limited per
//! client.
//!
//! upstream: k8s.io/streaming portforward (httpstream.go)

mod dialer;
mod websocket_channels;

use std::collections::HashMap;
use std::sync::Arc;

use stream_frames::spdy::{Headers, SpdyDecoder, SpdyEncoder, SpdyFrame};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::connection::SocketWriter;
use super::session::{
    BufferedInput, InputBudget, MAX_BUFFERED_INPUT, PART, QUEUE, closed_and_idle,
};
use super::upgrade::UpgradedSocket;
use crate::failure::CriError;

pub(super) use dialer::PodDialer;
pub(super) use websocket_channels::over_websocket;

#[cfg(test)]
mod tests;

/// The limit of concurrent streams of one client.
const MAX_STREAMS_PER_CLIENT: usize = 1024;
/// The maximum length of a pair's id; clients use a counter.
const MAX_ID_LENGTH: usize = 256;
const REFUSED: u32 = 3;

struct FrameWriter {
    socket: SocketWriter,
    encoder: SpdyEncoder,
}

impl FrameWriter {
    async fn send(&mut self, frame: &SpdyFrame) -> bool {
        let mut bytes = Vec::new();
        self.encoder.write(frame, &mut bytes).is_ok() && self.socket.write_all(&bytes).await.is_ok()
    }
}

/// Streams come in pairs: one for data, one for errors.
#[derive(Default)]
struct StreamPair {
    data: Option<u32>,
    error: Option<u32>,
    port: u16,
}

/// A complete pair: the ids of its streams, and the two directions.
struct ForwardPair {
    data_id: u32,
    error_id: u32,
    input: mpsc::Receiver<BufferedInput>,
    writer: Arc<Mutex<FrameWriter>>,
}

/// One client's streams.
struct ForwardStreams {
    dialer: PodDialer,
    writer: Arc<Mutex<FrameWriter>>,
    pairs: HashMap<String, StreamPair>,
    inputs: HashMap<u32, mpsc::Sender<BufferedInput>>,
    room: InputBudget,
    /// Dropped with the rest, which ends them.
    forwards: JoinSet<()>,
}

pub(super) async fn over_spdy(dialer: PodDialer, socket: UpgradedSocket) {
    let (mut reader, writer) = socket.stream.into_split();
    let writer = FrameWriter { socket: writer, encoder: SpdyEncoder::default() };
    let mut streams = ForwardStreams {
        dialer,
        writer: Arc::new(Mutex::new(writer)),
        pairs: HashMap::new(),
        inputs: HashMap::new(),
        room: InputBudget::of(MAX_BUFFERED_INPUT),
        forwards: JoinSet::new(),
    };
    let mut decoder = SpdyDecoder::default();
    decoder.push(&socket.early);
    let mut part = vec![0; 32 * 1024];
    loop {
        loop {
            let frame = match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => frame,
                Err(error) => {
                    tracing::debug!(%error, "a port-forward client");
                    return;
                }
            };
            let goes_on = tokio::select! {
                biased;
                goes_on = streams.take(frame) => goes_on,
                () = closed_and_idle(&reader) => false,
            };
            if !goes_on {
                return;
            }
        }
        match reader.read(&mut part).await {
            Ok(0) | Err(_) => return,
            Ok(read) => decoder.push(&part[..read]),
        }
    }
}

impl ForwardStreams {
    /// `false`: the client is done.
    async fn take(&mut self, frame: SpdyFrame) -> bool {
        match frame {
            SpdyFrame::Open { stream, headers, .. } => self.open(stream, &headers).await,
            SpdyFrame::Data { stream, bytes, end } => {
                if let Some(sender) = self.inputs.get(&stream) {
                    for part in bytes.chunks(PART) {
                        // A slow pod slows its client. A stream whose pod reads nothing more does
                        // not end the others.
                        let Some(held) = self.room.reserve(part).await else { return false };
                        let _ = sender.send(held).await;
                    }
                }
                if end {
                    self.inputs.remove(&stream);
                }
                true
            }
            SpdyFrame::Reset { stream, .. } => {
                self.inputs.remove(&stream);
                true
            }
            SpdyFrame::Ping { id } => self.writer.lock().await.send(&SpdyFrame::Ping { id }).await,
            SpdyFrame::GoAway { .. } => false,
            _ => true,
        }
    }

    async fn open(&mut self, stream: u32, headers: &Headers) -> bool {
        while self.forwards.try_join_next().is_some() {}
        self.inputs.retain(|_, input| !input.is_closed());
        let known = self.forwards.len() * 2 + self.pairs.len() < MAX_STREAMS_PER_CLIENT;
        let ready = known.then(|| place(&mut self.pairs, stream, headers)).flatten();
        let Some(ready) = ready else {
            let reset = SpdyFrame::Reset { stream, status: REFUSED };
            return self.writer.lock().await.send(&reset).await;
        };
        let accept = SpdyFrame::Accept { stream, headers: Headers::default(), end: false };
        if !self.writer.lock().await.send(&accept).await {
            return false;
        }
        if let Some((data, error, port)) = ready {
            let (sender, input) = mpsc::channel(QUEUE);
            self.inputs.insert(data, sender);
            let writer = Arc::clone(&self.writer);
            let pair = ForwardPair { data_id: data, error_id: error, input, writer };
            let dialer = self.dialer.clone();
            self.forwards.spawn(async move { forward(&dialer, port, pair).await });
        }
        true
    }
}

/// None: the stream is refused. Inside: the pair that is now complete.
fn place(
    pairs: &mut HashMap<String, StreamPair>,
    stream: u32,
    headers: &Headers,
) -> Option<Option<(u32, u32, u16)>> {
    let port: u16 = headers.get("port")?.parse().ok().filter(|port| *port > 0)?;
    // Older clients send no id; their pairs come one after another.
    let id = headers.get("requestid").map_or_else(|| format!("port {port}"), str::to_owned);
    if id.len() > MAX_ID_LENGTH {
        return None;
    }
    let pair = pairs.entry(id.clone()).or_default();
    let place = match headers.get("streamtype")? {
        "data" => &mut pair.data,
        "error" => &mut pair.error,
        _ => return None,
    };
    if place.is_some() {
        return None;
    }
    *place = Some(stream);
    pair.port = port;
    let whole = match (pair.data, pair.error) {
        (Some(data), Some(error)) => Some((data, error, pair.port)),
        _ => None,
    };
    if whole.is_some() {
        pairs.remove(&id);
    }
    Some(whole)
}

/// The error messages that clients know.
fn forward_error_message(dialer: &PodDialer, port: u16, failure: &CriError) -> String {
    format!("error forwarding port {port} to pod {}, uid : {failure}", dialer.sandbox)
}

async fn forward(dialer: &PodDialer, port: u16, pair: ForwardPair) {
    let ForwardPair { data_id, error_id, mut input, writer } = pair;
    let error_message = match dialer.connect(port).await {
        Ok(stream) => {
            let (mut reader, mut sender) = stream.into_split();
            let feeding = async {
                while let Some(held) = input.recv().await {
                    if sender.write_all(&held.bytes).await.is_err() {
                        return;
                    }
                }
                let _ = sender.shutdown().await;
            };
            let draining = async {
                let mut part = vec![0; PART];
                while let Ok(read) = reader.read(&mut part).await {
                    let bytes = part[..read].to_vec();
                    let end = bytes.is_empty();
                    let frame = SpdyFrame::Data { stream: data_id, bytes, end };
                    if !writer.lock().await.send(&frame).await || end {
                        return;
                    }
                }
            };
            tokio::join!(feeding, draining);
            None
        }
        Err(failure) => Some(forward_error_message(dialer, port, &failure)),
    };
    let mut writer = writer.lock().await;
    if error_message.is_some() {
        let end = SpdyFrame::Data { stream: data_id, bytes: Vec::new(), end: true };
        writer.send(&end).await;
    }
    let bytes = error_message.unwrap_or_default().into_bytes();
    writer.send(&SpdyFrame::Data { stream: error_id, bytes, end: true }).await;
}
